"""Ways: along what a collective of a group runs in each of its dimensions, and through which queues.

A group that spans the system goes through the dimensions of the machine, one that is laid out on it along its
own sides, and one that is as it is listed along itself. Where rings with an order of their own go along a
side, chunks take them in turn; those that go through uneven nodes at the same time have queues of their own.

Not here: how a group lies on the machine (`layout`), and which algorithm is chosen (`algorithms`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from et_sim.collectives import RING, Algorithm, CostFixes, Operation
from et_sim.plan.axes import Axes
from et_sim.plan.groups import GroupShape
from et_sim.plan.layout import Layout, Side
from et_sim.plan.tables import NO_AXIS


@dataclass(frozen=True, slots=True)
class Way:
    """What the phases of a collective in one of its dimensions run along."""

    number: int  # the how many-th dimension of the group it is
    dimension: int  # of the machine
    members: int
    algorithm: Algorithm
    axis: int
    rings: tuple[int, ...] = ()  # axes that chunks take in turn where they go round a ring
    own_rings: int = 1  # so many of them at the same time
    own_queues: int = 0  # the first of the sets of queues of all rings but the first

    def axis_of(self, operation: Operation, fixes: CostFixes, turn: int) -> int:
        """Along what a phase of a chunk runs."""
        takes_ring = bool(self.rings) and self.algorithm.used_for(operation, fixes) == RING
        return self.rings[turn % len(self.rings)] if takes_ring else self.axis

    def queues_of(self, turn: int) -> int:
        """Which set of queues a phase of a chunk uses."""
        ring = turn % self.own_rings
        return self.own_queues + ring - 1 if ring else self.dimension


class Ways:
    """The ways of groups on a machine."""

    def __init__(self, axes: Axes, fixes: CostFixes) -> None:
        self._axes, self._fixes = axes, fixes
        self._dimensions = len(axes.of_machine)

    def sides(self, group: GroupShape) -> Layout:
        """Those of the group, or of the machine if it spans that; a group as it is listed has none."""
        return self._axes.of_machine if group.spans_system else group.layout or ()

    def queue_sets(self, group: GroupShape) -> int:
        """Sets of queues that members of a group use at most."""
        own = sum(max(side.own_rings - 1, 0) for side in self.sides(group))
        return 1 if group.is_as_listed else self._dimensions + own

    def of(self, operation: Operation, group: GroupShape, algorithms: tuple[Algorithm, ...]) -> list[Way]:
        """One for each algorithm."""
        if group.is_as_listed:
            return [Way(0, 0, group.members, algorithms[0], NO_AXIS)]
        ways, own_queues = [], self._dimensions
        for number, (side, algorithm) in enumerate(zip(self.sides(group), algorithms, strict=False)):
            ways.append(self._along(number, side, algorithm, operation, group, own_queues))
            own_queues += max(side.own_rings - 1, 0)
        return ways

    def _along(
        self,
        number: int,
        side: Side,
        algorithm: Algorithm,
        operation: Operation,
        group: GroupShape,
        own_queues: int,
    ) -> Way:
        in_group = not group.spans_system
        if algorithm.spans_system:
            whole = self._axes.of_all(group)
            return Way(number, side.dimension, group.members, algorithm, whole)
        along = Way(
            number, side.dimension, side.members, algorithm, self._axes.of_side(side, in_group=in_group)
        )
        is_round = algorithm.used_for(operation, self._fixes) == RING
        if side.blocks and not is_round:
            return along
        rings = self._axes.rings_of_side(side, in_group=in_group)
        return replace(along, rings=rings, own_rings=max(side.own_rings, 1), own_queues=own_queues)
