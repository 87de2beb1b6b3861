"""An all-to-all with bytes for each pair -> chunks, and for each phase of a chunk who sends what to whom.

Chunks split what every pair has evenly. Phases go the way of the plain all-to-all: along a dimension, a rank
sends each member of its line all that it holds for ranks at that member's place, whosever it was. With equal
bytes for all pairs, these are the messages of the plain one.

Not here: the messages of a phase (`et_sim.collectives.uneven`), and in which order a chunk visits dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from et_sim.basics.errors import TraceError
from et_sim.plan.axes import Axis
from et_sim.plan.phases import Chunks
from et_sim.trace.splits import ATTRIBUTE


class Line(NamedTuple):
    """The members along an axis: for each rank, who is how many places ahead, and where it stands."""

    ahead: Any  # rank x distance
    place: Any


@dataclass(frozen=True, slots=True, eq=False)
class ExchangePhase:
    """What ranks send along a line, and what they hold before or after: the most of any."""

    to_ahead: Any  # rank x distance
    most: int


def line_of(axis: Axis | None, members: int, ring: Any = None) -> Line:
    """Of an axis of the system, perhaps in the order of a ring; None: of a group, whose members are it."""
    if axis is None:
        place = np.arange(members)
        return Line((place[:, None] + place) % members, place)
    rank, distance = np.arange(members), np.arange(axis.members)
    place = rank // axis.stride % axis.members
    order = distance if ring is None else np.asarray(ring)
    at = np.argsort(order)
    peer = order[(at[place][:, None] + distance) % axis.members]
    return Line(rank[:, None] + (peer - place[:, None]) * axis.stride, place)


def split_pairs(matrix: Any, splits: int) -> list[Chunks]:
    """Chunks that share what every pair has; of equal ones, how many, and the most that a member puts in."""
    count = min(splits, int(_between(matrix).max(initial=0)))
    runs: list[Chunks] = []
    ends = [*np.unique(matrix % count).tolist(), count] if count else []
    for begin, end in zip([0, *ends], ends, strict=False):
        if end > begin:
            runs.append(Chunks(end - begin, int(pairs_of_chunk(matrix, count, begin).sum(axis=1).max())))
    return runs


def pairs_of_chunk(matrix: Any, count: int, number: int) -> Any:
    """The bytes of every pair in a chunk; the first chunks hold what does not divide."""
    return matrix // count + (matrix % count > number)


def _between(matrix: Any) -> Any:
    """Without what members keep."""
    return matrix * ~np.eye(len(matrix), dtype=bool)


def pass_along(held: Any, line: Line) -> tuple[ExchangePhase, Any]:
    """What ranks send along a line of what they hold for each rank, and what they hold then."""
    places = line.ahead.shape[1]
    ranks = np.arange(len(held))
    by_place = np.argsort(line.place, kind="stable")
    starts = np.searchsorted(line.place[by_place], np.arange(places))
    for_place = np.add.reduceat(held[:, by_place], starts, axis=1)  # rank x place
    to_ahead = for_place[ranks[:, None], line.place[line.ahead]]
    of_line = np.zeros_like(held)
    for distance in range(places):
        of_line += held[line.ahead[:, distance]]
    stays = line.place[:, None] == line.place[None, :]
    after = np.where(stays, of_line, 0)
    most = max(int(held.sum(axis=1).max()), int(after.sum(axis=1).max()))
    return ExchangePhase(to_ahead, most), after


def refuse_partial(held: Any) -> None:
    """Refuse bytes that never reach whom they are for, because a dimension takes no part."""
    source, target = np.nonzero(_between(held))
    if len(source):
        raise TraceError(
            f"an all-to-all with {ATTRIBUTE} has bytes for rank {int(target[0])} that involved_dim, or the"
            " list of algorithms, keeps from getting there",
            remedy="let all dimensions take part, or use a communicator group instead of involved_dim",
        )
