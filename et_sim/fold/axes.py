"""The surroundings of a rank: the others along the axes, and in the groups, of its collectives.

The members along an axis look the same from two places of a ring or a direct exchange if reading them round
from either gives the same colours; exchanges in pairs look the same if swapping halves, quarters, … does;
below a switch that reduces, all places look the same; in a tree every place differs. Members of one colour
only are the common case, and cost one comparison.

Neighbourhoods are distinguished by signatures of 64 bits, computed on whole columns. Different ones have
equal signatures with a probability of about 2^-64 a pair; `partition` checks its result once more with
another seed.

A group that spans the system runs along the system's axes. Ranks that number such groups differently, or lack
one, begin with different colours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import unique_rows
from et_sim.fold.path_keys import MessageColumns, PathKeys, are_alike, steps_along
from et_sim.plan.axes import SEVERAL_DIMENSIONS
from et_sim.plan.lowering import Lowering
from et_sim.plan.records import NO_AXIS
from et_sim.plan.splitmix import splitmix64


def rotations(words: Any, seed: int) -> Any:
    """Return the signature of every row of `words`, read round from each of its places (last axis)."""
    count = words.shape[-1]
    base = int(splitmix64(np.uint64(count), seed)) | 1  # odd, so it has an inverse
    with np.errstate(over="ignore"):
        powers = _powers(base, 2 * count)
        twice = np.concatenate((words, words), axis=-1) * powers
        sums = np.zeros((*words.shape[:-1], 2 * count + 1), np.uint64)
        np.cumsum(twice, axis=-1, out=sums[..., 1:])
        inverse = _powers(pow(base, -1, 1 << 64), count)
        return (sums[..., count : 2 * count] - sums[..., :count]) * inverse


def exchanges(words: Any, seed: int) -> Any:
    """Return the signature of every row of `words` for pairs of places at distances 1, 2, …."""
    count = words.shape[-1]
    place = np.arange(count)
    distance = 1
    with np.errstate(over="ignore"):
        while distance < count:
            partner = np.where(place // distance % 2 == 0, place + distance, place - distance)
            partner = np.minimum(partner, count - 1)
            words = splitmix64(words + splitmix64(words[..., partner], seed + distance), seed)
            distance *= 2
    return words


def _powers(base: int, count: int) -> Any:
    with np.errstate(over="ignore"):
        powers = np.full(count, base, np.uint64)
        powers[0] = 1
        return np.cumprod(powers, dtype=np.uint64)


class Pattern(Struct):
    """The way in which members along an axis exchange messages in some program."""

    shifts: bool = False
    pairs: bool = False
    places: bool = False  # every place has its own role
    together: bool = False  # all wait for all, in any order
    distances: frozenset[int] = frozenset()  # of shifts

    @property
    def goes_round(self) -> bool:
        """Return whether members send to others at fixed distances ahead of them."""
        return self.shifts or self.places

    def add(self, program: Any, steps: Any) -> None:
        """Add the messages of a program."""
        if program["joins"]:
            self.together = True
            return
        if program["tree_first"] >= 0:
            self.places = True
            return
        first = int(program["step_first"])
        used = steps["distance"][first : first + int(program["step_period"])]
        if program["pairs"]:
            self.pairs = True
        else:
            self.shifts = True
            self.distances |= frozenset(used.tolist())


def patterns_of_axes(lowering: Lowering) -> dict[tuple[int, int], Pattern]:
    """Return the patterns by axis and members; NO_AXIS for groups as they are listed.

    If one dimension has all NPUs, the axis through the whole system is the same line.
    """
    programs, axes = lowering.collectives.programs(), lowering.collectives.axes
    found: dict[tuple[int, int], Pattern] = {}
    phases = lowering.collectives.phases()
    pairs = unique_rows(phases["axis"], phases["program"])
    for axis, program in pairs.tolist():
        row = programs["programs"][program]
        in_order = axis if axis == NO_AXIS else axes.in_order(axis)
        key = (axes.in_one_dimension(in_order), int(row["members"]))
        found.setdefault(key, Pattern()).add(row, programs["steps"])
        found[key].places |= in_order != axis
    return found


def look_around(words: Any, pattern: Pattern, seed: int) -> Any:
    """Return signatures of the places along the last axis; `words` are their members' mixed colours."""
    out = np.zeros(words.shape, np.uint64)
    if pattern.places:
        place = splitmix64(np.arange(words.shape[-1]), seed + 1)
        with np.errstate(over="ignore"):
            out = out + (words * (place | np.uint64(1))).sum(axis=-1, keepdims=True) + place
    if (words == words[..., :1]).all():  # of one colour: all places look alike
        return out + words
    with np.errstate(over="ignore"):
        if pattern.shifts:
            out = out + rotations(words, seed)
        if pattern.pairs:
            out = out + exchanges(words, seed + 2)
        if pattern.together:
            out = out + splitmix64(words, seed + 3).sum(axis=-1, keepdims=True)
    return out


