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
from et_sim.fold.groups_in_use import axes_in_use, groups_in_use
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
        key = (axes.in_one_dimension(axis), int(row["members"]))
        found.setdefault(key, Pattern()).add(row, programs["steps"])
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


class LinesOfRanks(Struct, frozen=True, eq=False):
    """Equal lines of all ranks, and the way in which members along them exchange messages."""

    stride: int
    members: int
    ring: Any  # places round a ring with an order of its own; None: in ascending order
    pattern: Pattern

    def along(self, values: Any) -> Any:
        """Return the values of ranks by line and place."""
        lines = np.moveaxis(values.reshape(-1, self.members, self.stride), 1, -1)
        return lines if self.ring is None else lines[..., self.ring]

    def of_ranks(self, values: Any) -> Any:
        """Return the values by rank of values by line and place."""
        values = values if self.ring is None else values[..., np.argsort(self.ring)]
        return np.moveaxis(values, -1, 1).reshape(-1)


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
        self._grids: list[LinesOfRanks] = []
        self._with_paths: list[LinesOfRanks] = []  # with paths that may differ
        for (axis, members), pattern in sorted(patterns.items(), key=lambda item: item[0]):
            if axis == NO_AXIS or axes[axis].in_group:
                continue
            through_all = axis == len(grid.dimensions)
            line = LinesOfRanks(axes[axis].stride, members, _ring_of(lowering, axis), pattern)
            self._grids.append(line)
            if through_all and pattern.places:
                continue  # a tree through all ranks distinguishes all of them anyway
            if axes[axis].dimension == SEVERAL_DIMENSIONS or paths.differ_along_axes:
                self._with_paths.append(line)

    def can_be_folded(self) -> bool:
        """Return whether the codes of paths determine them."""
        return all(
            steps_along(self._paths, line.along(self._ranks)) is not None
            or all(self._paths.can_be_folded(*ends) for *ends, _ in self._messages_along(number))
            for number, line in enumerate(self._with_paths)
        )

    def messages(self) -> Iterator[MessageColumns]:
        """Yield all messages that ranks may send along these axes."""
        for number in range(len(self._with_paths)):
            yield from self._messages_along(number)

    def _messages_along(self, number: int) -> Iterator[MessageColumns]:
        line = self._with_paths[number]
        lines = line.along(self._ranks)
        for distance, are_pairs, peers in _exchanged(lines, line.pattern):  # of pairs, some send behind
            kind: Any = number * self._ranks.size + distance
            kind = splitmix64(kind, 9) if are_pairs else kind
            yield MessageColumns(lines.reshape(-1), peers.reshape(-1), kind)

    def seen_paths(self) -> Any:
        """Return for each rank a number for its paths to others."""
        seen = np.zeros(len(self._ranks), np.uint64)
        for line in self._with_paths:
            pattern, lines = line.pattern, line.along(self._ranks)
            steps = steps_along(self._paths, lines)
            if steps is not None and pattern.goes_round:
                with np.errstate(over="ignore"):
                    seen[lines] = splitmix64(seen[lines] + _read_round(steps), 5)
            by_link = pattern.shifts or self._shares_links
            for distance, are_pairs, peers in _exchanged(lines, pattern):
                if are_pairs:
                    code = (self._paths.codes if by_link else self._paths.costs)(lines, peers)
                    seen[lines] = splitmix64(seen[lines] + splitmix64(code, line.members + distance), 5)
                elif steps is None:
                    code = splitmix64(self._paths.codes(lines, peers), distance)
                    seen[lines] = splitmix64(seen[lines] + code, 5)
        return seen

    def look(self, mixed: Any, seed: int) -> Any:
        """Return the signature of every rank's surroundings, given the mixed colours of all."""
        out = np.zeros(len(mixed), np.uint64)
        for number, line in enumerate(self._grids):
            seen = line.of_ranks(look_around(line.along(mixed), line.pattern, seed + 16 * number))
            with np.errstate(over="ignore"):
                out += splitmix64(seen, seed + number)
        return out


def _ring_of(lowering: Lowering, axis: int) -> Any:
    """Return the places round an axis that is a ring with an order of its own; None for others."""
    axes = lowering.collectives.axes
    return np.array(axes[axis].ring) if axes.is_ring(axis) else None


def _read_round(steps: Any) -> Any:
    """Return for each place a number for the steps round its line."""
    return rotations(splitmix64(steps, steps.shape[-1]), 21)


def _exchanged(lines: Any, pattern: Pattern) -> Iterator[tuple[int, bool, Any]]:
    """Yield distances at which members of lines (the last axis) exchange messages, whether these are pairs,
    and the peers of all members there.
    """
    for distance in _both_ways(pattern, lines.shape[-1]):
        yield distance, False, np.roll(lines, -distance, axis=-1)
    for distance, partner in _partners(lines.shape[-1]) if pattern.pairs else ():
        yield distance, True, lines[..., partner]


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
        template_of_rank, used = lowering.workload.template_of_rank, axes_in_use(lowering)
        for name, usage_of_rank, members in groups_in_use(lowering):
            for axis, templates in used.get(name, {}).items():
                using = members[templates[template_of_rank][members].any(axis=1)]
                lines = lowering.collectives.switches.lines_of(axis, using)
                ring = _ring_of(lowering, axis)
                lines = lines if ring is None else lines[:, ring]
                usage = splitmix64(usage_of_rank[lines], axis - NO_AXIS)
                self._blocks.append((lines, usage, patterns[axis, lines.shape[1]]))

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
        of_pair = paths.codes if paths.messages_queue or paths.shared_links else paths.costs
        with np.errstate(over="ignore"):
            for members, usage, pattern in self._blocks:
                odd = splitmix64(usage, 3) | np.uint64(1)
                steps = steps_along(paths, members)
                if steps is not None and pattern.goes_round:
                    np.add.at(seen, members, splitmix64(_read_round(steps), 1) * odd)
                for distance, are_pairs, peers in _exchanged(members, pattern):
                    if are_pairs:
                        code = splitmix64(of_pair(members, peers), members.shape[1] + distance)
                        np.add.at(seen, members, splitmix64(code, 2) * odd)
                    elif steps is None:
                        code = splitmix64(paths.codes(members, peers), distance)
                        np.add.at(seen, members, splitmix64(code, 1) * odd)
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
    of_line = splitmix64(usage, members.shape[1])
    for distance, are_pairs, peers in _exchanged(members, pattern):
        kinds = splitmix64(of_line + np.uint64(are_pairs), distance)
        yield MessageColumns(members.reshape(-1), peers.reshape(-1), kinds.reshape(-1))
