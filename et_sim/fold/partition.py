"""The ranks that cannot differ: the coarsest equitable partition of the ranks.

Ranks begin with the colour of their program, and are distinguished by the colours of those they exchange
messages with (in sends and receives, on axes of collectives, in groups), by the paths there, and by the
places they have with each other, until nothing changes. Ranks of one colour then see the same messages at the
same times; only the order of events of one rank within a nanosecond could still differ, and the engine checks
that (`engine.observe.ties`).

Where messages share links fairly, links are distinguished by the messages on them, and ranks by the links
that their messages take, by turns.

Some plans are not folded at all, because ranks share more than messages: custom collectives, the shared
memory bus, and on the link model, or where links differ in speed, everything that crosses links of third
ranks; switches that reduce, where messages wait for links, or where members pay differently.

Ranks that send other bytes to their peers, or get other bytes from them, are not alike. In an all-to-all with
bytes for each pair, and in a library's broadcasts and reduces, members have bytes of their own. Two of them
are alike only if they send and receive the same in every step; whether their peers in these steps are alike,
too, is found as for all other exchanges (`axes`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.unique import unique, unique_rows
from et_sim.fold.axes import (
    GroupAxes,
    Pattern,
    SystemAxes,
    patterns_of_axes,
)
from et_sim.fold.groups_in_use import PhasesOfCollectives, numbers_of_spanning_groups
from et_sim.fold.limits import CUSTOM, SHARED_BUS, SWITCHES, UNFOLDED_MODEL, WAYS, limits_of
from et_sim.fold.path_keys import MessageColumns, PathKeys
from et_sim.fold.shapes import shapes_of_templates
from et_sim.memory import NO_SERVER
from et_sim.plan.lowering import Lowering
from et_sim.plan.members import Actors
from et_sim.plan.records import NO_AXIS, Action, FoldLimit
from et_sim.plan.slow_spans import classes_of_ranks
from et_sim.plan.splitmix import splitmix64
from et_sim.plan.switch_tables import can_be_folded


def sizes_of_ranks(lowering: Lowering) -> Any:
    """Return for each rank a number for the bytes that its steps send and receive; None if no rank has own
    steps.
    """
    collectives = lowering.collectives
    if not collectives.have_own_steps:
        return None
    own = _OwnPrograms(lowering)
    seen = np.zeros(lowering.workload.ranks, np.uint64)
    for template, names in enumerate(lowering.used_groups):
        row = lowering.templates[template]
        nodes = lowering.nodes[int(row.node_first) : int(row.node_first) + int(row.nodes)]
        nodes = nodes[nodes["action"] == Action.COLLECTIVE]
        uses = unique_rows(nodes["member"], nodes["detail"])
        ranks = np.flatnonzero(lowering.workload.template_of_rank == template)
        for usage, detail in uses.tolist():
            sizes = own.of_members(detail)
            if sizes is not None:
                mixed = splitmix64(sizes[_places(lowering, names[usage], ranks)] + np.uint64(detail), usage)
                with np.errstate(over="ignore"):
                    seen[ranks] += mixed
    return seen


def _places(lowering: Lowering, name: str, ranks: Any) -> Any:
    """Return the places of ranks in the groups of a name; in one of all ranks, their own numbers."""
    members = lowering.groups.all_of(name)
    if members.shape[1] == lowering.workload.ranks:
        return ranks
    place = np.zeros(lowering.workload.ranks, np.int64)
    place[members] = np.arange(members.shape[1])
    return place[ranks]


class _OwnPrograms:
    """Signatures of members, by the collective's row."""

    def __init__(self, lowering: Lowering) -> None:
        self._phases, self._tables = PhasesOfCollectives(lowering), lowering.collectives.programs()
        self._of_program: dict[int, Any] = {}

    def of_members(self, collective: int) -> Any:
        """Return a number for each member; None if its phases have no steps of members."""
        used = unique(self._phases.of(collective)["program"]).tolist()
        programs = [program for program in used if self._has_own(program)]
        if not programs:
            return None
        with np.errstate(over="ignore"):
            return sum((self._signature(program) for program in programs), np.uint64(0))

    def _has_own(self, program: int) -> bool:
        return bool(self._tables["programs"]["own_steps"][program])

    def _signature(self, program: int) -> Any:
        if program not in self._of_program:
            row = self._tables["programs"][program]
            first, blocks = int(row["step_first"]), int(row["own_steps"])
            steps = self._tables["steps"][first : first + blocks * int(row["step_period"])]
            sizes = np.stack((steps["bytes"], steps["incoming"]), axis=1).reshape(blocks // 2, -1)
            with np.errstate(over="ignore"):
                column = splitmix64(np.arange(sizes.shape[1]), program + 1)
                self._of_program[program] = splitmix64(sizes.astype(np.uint64) + column, 11).sum(axis=1)
        return self._of_program[program]


NO_SLOT = -1
LEAST_ROUNDS, MOST_ROUNDS, RANKS_IN_ALL_ROUNDS = 24, 256, 1 << 22
MOST_ACTORS_PER_RANK = 0.75


def fold(lowering: Lowering, paths: PathKeys | None) -> Actors:
    """Return the actors of a workload; `paths` has the path keys of the network model, None: never fold."""
    obstacle = _obstacle(lowering, paths)
    if paths is None or obstacle is not None:
        return Actors.one_per_rank(lowering.workload.ranks, () if obstacle is None else (obstacle,))
    shapes = shapes_of_templates(lowering)
    colours = _first_colours(lowering, shapes)
    patterns = patterns_of_axes(lowering)
    actors = Actors.one_per_rank(lowering.workload.ranks)
    if len(unique(colours)) < len(actors):
        sights = _Sights(lowering, patterns, paths)
        if not sights.can_be_folded():
            over = _over_links(paths)
            if over is None:
                return replace(actors, limits=(WAYS,))
            sights = _Sights(lowering, patterns, over)
        actors = _coarsest(colours, sights) or actors
    return replace(actors, limits=limits_of(lowering, patterns, shapes, len(actors)))


def _obstacle(lowering: Lowering, paths: PathKeys | None) -> FoldLimit | None:
    """Return the reason why no rank can be folded, whatever it does; None if there is none."""
    if paths is None:
        return UNFOLDED_MODEL
    if lowering.customs.are_used:
        return CUSTOM
    if lowering.machine.system.shared_bus is not None:
        return SHARED_BUS
    return None if _can_fold_switches(lowering, paths) else SWITCHES


def _over_links(paths: PathKeys) -> PathKeys | None:
    """Return keys that cover links of third ranks, if the model has them."""
    made = getattr(paths, "over_links", None)  # other models may lack the method
    return None if made is None else made()


class _Sights:
    """The surroundings of ranks: axes of the system, groups, and sends and receives."""

    def __init__(self, lowering: Lowering, patterns: dict[tuple[int, int], Pattern], paths: PathKeys) -> None:
        self.shared_links = paths.shared_links
        self._sent = _PointToPoint(lowering, paths)
        shares_links = paths.messages_queue and (self._sent.are_any or _cross_axes(lowering, patterns))
        self._system = SystemAxes(
            lowering, patterns, paths, shares_links=shares_links or paths.shared_links is not None
        )
        self._groups = GroupAxes(lowering, patterns, paths)
        self._all = self._system, self._groups, self._sent

    def can_be_folded(self) -> bool:
        """Return whether the codes of paths determine them."""
        return all(sight.can_be_folded() for sight in self._all)

    def messages(self) -> Iterator[MessageColumns]:
        """Yield all messages that ranks may send."""
        return itertools.chain.from_iterable(sight.messages() for sight in self._all)

    def refinement(self) -> Callable[[Any, int], Any]:
        """Return the function that refines colours, with the present codes of paths."""
        system, groups, messages = self._all
        fixed = splitmix64(groups.seen_paths() + messages.seen_paths() + system.seen_paths(), 5)

        def refined(colours: Any, seed: int) -> Any:
            mixed = splitmix64(colours, seed)
            with np.errstate(over="ignore"):
                seen = splitmix64(system.look(mixed, seed), 1) + splitmix64(groups.look(mixed, seed), 2)
                seen += splitmix64(messages.look(mixed, seed), 3) + splitmix64(fixed, 4) + mixed
            return np.unique(splitmix64(seen, seed), return_inverse=True)[1].reshape(-1)

        return refined


def _coarsest(colours: Any, sights: _Sights) -> Actors | None:
    """Return the fewest actors for ranks of different first colours; None if hardly any two are alike."""
    shared = sights.shared_links
    while True:
        classes = _refine_until_stable(colours, sights.refinement())
        if classes is None:
            return None
        if shared is None:
            return Actors.of_classes(classes)
        if shared.separate(sights.messages(), classes):
            colours = classes
            continue
        colours = shared.split(sights.messages(), classes)
        if colours is None:
            actors = Actors.of_classes(classes, shared.classes())
            return replace(actors, link_turns=shared.turns_of(sights.messages(), actors.of_rank))


def _refine_until_stable(colours: Any, refined: Callable[[Any, int], Any]) -> Any:
    """Refine until two different seeds in a row distinguish no more ranks.

    Return None if that is not worth while, because hardly any two ranks are alike, or because a difference
    spreads from neighbour to neighbour through a long chain of ranks.
    """
    rounds = max(LEAST_ROUNDS, min(MOST_ROUNDS, RANKS_IN_ALL_ROUNDS // len(colours)))
    count, quiet = len(unique(colours)), 0
    for seed in range(1, rounds + 1):
        colours = refined(colours, seed)
        found = int(colours.max()) + 1
        quiet = quiet + 1 if found == count else 0
        count = found
        if count > MOST_ACTORS_PER_RANK * len(colours):
            return None
        if quiet == 2:
            return colours
    return None


def _can_fold_switches(lowering: Lowering, paths: PathKeys) -> bool:
    """Return whether actors can represent ranks on switches that reduce, if there are any."""
    collectives = lowering.collectives
    if not collectives.switches.axes and not collectives.switches.groups:
        return True
    grid = lowering.machine.network.grid
    meets_others = paths.messages_queue or paths.shared_links is not None
    return not meets_others and can_be_folded(collectives, grid)


def _cross_axes(lowering: Lowering, patterns: dict[tuple[int, int], Pattern]) -> bool:
    """Return whether collectives run along axes that may use the links of any dimension, beside others.

    These are axes of groups, and those through several dimensions or the whole system.
    """
    axes, dimensions = lowering.collectives.axes, len(lowering.machine.network.grid.dimensions)
    in_groups = any(axis == NO_AXIS or axes[axis].in_group for axis, _ in patterns)
    return in_groups or (len(patterns) > 1 and any(axis >= dimensions for axis, _ in patterns))


def _first_colours(lowering: Lowering, shapes: Any) -> Any:
    """Return colours by program, groups, pace and start; ranks that share or jointly request memory
    differ.
    """
    ranks = lowering.workload.ranks
    colours = shapes * len(lowering.workload.templates)
    colours += numbers_of_spanning_groups(lowering)
    colours = colours[lowering.workload.template_of_rank]
    shares = (lowering.memory_server != NO_SERVER) | lowering.joint.are_any
    if shares.any():
        asks = np.zeros(len(lowering.workload.templates), bool)
        for template in range(len(asks)):
            row = lowering.templates[template]
            first = int(row.node_first)
            nodes = lowering.nodes["action"][first : first + int(row.nodes)]
            asks[template] = bool((nodes == Action.MEMORY).any())
        which = shares & asks[lowering.workload.template_of_rank]
        colours = np.where(which, len(asks) ** 2 + np.arange(ranks), colours)
    sizes = sizes_of_ranks(lowering)
    if sizes is not None:
        different, of_rank = np.unique(sizes, return_inverse=True)
        colours = colours * len(different) + of_rank.reshape(-1)
    if lowering.variants.paces.are_any:
        paces, of_rank = np.unique(lowering.variants.paces.first, return_inverse=True)
        colours = colours * len(paces) + of_rank.reshape(-1)
    if lowering.machine.slow:
        slow = classes_of_ranks(lowering.machine.slow, ranks)
        colours = colours * (int(slow.max()) + 1) + slow
    if lowering.variants.start_ns is not None:
        starts, late = np.unique(lowering.variants.start_ns, return_inverse=True)
        colours = colours * len(starts) + late.reshape(-1)
    return colours


class _PointToPoint:
    """Sends and receives: every rank's peers, slot by slot."""

    def __init__(self, lowering: Lowering, paths: PathKeys) -> None:
        ranks = lowering.workload.ranks
        self._owner, self._slot, self._peer = _peers_of_ranks(lowering)
        self.are_any = len(self._owner) > 0
        self._back = _slots_back(self._owner, self._slot, self._peer, ranks)
        self._paths, self._ranks = paths, ranks
        self._edge: Any = None

    def can_be_folded(self) -> bool:
        """Return whether the codes of paths determine them."""
        return self._paths.can_be_folded(self._owner, self._peer)

    def messages(self) -> Iterator[MessageColumns]:
        """Yield all messages of sends and receives."""
        kinds = splitmix64(splitmix64(self._slot, 6) + splitmix64(self._back, 7), 8)
        yield MessageColumns(self._owner, self._peer, kinds)

    def seen_paths(self) -> Any:
        """Return for each rank a number for its paths to others."""
        code = self._paths.codes(self._owner, self._peer)
        with np.errstate(over="ignore"):
            self._edge = splitmix64(
                splitmix64(splitmix64(code, 1) + self._slot.astype(np.uint64), 2) + splitmix64(self._back, 3),
                4,
            )
        return self._sum(self._edge)

    def _sum(self, values: Any) -> Any:
        out = np.zeros(self._ranks, np.uint64)
        np.add.at(out, self._owner, values)
        return out

    def look(self, mixed: Any, seed: int) -> Any:
        """Return the signature of each rank's peers in sends and receives."""
        with np.errstate(over="ignore"):
            return self._sum(splitmix64(mixed[self._peer] + self._edge, seed))


def _peers_of_ranks(lowering: Lowering) -> tuple[Any, Any, Any]:
    """Return rank, slot and peer of every send and receive of any rank."""
    workload = lowering.workload
    endpoints = lowering.endpoints
    rank = np.argsort(workload.template_of_rank, kind="stable")
    template = workload.template_of_rank[rank]
    count = endpoints.slots[template]
    of = np.repeat(np.arange(len(rank)), count)
    slot = np.arange(len(of)) - (np.cumsum(count) - count)[of]
    owner, peer = rank[of], endpoints.peers[endpoints.slot_first[template[of]] + slot]
    return owner, slot, np.where(endpoints.relative[template[of]], (peer + owner) % workload.ranks, peer)


def _slots_back(owner: Any, slot: Any, peer: Any, ranks: int) -> Any:
    """Return the slot of each rank at its peer; NOT_KNOWN if it has none there."""
    if not len(owner):
        return owner
    key, wanted = owner * ranks + peer, peer * ranks + owner
    order = np.argsort(key)
    at = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
    found = order[at]
    return np.where(key[found] == wanted, slot[found], NO_SLOT)
