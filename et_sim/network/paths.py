"""Keys of the paths between ranks: paths with equal keys take equal times when idle.

Where links of a grid queue messages or differ in speed, keys cover only paths that use no links but those of
their two ends. Ranks with other paths are not folded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import unique
from et_sim.compiled.entry_points import entry
from et_sim.compiled.tables_by_reference import Tables, in_module
from et_sim.engine.containers import NONE
from et_sim.fold.path_keys import LinkTurns, MessageColumns, PathKeys, SharedLinks
from et_sim.machine.model import (
    AT_SWITCH,
    Dimension,
    DimensionShape,
    GridFabric,
    Level,
    LevelFabric,
    strides_of,
)
from et_sim.network.fabric import WAY_FIELDS, is_wired_to_itself, set_out, take_hop
from et_sim.network.ways import FIRST_PORTS, SplitTables, no_split
from et_sim.plan.records import record, table
from et_sim.plan.splitmix import splitmix64

Tier = TypeVar("Tier", Dimension, Level)
WALKER = record(*WAY_FIELDS, ("target", "i4"))


class SimplePaths(PathKeys):
    """Paths on which no message waits for another, and whose codes describe them completely."""

    shared_links: SharedLinks | None = None
    differ_along_axes = True
    messages_queue = False

    def costs(self, source: Any, target: Any) -> Any:
        """Return the codes, because a source has no other links to choose from."""
        return self.codes(source, target)

    def can_be_folded(self, _source: Any, _target: Any) -> bool:
        """Return true: a code describes a path completely."""
        return True

    def over_links(self) -> None:
        """Return None, as codes describe all paths."""


class LevelPaths(SimplePaths):
    """Paths over the levels of ASTRA-sim 1.0: the highest level in which the ends differ, and the
    hops there.
    """

    def __init__(self, fabric: LevelFabric) -> None:
        self._levels = fabric.levels
        self.differ_along_axes = fabric.is_cut

    def codes(self, source: Any, target: Any) -> Any:
        """Return a number for the path of each pair."""
        code = np.zeros(np.broadcast(source, target).shape, np.int64)
        for number, level, ahead in places_ahead(self._levels, source, target):
            hops = _hops(level, ahead)
            code = np.where(hops > 0, hops * len(self._levels) + number, code)
        return code


class GridPaths:
    """Paths through a grid.

    `on_links`: messages queue for links. `whole`: messages pay for all dimensions they cross, not for the
    lowest one only.
    """

    shared_links: SharedLinks | None = None

    def __init__(
        self,
        fabric: GridFabric,
        *,
        on_links: bool,
        whole: bool,
        over_links: Callable[[], PathKeys | None] = lambda: None,
    ) -> None:
        self.over_links = over_links
        self._fabric, self.messages_queue, self._whole = fabric, on_links, whole
        # Two pairs of ranks equally far apart along one dimension may then have different paths.
        self._are_directed = self.differ_along_axes = on_links or bool(fabric.links)
        self._uneven = _UnevenLinks(fabric) if fabric.links else None
        shapes = [dimension.shape for dimension in fabric.dimensions]
        self.are_alike = not self._are_directed and len(shapes) == 1 and shapes[0] is not DimensionShape.RING

    def codes(self, source: Any, target: Any) -> Any:
        """Return a number for the path of each pair there and, where links differ, back."""
        if not (self._whole or self._are_directed):
            return self._lowest_distance(source, target)
        code = self._distances(source, target, directed=self._are_directed)
        return self._with_speeds(self._with_order(code, source, target), source, target)

    def costs(self, source: Any, target: Any) -> Any:
        """Return codes that do not depend on which of its links each source takes."""
        if self._whole:
            code = self._with_order(self._distances(source, target, directed=False), source, target)
        else:
            code = self._lowest_distance(source, target)
        return self._with_speeds(code, source, target)

    def _with_order(self, code: Any, source: Any, target: Any) -> Any:
        """Return codes with bits for ways, there and back, that begin with the other node, as the NPU on the
        usual way is not there.
        """
        if not self._fabric.filled:
            return code
        return 4 * code + 2 * self._leaves_first(source, target) + self._leaves_first(target, source)

    def _leaves_first(self, source: Any, target: Any) -> Any:
        node = self._fabric.dimensions[0].npus
        return source // node * node + target % node >= self._fabric.ranks

    def _with_speeds(self, code: Any, source: Any, target: Any) -> Any:
        if self._uneven is None:
            return code
        there, back = self._uneven.on_path(source, target), self._uneven.on_path(target, source)
        with np.errstate(over="ignore"):
            return splitmix64(splitmix64(splitmix64(code, 0) + there, 0) + back, 0)

    def can_be_folded(self, source: Any, target: Any) -> bool:
        """Return whether the codes of these pairs describe their paths completely."""
        if not self._are_directed:
            return True
        has_one_link = self._has_one_link(source, target)
        if self.messages_queue:
            return bool(has_one_link.all())
        uneven = {link.dimension for link in self._fabric.links}
        touched = np.zeros(has_one_link.shape, bool)
        for number, _, ahead in places_ahead(self._fabric.dimensions, source, target):
            if number in uneven:
                touched |= ahead != 0
        return bool((has_one_link | ~touched).all())

    def steps(self, lines: Any) -> Any:
        """Return numbers of the paths from each member of a line to the next one if each of these has one
        link.

        That requires queues, members that differ in one dimension, and a dimension other than a ring:
        distances add up among fully connected NPUs, and behind a switch all paths are alike. Return None
        otherwise.
        """
        if not self.messages_queue or self._uneven is not None:
            return None
        steps = None
        for _, dimension, ahead in places_ahead(self._fabric.dimensions, lines, np.roll(lines, -1, axis=-1)):
            if ahead.any():
                if steps is not None or dimension.shape is DimensionShape.RING:
                    return None
                steps = np.zeros_like(ahead) if dimension.shape is DimensionShape.SWITCH else ahead
        return steps

    def _distances(self, source: Any, target: Any, *, directed: bool) -> Any:
        """Return a number for the hops of each pair per dimension, or for the places it advances
        (`directed`).

        Behind a switch all NPUs are equally far: a message takes its source's link up and its target's link
        down.
        """
        code = np.zeros(np.broadcast(source, target).shape, np.int64)
        for _, dimension, ahead in places_ahead(self._fabric.dimensions, source, target):
            is_ahead = directed and dimension.shape is not DimensionShape.SWITCH
            code = code * dimension.npus + (ahead if is_ahead else _hops(dimension, ahead))
        return code

    def _lowest_distance(self, source: Any, target: Any) -> Any:
        """Return a number for the lowest dimension in which each pair differs, and the hops there."""
        dimensions = self._fabric.dimensions
        code = np.zeros(np.broadcast(source, target).shape, np.int64)
        for number, dimension, ahead in places_ahead(dimensions, source, target):
            hops = _hops(dimension, ahead)
            code = np.where((code == 0) & (hops > 0), hops * len(dimensions) + number, code)
        return self._with_order(code, source, target)

    def _has_one_link(self, source: Any, target: Any) -> Any:
        """Return whether a message uses only links of its two ends: one dimension, and one hop or
        a switch.
        """
        legs = np.zeros(np.broadcast(source, target).shape, np.int64)
        longest = np.zeros(legs.shape, np.int64)
        for _, dimension, ahead in places_ahead(self._fabric.dimensions, source, target):
            legs += ahead != 0
            if dimension.shape is DimensionShape.RING:
                longest = np.maximum(longest, _hops(dimension, ahead))
        return (legs == 1) & (longest <= 1)


class _UnevenLinks:
    """Numbers for the speeds of links, found by the pairs of ranks whose messages cross them."""

    def __init__(self, fabric: GridFabric) -> None:
        self._fabric = fabric
        speeds = sorted({(link.bandwidth, link.latency_ns) for link in fabric.links})
        pairs = []
        self._up: dict[int, Any] = {}  # per Switch dimension: by NPU; 0: like the others
        self._down: dict[int, Any] = {}
        for link in fabric.links:
            speed = 1 + speeds.index((link.bandwidth, link.latency_ns))
            if fabric.dimensions[link.dimension].shape is not DimensionShape.SWITCH:
                pairs.append((link.source * self._fabric.ranks + link.target, speed))
                continue
            for numbers in (self._up, self._down):
                numbers.setdefault(link.dimension, np.zeros(self._fabric.ranks, np.int64))
            if link.target == AT_SWITCH:
                self._up[link.dimension][link.source] = speed
            else:
                self._down[link.dimension][link.target] = speed
        self._pair, self._speed = np.array(sorted(pairs), np.int64).reshape(-1, 2).T

    def on_path(self, source: Any, target: Any) -> Any:
        """Return a number for the speeds on each path that has one link, or a switch."""
        pair = source * self._fabric.ranks + target
        codes = np.zeros(np.broadcast(source, target).shape, np.uint64)
        if len(self._pair):
            at = np.minimum(np.searchsorted(self._pair, pair), len(self._pair) - 1)
            codes += splitmix64(np.where(self._pair[at] == pair, self._speed[at], 0), 1)
        with np.errstate(over="ignore"):
            for number, up in self._up.items():
                dimension, stride = self._fabric.dimensions[number], self._fabric.strides[number]
                crosses = (target // stride - source // stride) % dimension.npus != 0
                speeds = splitmix64(up[source], 2) + splitmix64(self._down[number][target], 3)
                codes += np.where(crosses, splitmix64(speeds, 4 + number), np.uint64(0))
        return codes


def places_ahead(tiers: Sequence[Tier], source: Any, target: Any) -> Iterator[tuple[int, Tier, Any]]:
    """Yield the number of each dimension or level, the tier, and the places from each source to its target
    there.

    Where that is not 0, a message may have a leg: `next_leg` of a grid takes the first, of levels the last.
    """
    for number, (tier, stride) in enumerate(zip(tiers, strides_of(tiers), strict=True)):
        yield number, tier, (target // stride - source // stride) % tier.npus


def in_order(numbers: Any) -> Any:
    """Return a number for each row, equal where the given ones are, from 0 in the order of first use."""
    _, first, of_row = np.unique(numbers, return_index=True, return_inverse=True)
    place = np.empty(len(first), np.int32)
    place[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return place[of_row.reshape(-1)]


def _hops(dimension: Dimension | Level, ahead: Any) -> Any:
    if dimension.shape is DimensionShape.RING:
        return np.minimum(ahead, dimension.npus - ahead)
    return np.minimum(ahead, 1)


class _Journeys(Tables, Struct, frozen=True):
    """Paths to walk, for compiled code."""

    hops: Any  # `Wires`
    message: Any  # the message that walks them
    sources: Any
    targets: Any
    links: Any  # by path
    longest: Any
    ways: Any  # `SplitTables`
    shares: Any  # by path: the share of the message on each link; empty: messages are not split
    depths: Any  # by path: the links that the message took before each


class PathLinks(NamedTuple):
    """The links of paths, a row each, filled up with NONE."""

    links: Any
    marks: Any = None  # distance and share of each link on its path; None: a message takes one path


class LinkPaths(SimplePaths):
    """Paths described by the classes of their links in order.

    A message that is split has several paths: the order of links at one distance from its source does not
    count.

    Where messages share links (`are_shared`), classes are refined step by step. Links begin with the class of
    their figures. They are then separated by the messages on them: by the kinds, the colours of the ends and
    the paths of these; and paths by the classes of their links. When neither ranks nor links can be separated
    further, equal links carry equal messages at equal times, because rates depend only on which messages
    cross which links (`docs/folding.md`).
    """

    def __init__(
        self,
        hops: Any,
        kinds: Any,
        most_links: int,
        *,
        are_shared: bool = False,
        goes_back: bool = False,
        ways: SplitTables | None = None,
        later: tuple[Routed, ...] = (),
    ) -> None:
        self._classes, self._goes_back = in_order(np.asarray(kinds)).astype(np.uint64), goes_back
        ways = no_split() if ways is None else ways
        self._over_time = (Routed(hops, ways, len(ways.link) or most_links), *later)
        self._walked: dict[tuple[bytes, bytes], PathLinks] = {}  # of few messages, which come again
        self._kept = 0  # links of these
        self.shared_links = self if are_shared else None

    def codes(self, source: Any, target: Any) -> Any:
        """Return a number for the links of the way there, and of the way back, in their order."""
        source, target = np.broadcast_arrays(source, target)
        there, back = self._code(source, target), self._code(target, source)
        with np.errstate(over="ignore"):
            there = splitmix64(there, 0) + self.beside(source, target).reshape(-1)
            return splitmix64(there + back, 0).reshape(source.shape)

    def beside(self, source: Any, target: Any) -> Any:  # noqa: ARG002
        """Return a number for each pair besides its links."""
        return np.uint64(0)

    def split(self, messages: Iterable[MessageColumns], colours: Any) -> Any:  # noqa: ARG002
        """Return None: equal messages share a link equally."""
        return None

    def turns_of(self, messages: Iterable[MessageColumns], actor_of_rank: Any) -> LinkTurns | None:  # noqa: ARG002
        """Return None: messages share links."""
        return None

    def classes(self) -> Any:
        """Return a class for each link, numbered from 0 in the order of first use."""
        return in_order(self._classes)

    def separate(self, messages: Iterable[MessageColumns], colours: Any) -> bool:
        """Refine the classes of links by the messages on them, and return whether that adds classes."""
        seen = np.zeros(len(self._classes), np.uint64)
        for sources, targets, kinds in messages:
            links, back = self._links(sources, targets), self._links(targets, sources)
            with np.errstate(over="ignore"):
                words = splitmix64(kinds, 11) + splitmix64(colours[sources], 12) * np.uint64(3)
                words = splitmix64(words + splitmix64(colours[targets], 13), 14)
                words = splitmix64(words + splitmix64(self._code_of(links), 15) + self._code_of(back), 16)
                words += self.beside(sources, targets)
            _add_on_links(seen, links, words)
            if self._goes_back:
                _add_on_links(seen, back, splitmix64(words, 17))
        before = len(unique(self._classes))
        self._classes = self.classes().astype(np.uint64)
        with np.errstate(over="ignore"):
            self._classes = splitmix64(splitmix64(self._classes, 18) + seen, 19)
        return len(unique(self._classes)) > before

    def _code(self, source: Any, target: Any) -> Any:
        return self._code_of(self._links(source, target))

    def _code_of(self, ways: PathLinks) -> Any:
        code = np.zeros(len(ways.links), np.uint64)
        with np.errstate(over="ignore"):
            if ways.marks is not None:
                words = splitmix64(self._classes[ways.links] + ways.marks, 22)
                return splitmix64(np.where(ways.links == NONE, np.uint64(0), words).sum(axis=1), 23)
            for column in ways.links.T:
                known = splitmix64(code + splitmix64(self._classes[column], 20), 21)
                code = np.where(column == NONE, code, known)
        return code

    def paths(self, source: Any, target: Any) -> list[PathLinks]:
        """Return the links of each path at each time with paths of its own."""
        return [_links_of(routed, source, target) for routed in self._over_time]

    def _links(self, source: Any, target: Any) -> PathLinks:
        """Return the links of each path; if paths change with time, those of all times."""
        if np.size(source) > FEW_PATHS:
            return self._walk(source, target)
        key = np.asarray(source, np.int64).tobytes(), np.asarray(target, np.int64).tobytes()
        if key not in self._walked:
            walked = self._walk(source, target)
            self._kept += walked.links.size
            if self._kept > MOST_KEPT:
                self._walked.clear()
                self._kept = walked.links.size
            self._walked[key] = PathLinks(walked.links.copy(), walked.marks)
        return self._walked[key]

    def _walk(self, source: Any, target: Any) -> PathLinks:
        """Return the links of each path, walked anew."""
        paths = self.paths(source, target)
        if len(paths) == 1:
            return paths[0]
        marks = []
        for number, path in enumerate(paths):
            places = np.arange(path.links.shape[1], dtype=np.uint64)
            own = (
                np.broadcast_to(splitmix64(places, 27), path.links.shape)
                if path.marks is None
                else path.marks
            )
            with np.errstate(over="ignore"):
                marks.append(splitmix64(own + np.uint64(number), 28))
        return PathLinks(np.hstack([path.links for path in paths]), np.hstack(marks))


ROUNDED = 2.0**40
FEW_LINKS = 64  # space for links of a path at first: a message on a torus may be split over all links
FEW_PATHS, MOST_KEPT = 1 << 10, 1 << 22  # paths of a set that is kept, and links of all such sets


split = in_module("et_sim.network.spread", "split")


class Routed(NamedTuple):
    """Tables from which the paths of a time follow."""

    hops: Any  # `Wires`
    ways: SplitTables
    most_links: int


def _links_of(routed: Routed, source: Any, target: Any) -> PathLinks:
    """Return the links of each path at a time."""
    sources, targets = (np.ascontiguousarray(column, np.int64).reshape(-1) for column in (source, target))
    longest = min(routed.most_links, FEW_LINKS)
    while True:
        journeys = _journeys(routed, sources, targets, longest)
        are_split = len(routed.ways.link) > 0
        (_walk_all_ways if are_split else _walk)(journeys)
        width, longest = longest, int(journeys.longest[0])
        if longest <= width:
            break
    links = journeys.links[:, :longest]
    if not are_split:
        return PathLinks(links)
    # Shares are sums in any order, so rounding errors differ.
    rounded = np.round(journeys.shares[:, :longest] * ROUNDED).astype(np.int64)
    depths = journeys.depths[:, :longest].astype(np.uint64)
    return PathLinks(links, splitmix64(splitmix64(rounded, 24) + depths, 25))


def _journeys(routed: Routed, sources: Any, targets: Any, width: int) -> _Journeys:
    """Return paths to walk, with space for so many links of each."""
    links = np.full((len(sources), width), NONE, np.int32)
    marked = links.shape if len(routed.ways.link) else (0, 0)
    shares, depths = np.zeros(marked), np.zeros(marked, np.int32)
    walker, longest = table(WALKER, 1), np.zeros(1, np.int64)
    return _Journeys(routed.hops, walker, sources, targets, links, longest, routed.ways, shares, depths)


def _add_on_links(sums: Any, ways: PathLinks, words: Any) -> None:
    """Add the word of each path to all its links."""
    for number, column in enumerate(ways.links.T):
        rows = np.flatnonzero(column != NONE)
        of_ways = words[rows]
        if ways.marks is not None:
            with np.errstate(over="ignore"):
                of_ways = splitmix64(of_ways + ways.marks[rows, number], 26)
        np.add.at(sums, column[rows], of_ways)


@entry(what="the routes", seconds=lambda journeys: len(journeys.sources) * 2e-5)
def _walk_all_ways(journeys: _Journeys) -> None:
    """Record the links over which each message is split, as many as there is space for, and their number."""
    ways, routes = journeys.ways, journeys.hops.fabric.graph.routes
    for row in range(len(journeys.sources)):
        if journeys.sources[row] == journeys.targets[row]:
            continue
        count = split(routes, ways, journeys.sources[row], journeys.targets[row])
        for at in range(min(count, journeys.links.shape[1])):
            journeys.links[row, at] = ways.link[at]
            journeys.shares[row, at], journeys.depths[row, at] = ways.share[at], ways.depth[at]
        journeys.longest[0] = max(journeys.longest[0], count)


@entry(what="the routes", seconds=lambda journeys: len(journeys.sources) * 1e-5)
def _walk(journeys: _Journeys) -> None:
    """Record the links of each path, as many as there is space for, and their number."""
    hops, message = journeys.hops, journeys.message[0]
    for row in range(len(journeys.sources)):
        if journeys.sources[row] == journeys.targets[row] and not is_wired_to_itself(hops):
            continue
        message.target = journeys.targets[row]
        set_out(hops, message, journeys.sources[row], FIRST_PORTS)
        count = 0
        while count == 0 or message.at != message.target or message.via_switch:
            link = take_hop(hops, message)
            if count < journeys.links.shape[1]:
                journeys.links[row, count] = link
            count += 1
        journeys.longest[0] = max(journeys.longest[0], count)