class SystemAxes:
    """The axes of dimensions, and the one through the whole system in rank order."""

    def __init__(
        self,
        lowering: Lowering,
        patterns: dict[tuple[int, int], Pattern],
        paths: PathKeys,
        *,
        shares_links: bool,
    ) -> None:
        grid, axes = lowering.machine.network.grid, lowering.collectives.axes
        self._paths, self._shares_links = paths, shares_links
        self._ranks = np.arange(grid.ranks)
        self._grids: list[tuple[int, int, Pattern]] = []  # stride, members, pattern
        self._with_paths: list[tuple[int, int, Pattern]] = []  # with paths that may differ
        for (axis, members), pattern in sorted(patterns.items(), key=lambda item: item[0]):
            if axis == NO_AXIS or axes[axis].in_group:
                continue
            through_all, stride = axis == len(grid.dimensions), axes[axis].stride
            self._grids.append((stride, members, pattern))
            if through_all and pattern.places:
                continue  # a tree through all ranks distinguishes all of them anyway
            if axes[axis].dimension == SEVERAL_DIMENSIONS or paths.differ_along_axes:
                self._with_paths.append((stride, members, pattern))

    def can_be_folded(self) -> bool:
        """Return whether the codes of paths determine them."""
        return all(
            steps_along(self._paths, self._lines(stride, members)) is not None
            or all(self._paths.can_be_folded(*ends) for *ends, _ in self._messages_along(number))
            for number, (stride, members, _) in enumerate(self._with_paths)
        )

    def messages(self) -> Iterator[MessageColumns]:
        """Yield all messages that ranks may send along these axes."""
        for number in range(len(self._with_paths)):
            yield from self._messages_along(number)

    def _messages_along(self, number: int) -> Iterator[MessageColumns]:
        stride, members, pattern = self._with_paths[number]
        place = self._ranks // stride % members
        for distance in _both_ways(pattern, members):
            peer = self._ranks + ((place + distance) % members - place) * stride
            yield MessageColumns(self._ranks, peer, number * self._ranks.size + distance)
        if pattern.pairs:  # some send ahead, others behind
            for distance, partner in _partners(members):
                peer = self._ranks + (partner[place] - place) * stride
                yield MessageColumns(self._ranks, peer, splitmix64(number * self._ranks.size + distance, 9))

    def _lines(self, stride: int, members: int) -> Any:
        """Return the ranks by line and place."""
        return np.moveaxis(self._ranks.reshape(-1, members, stride), 1, -1)

    def seen_paths(self) -> Any:
        """Return for each rank a number for its paths to others."""
        seen = np.zeros(len(self._ranks), np.uint64)
        for stride, members, pattern in self._with_paths:
            place = self._ranks // stride % members
            lines = self._lines(stride, members)
            steps = steps_along(self._paths, lines)
            if steps is not None and pattern.goes_round:
                with np.errstate(over="ignore"):
                    seen[lines] = splitmix64(seen[lines] + _read_round(steps), 5)
            for distance in _both_ways(pattern, members) if steps is None else ():
                peer = self._ranks + ((place + distance) % members - place) * stride
                seen = splitmix64(seen + splitmix64(self._paths.codes(self._ranks, peer), distance), 5)
            if pattern.pairs:
                code = self._paths.codes if pattern.shifts or self._shares_links else self._paths.costs
                for distance, partner in _partners(members):
                    peer = self._ranks + (partner[place] - place) * stride
                    seen = splitmix64(seen + splitmix64(code(self._ranks, peer), members + distance), 5)
        return seen

    def look(self, mixed: Any, seed: int) -> Any:
        """Return the signature of every rank's surroundings, given the mixed colours of all."""
        out = np.zeros(len(mixed), np.uint64)
        for number, (stride, members, pattern) in enumerate(self._grids):
            grid = np.moveaxis(mixed.reshape(-1, members, stride), 1, -1)
            seen = np.moveaxis(look_around(grid, pattern, seed + 16 * number), -1, 1).reshape(-1)
            with np.errstate(over="ignore"):
                out += splitmix64(seen, seed + number)
        return out


