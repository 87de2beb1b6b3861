"""What a message between two ranks costs, as a number: equal numbers, equal times on an idle path.

Where links of a grid queue messages, or differ in speed, only paths that use nothing but links of their two
ends are told apart like that; with others, ranks are not folded.

Not here: the times themselves (the fabrics).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.basics.unique import unique
from et_sim.compiled.entry_points import entry
from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.containers import NONE
from et_sim.fold.path_keys import MessageColumns, PathKeys, SharedLinks
from et_sim.machine.model import AT_SWITCH, Dimension, GridFabric, Level, LevelFabric, Shape, strides_of
from et_sim.network.fabric import WAY_FIELDS, is_wired_to_itself, set_out, take_hop
from et_sim.network.routes import FIRST_PORTS
from et_sim.network.spread import SplitTables, no_split, split
from et_sim.plan.records import record, table
from et_sim.plan.splitmix import splitmix64

Tier = TypeVar("Tier", Dimension, Level)
WALKER = record(*WAY_FIELDS, ("target", "i4"))


class SimplePaths(PathKeys):
    """Paths whose numbers say all about them, and on which no message waits for another."""

    shared_links: SharedLinks | None = None
    differ_along_axes = True
    messages_queue = False

    def costs(self, source: Any, target: Any) -> Any:
        """Return the same: no other links could be meant."""
        return self.codes(source, target)

    def can_be_folded(self, _source: Any, _target: Any) -> bool:
        """Return the codes say all."""
        return True


class LevelPaths(SimplePaths):
    """Paths over the levels of ASTRA-sim 1.0: the highest in which the ends differ, and the hops there."""

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

    `on_links`: messages queue for links. `whole`: they pay for all dimensions they cross, not for the lowest
    one only.
    """

    shared_links: SharedLinks | None = None

    def __init__(self, fabric: GridFabric, *, on_links: bool, whole: bool) -> None:
        self._fabric, self.messages_queue, self._whole = fabric, on_links, whole
        # Whether two pairs of ranks equally far apart along one dimension can have different paths.
        self._are_directed = self.differ_along_axes = on_links or bool(fabric.links)
        self._uneven = _UnevenLinks(fabric) if fabric.links else None
        shapes = [dimension.shape for dimension in fabric.dimensions]
        self.are_alike = not self._are_directed and len(shapes) == 1 and shapes[0] is not Shape.RING

    def codes(self, source: Any, target: Any) -> Any:
        """Return a number for the path of each pair, there and (where links differ) back."""
        if not (self._whole or self._are_directed):
            return self._lowest_distance(source, target)
        return self._with_speeds(self._distances(source, target, directed=self._are_directed), source, target)

    def costs(self, source: Any, target: Any) -> Any:
        """Return the same where it does not matter which of its links each source takes."""
        if self._whole:
            code = self._distances(source, target, directed=False)
        else:
            code = self._lowest_distance(source, target)
        return self._with_speeds(code, source, target)

    def _with_speeds(self, code: Any, source: Any, target: Any) -> Any:
        if self._uneven is None:
            return code
        there, back = self._uneven.on_path(source, target), self._uneven.on_path(target, source)
        with np.errstate(over="ignore"):
            return splitmix64(splitmix64(splitmix64(code, 0) + there, 0) + back, 0)

    def can_be_folded(self, source: Any, target: Any) -> bool:
        """Return whether the codes of these pairs say all about their paths."""
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
        """Return numbers of the ways from each member of a line to the next one, if all ways on it have one
        link.

        That is where queues form, members differ in one dimension, and this is no ring: among fully connected
        NPUs the distances add up, and behind a switch all ways are alike.
        """
        if not self.messages_queue or self._uneven is not None:
            return None
        steps = None
        for _, dimension, ahead in places_ahead(self._fabric.dimensions, lines, np.roll(lines, -1, axis=-1)):
            if ahead.any():
                if steps is not None or dimension.shape is Shape.RING:
                    return None
                steps = np.zeros_like(ahead) if dimension.shape is Shape.SWITCH else ahead
        return steps

    def _distances(self, source: Any, target: Any, *, directed: bool) -> Any:
        """Return a number for the hops of each pair per dimension, or for how far it goes (`directed`).

        Behind a switch all are equally far: a message takes its source's link up and its target's link down.
        """
        code = np.zeros(np.broadcast(source, target).shape, np.int64)
        for _, dimension, ahead in places_ahead(self._fabric.dimensions, source, target):
            is_ahead = directed and dimension.shape is not Shape.SWITCH
            code = code * dimension.npus + (ahead if is_ahead else _hops(dimension, ahead))
        return code

    def _lowest_distance(self, source: Any, target: Any) -> Any:
        """Return a number for the lowest dimension in which each pair differs, and the hops there."""
        dimensions = self._fabric.dimensions
        code = np.zeros(np.broadcast(source, target).shape, np.int64)
        for number, dimension, ahead in places_ahead(dimensions, source, target):
            hops = _hops(dimension, ahead)
            code = np.where((code == 0) & (hops > 0), hops * len(dimensions) + number, code)
        return code

    def _has_one_link(self, source: Any, target: Any) -> Any:
        """Return whether a message uses only links of its two ends: one dimension, and one hop or a
        switch.
        """
        legs = np.zeros(np.broadcast(source, target).shape, np.int64)
        longest = np.zeros(legs.shape, np.int64)
        for _, dimension, ahead in places_ahead(self._fabric.dimensions, source, target):
            legs += ahead != 0
            if dimension.shape is Shape.RING:
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
            if fabric.dimensions[link.dimension].shape is not Shape.SWITCH:
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
    """By dimension or level, how many places ahead each target is.

    Where that is not 0, a message may have a leg: `next_leg` of a grid takes the first, of levels the last.
    """
    for number, (tier, stride) in enumerate(zip(tiers, strides_of(tiers), strict=True)):
        yield number, tier, (target // stride - source // stride) % tier.npus


def _hops(dimension: Dimension | Level, ahead: Any) -> Any:
    if dimension.shape is Shape.RING:
        return np.minimum(ahead, dimension.npus - ahead)
    return np.minimum(ahead, 1)


@quick_dataclass(frozen=True)
class _Journeys(Tables):
    """Ways to go, for compiled code."""

    hops: Any  # `Wires`
    message: Any  # that goes them
    sources: Any
    targets: Any
    links: Any  # by way
    longest: Any
    ways: Any  # `SplitTables`
    shares: Any  # by way, of the message on each link; empty: messages are not split
    depths: Any  # and how many links it has taken before


class _Ways(NamedTuple):
    """The links of ways, a row each, NONE behind the last."""

    links: Any
    marks: Any = None  # what each link is to its way: how far on, and with which share; None: it is one way


class LinkPaths(SimplePaths):
    """Paths by the classes of their links, one after the other.

    A message that is split has several ways: links at one distance from its source count in any order.

    Where messages share links (`are_shared`), classes are found meanwhile. Links begin with the class of
    their figures, and are told apart by the messages on them: their kinds, the colours of their ends, and
    their paths; paths by the classes of their links. When neither ranks nor links can be told apart further,
    equal links carry equal messages at equal times, because rates follow from nothing but which messages
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
    ) -> None:
        self._hops, self._classes, self._goes_back = hops, kinds, goes_back
        self._ways = no_split() if ways is None else ways
        self._most_links = len(self._ways.link) or most_links
        self.shared_links = self if are_shared else None

    def codes(self, source: Any, target: Any) -> Any:
        """Return a number for the links of the way there, and of the way back, in their order."""
        source, target = np.broadcast_arrays(source, target)
        there, back = self._code(source, target), self._code(target, source)
        with np.errstate(over="ignore"):
            return splitmix64(splitmix64(there, 0) + back, 0).reshape(source.shape)

    def classes(self) -> Any:
        """Return a number for each link, from 0 and in the order of the first of each class."""
        _, first, classes = np.unique(self._classes, return_index=True, return_inverse=True)
        place = np.empty(len(first), np.int32)
        place[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
        return place[classes.reshape(-1)]

    def separate(self, messages: Iterable[MessageColumns], colours: Any) -> bool:
        """Tell links apart by the messages on them; whether any now are."""
        seen = np.zeros(len(self._classes), np.uint64)
        for sources, targets, kinds in messages:
            links, back = self._links(sources, targets), self._links(targets, sources)
            with np.errstate(over="ignore"):
                words = splitmix64(kinds, 11) + splitmix64(colours[sources], 12) * np.uint64(3)
                words = splitmix64(words + splitmix64(colours[targets], 13), 14)
                words = splitmix64(words + splitmix64(self._code_of(links), 15) + self._code_of(back), 16)
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

    def _code_of(self, ways: _Ways) -> Any:
        code = np.zeros(len(ways.links), np.uint64)
        with np.errstate(over="ignore"):
            if ways.marks is not None:
                words = splitmix64(self._classes[ways.links] + ways.marks, 22)
                return splitmix64(np.where(ways.links == NONE, np.uint64(0), words).sum(axis=1), 23)
            for column in ways.links.T:
                known = splitmix64(code + splitmix64(self._classes[column], 20), 21)
                code = np.where(column == NONE, code, known)
        return code

    def _links(self, source: Any, target: Any) -> _Ways:
        """Return the links of each way."""
        ends = [np.ascontiguousarray(column, np.int64).reshape(-1) for column in (source, target)]
        links = np.full((len(ends[0]), self._most_links), NONE, np.int32)
        are_split = len(self._ways.link) > 0
        marked = links.shape if are_split else (0, 0)
        shares, depths = np.zeros(marked), np.zeros(marked, np.int32)
        longest = np.zeros(1, np.int64)
        walker, (source, target) = table(WALKER, 1), ends
        journeys = _Journeys(self._hops, walker, source, target, links, longest, self._ways, shares, depths)
        if not are_split:
            _walk(journeys)
            return _Ways(links[:, : longest[0]])
        _walk_all_ways(journeys)
        rounded = np.round(shares * ROUNDED).astype(np.int64)  # they are sums, in any order
        marks = splitmix64(splitmix64(rounded, 24) + depths.astype(np.uint64), 25)
        return _Ways(links[:, : longest[0]], marks[:, : longest[0]])


ROUNDED = 2.0**40


def _add_on_links(sums: Any, ways: _Ways, words: Any) -> None:
    """Add the word of each way to all its links."""
    for number, column in enumerate(ways.links.T):
        rows = np.flatnonzero(column != NONE)
        of_ways = words[rows]
        if ways.marks is not None:
            with np.errstate(over="ignore"):
                of_ways = splitmix64(of_ways + ways.marks[rows, number], 26)
        np.add.at(sums, column[rows], of_ways)


@entry(what="the routes", seconds=lambda journeys: len(journeys.sources) * 1e-4)
def _walk_all_ways(journeys: _Journeys) -> None:
    """Note the links over which messages are split."""
    ways, routes = journeys.ways, journeys.hops.fabric.graph.routes
    for row in range(len(journeys.sources)):
        if journeys.sources[row] == journeys.targets[row]:
            continue
        count = split(routes, ways, journeys.sources[row], journeys.targets[row])
        for at in range(count):
            journeys.links[row, at] = ways.link[at]
            journeys.shares[row, at], journeys.depths[row, at] = ways.share[at], ways.depth[at]
        journeys.longest[0] = max(journeys.longest[0], count)


@entry(what="the routes", seconds=lambda journeys: len(journeys.sources) * 1e-4)
def _walk(journeys: _Journeys) -> None:
    """Go all the ways, and note the links."""
    hops, message = journeys.hops, journeys.message[0]
    for row in range(len(journeys.sources)):
        if journeys.sources[row] == journeys.targets[row] and not is_wired_to_itself(hops):
            continue
        message.target = journeys.targets[row]
        set_out(hops, message, journeys.sources[row], FIRST_PORTS)
        count = 0
        while count == 0 or message.at != message.target or message.via_switch:
            journeys.links[row, count] = take_hop(hops, message)
            count += 1
        journeys.longest[0] = max(journeys.longest[0], count)