def _read_round(steps: Any) -> Any:
    """Return for each place a number for the steps round its line."""
    return rotations(splitmix64(steps, steps.shape[-1]), 21)


def _both_ways(pattern: Pattern, members: int) -> list[int]:
    """Return distances, forward, to every member that one exchanges messages with, except for pairs."""
    if pattern.places:
        return list(range(1, members))
    return sorted({way for d in pattern.distances for way in (d % members, -d % members)} - {0})


def _partners(members: int) -> list[tuple[int, Any]]:
    """Return distance and partners, by place, of exchanges in pairs."""
    place = np.arange(members)
    doubling = [1 << level for level in range(members.bit_length() - 1)]
    return [(d, np.where(place // d % 2 == 0, place + d, place - d) % members) for d in doubling]


class GroupAxes:
    """Groups that do not span the system: for every use of one by a template, its members, line by line."""

    def __init__(self, lowering: Lowering, patterns: dict[tuple[int, int], Pattern], paths: PathKeys) -> None:
        self._paths, self._ranks = paths, lowering.workload.ranks
        self._blocks: list[tuple[Any, Any, Pattern]] = []  # members (line x place), usage, pattern
        for name, usage_of_rank, members in _groups_in_use(lowering):
            for axis in (NO_AXIS, *_own_axes(lowering, name, members)):
                lines = lowering.collectives.switches.lines_of(axis, members)
                pattern = patterns.get((axis, lines.shape[1]))
                if pattern is not None:
                    usage = splitmix64(usage_of_rank[lines], axis - NO_AXIS)
                    self._blocks.append((lines, usage, pattern))

    def can_be_folded(self) -> bool:
        """Return whether the codes of paths determine them."""
        return are_alike(self._paths) or all(
            steps_along(self._paths, block[0]) is not None
            or all(self._paths.can_be_folded(*ends) for *ends, _ in _messages_within(*block))
            for block in self._blocks
        )

    def messages(self) -> Iterator[MessageColumns]:
        """Yield all messages that ranks may send within these groups."""
        for block in self._blocks:
            yield from _messages_within(*block)

    def seen_paths(self) -> Any:
        """Return for each rank a number for its paths to others."""
        seen, paths = np.zeros(self._ranks, np.uint64), self._paths
        if are_alike(paths):
            return seen
        with np.errstate(over="ignore"):
            for members, usage, pattern in self._blocks:
                odd = splitmix64(usage, 3) | np.uint64(1)
                steps = steps_along(paths, members)
                if steps is not None and pattern.goes_round:
                    np.add.at(seen, members, splitmix64(_read_round(steps), 1) * odd)
                for distance in _both_ways(pattern, members.shape[1]) if steps is None else ():
                    code = paths.codes(members, np.roll(members, -distance, axis=1))
                    np.add.at(seen, members, splitmix64(splitmix64(code, distance), 1) * odd)
                if pattern.pairs:
                    of_pair = paths.codes if paths.messages_queue or paths.shared_links else paths.costs
                    for distance, partner in _partners(members.shape[1]):
                        code = splitmix64(of_pair(members, members[:, partner]), members.shape[1] + distance)
                        np.add.at(seen, members, splitmix64(code, 2) * odd)
        return seen

    def look(self, mixed: Any, seed: int) -> Any:
        """Return the signature of every rank's surroundings in its groups."""
        out = np.zeros(len(mixed), np.uint64)
        for members, usage, pattern in self._blocks:
            with np.errstate(over="ignore"):
                words = splitmix64(mixed[members] + splitmix64(usage, seed), seed + members.shape[1])
                seen = splitmix64(look_around(words, pattern, seed) + splitmix64(usage, seed + 1), seed)
                np.add.at(out, members, seen)
        return out


def _messages_within(members: Any, usage: Any, pattern: Pattern) -> Iterator[MessageColumns]:
    """Yield all messages between members of groups: by line and place, with the usage of each."""
    for distance in _both_ways(pattern, members.shape[1]):
        peer = np.roll(members, -distance, axis=1)
        kinds = splitmix64(splitmix64(usage, members.shape[1]), distance)
        yield MessageColumns(members.reshape(-1), peer.reshape(-1), kinds.reshape(-1))
    if pattern.pairs:
        for distance, partner in _partners(members.shape[1]):
            kinds = splitmix64(splitmix64(usage, members.shape[1]) + np.uint64(1), distance)
            yield MessageColumns(members.reshape(-1), members[:, partner].reshape(-1), kinds.reshape(-1))


def _own_axes(lowering: Lowering, name: str, members: Any) -> list[int]:
    """Return the axes along which collectives of the groups of a name may run, if these are laid out."""
    groups, axes = lowering.groups, lowering.collectives.axes
    if not groups.are_laid_out:
        return []
    _, first = np.unique(groups.classes(name), return_index=True)
    shapes = [groups.shape(groups.row(name, int(rank))) for rank in members[first, 0]]
    found = [axes.of_side(side, in_group=True) for shape in shapes for side in shape.layout or ()]
    return list(dict.fromkeys([axes.of_all(shapes[0]), *found]))


def _groups_in_use(lowering: Lowering) -> list[tuple[str, Any, Any]]:
    """Return for each group its name, its number in each rank's template, and its members by place."""
    workload, groups = lowering.workload, lowering.groups
    names = sorted({name for used in lowering.used_groups for name in used if name})
    found = []
    for name in names:
        usage = np.array([used.index(name) if name in used else -1 for used in lowering.used_groups])
        usage_of_rank = usage[workload.template_of_rank]
        members = groups.all_of(name)
        if members.shape[1] < workload.ranks:
            found.append((name, usage_of_rank, members))
    return found


def numbers_of_spanning_groups(lowering: Lowering) -> Any:
    """Return for each template a number for its order of the groups of all ranks; equal if that is."""
    spanning = [
        name
        for name in sorted({name for used in lowering.used_groups for name in used})
        if _spans_system(lowering, name)
    ]
    known: dict[tuple[int, ...], int] = {}
    numbers = [
        known.setdefault(tuple(used.index(name) if name in used else -1 for name in spanning), len(known))
        for used in lowering.used_groups
    ]
    return np.array(numbers, np.int64)


def _spans_system(lowering: Lowering, name: str) -> bool:
    if lowering.groups.is_rule(name):
        return lowering.workload.group_rules[name].count == lowering.workload.ranks
    return lowering.groups.spans_system(lowering.groups.row(name, 0))
