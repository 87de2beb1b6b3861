"""Topology of a network with the use of its links and tiers, from links.arrow and resources.arrow.

In a graph, resources.arrow names the ends of links. In a grid, the ends follow from a link's name and the
sizes of the dimensions, for every rank of an actor. If the ends of links are unknown, there are no devices.

The use of a tier is the mean use of its links, idle links included: bytes carried over the bytes that they
could carry. Without links it is the mean share of time in which a rank sends.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.basics.intervals import filled
from et_sim.basics.units import parse_ranks
from et_sim.tables.declaration import DIMENSION_SIZES
from et_sim.views.run.directory import AGAIN, RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.run.slices import NONE, LinkTable, link_table

MOST_LINKS = 1 << 20  # in a topology
COLUMNS = ("actor", "ranks", "dimension", "link", "links", "tier", "bytes_per_ns", "source", "target")
ROWS = ("source_row", "target_row")
AHEAD = re.compile(r"(\d+) further on")
TO_SWITCH, FROM_SWITCH = "to the switch", "from the switch"


class Topology(Struct, frozen=True, eq=False):
    """Devices, with NPUs first and in order, and links with one direction each."""

    names: tuple[str, ...]
    rows: Any  # by device; 0: an NPU
    sizes: tuple[int, ...]  # NPUs by dimension, if they lie in a grid
    source: Any  # by link, the index of a device
    target: Any
    tier: tuple[str, ...]
    bytes_per_ns: Any
    bytes: Any  # by link
    used: Any  # share of the link's capacity
    has_links: bool  # messages wait for links


class _Resources(Struct, frozen=True, eq=False):
    """Columns of resources.arrow, and the bytes that each row carried."""

    actor: Any
    ranks: tuple[str | None, ...]  # None: all of the actor's
    dimension: Any
    link: tuple[str, ...]
    links: Any
    tier: tuple[str, ...]
    bytes_per_ns: Any  # 0: there is no link
    bytes: Any

    def of(self, rows: Any, length: int) -> dict[str, Any]:
        """Return a topology's fields of these links, in a window of this length."""
        rates, sizes = self.bytes_per_ns[rows], self.bytes[rows]
        tier = tuple(self.tier[row] for row in rows.tolist())
        return {"tier": tier, "bytes_per_ns": rates, "bytes": sizes, "used": _used(sizes, rates, length)}


def topology_of(run: RunDirectory, part: Selection = EVERYTHING) -> Topology | None:
    """Return the network of a run in a window of time; None if its links are not known one by one."""
    table = link_table(run)
    if table is None or not run.holds("resources"):
        return None
    content = run.arrays("resources", (*COLUMNS, *ROWS))
    resources = _resources(content, _carried(run, table, part, len(content["actor"])))
    source = content["source"]
    is_wired = source.codes < len(source.texts) - 1
    length = max(part.length_ns(run.summary["makespan_ns"]), 1)
    if is_wired.any():
        is_drawable = (resources.links == 1)[is_wired].all() and is_wired.sum() <= MOST_LINKS
        return _graph(run, content, resources, table.has_links, length) if is_drawable else None
    return _grid(run, resources, table.has_links, length)


def _resources(content: dict[str, Any], carried: Any) -> _Resources:
    link, tier = (tuple(map(str, content[name].of_rows())) for name in ("link", "tier"))
    actor, dimension, links = (content[name] for name in ("actor", "dimension", "links"))
    ranks = tuple(content["ranks"].of_rows())
    return _Resources(
        actor, ranks, dimension, link, links, tier, np.nan_to_num(content["bytes_per_ns"]), carried
    )


def _carried(run: RunDirectory, table: LinkTable, part: Selection, count: int) -> Any:
    """Return the bytes of each of `count` links; slices at an edge of the window count in proportion."""
    figures = table.figures
    first, last = part.window_of(run)
    start, end = figures["start_ns"], np.maximum(figures["end_ns"], figures["start_ns"] + 1)
    within = np.ones(len(start))
    if part.window is not None:
        within = (np.minimum(end, last) - np.maximum(start, first)).clip(0) / (end - start)
    return np.bincount(table.resource[table.of_row], np.maximum(figures["bytes"], 0) * within, count)


def _graph(run: RunDirectory, content: Any, resources: _Resources, has_links: bool, length: int) -> Topology:
    ends, rows = [content[name] for name in ("source", "target")], [content[name] for name in ROWS]
    row_of: dict[str, int] = {}
    for end, row in zip(ends, rows, strict=True):
        known = np.flatnonzero(end.codes < len(end.texts) - 1)
        first_of_name = known[np.unique(end.codes[known], return_index=True)[1]]
        row_of |= {str(end.texts[end.codes[at]]): int(row[at]) for at in first_of_name.tolist()}
    names = sorted(row_of, key=lambda name: (row_of[name], _natural(name)))
    number = {name: at for at, name in enumerate(names)}
    known = _in_order(np.flatnonzero(ends[0].codes < len(ends[0].texts) - 1), ends, number, resources)
    source, target = (
        np.array([number.get(str(text), NONE) for text in end.texts], np.int64)[end.codes[known]]
        for end in ends
    )
    if (target < 0).any() or min(row_of.values(), default=0) < 0:
        place = str(run.table_path("resources"))
        raise UsageError("is damaged: links lead from a device to none", place=place, remedy=AGAIN)
    return Topology(
        names=tuple(names),
        rows=np.array([row_of[name] for name in names], np.int64),
        sizes=_sizes(run),
        source=source,
        target=target,
        has_links=has_links,
        **resources.of(known, length),
    )


def _in_order(links: Any, ends: Any, number: dict[str, int], resources: _Resources) -> Any:
    """Sort links by ends and names, so that the order does not depend on which of them was simulated."""

    def key(at: int) -> tuple[Any, ...]:
        source, target = (number.get(str(end.texts[end.codes[at]]), NONE) for end in ends)
        return min(source, target), max(source, target), source > target, _natural(resources.link[at])

    return np.array(sorted(links.tolist(), key=key), np.int64)


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """Return a key that sorts letters by alphabet and digits by value."""
    pieces = re.findall(r"(\D*)(\d*)", name)
    return tuple((letters, int(digits or -1)) for letters, digits in pieces)


def _used(carried: Any, rate: Any, length: int) -> Any:
    return np.where(rate > 0, carried / np.where(rate > 0, rate, 1) / length, 0.0)


def _sizes(run: RunDirectory) -> tuple[int, ...]:
    text = run.metadata("resources").get(DIMENSION_SIZES.encode(), b"").decode()
    return tuple(int(size) for size in text.split() if size.isdecimal())


def _grid(run: RunDirectory, resources: _Resources, has_links: bool, length: int) -> Topology | None:
    """Return every link of every rank; None unless each row stands for one link of each rank."""
    sizes, counts = _sizes(run), run.rank_counts()
    ranks = int(counts.sum())
    owned = np.flatnonzero((resources.actor != NONE) & (resources.bytes_per_ns > 0))
    if not sizes or int(np.prod(sizes)) != ranks or not _has_each(resources, owned, counts):
        return None
    if int(resources.links[owned].sum()) > MOST_LINKS:
        return None
    wires = _Wires(run, sizes)
    for dimension in range(len(sizes)):
        here = owned[resources.dimension[owned] == dimension]
        names = np.array([resources.link[at] for at in here.tolist()], object)
        for name in dict.fromkeys(names.tolist()):
            wires.add(dimension, name, here[names == name], resources)
    return wires.topology(resources, has_links, length)


def _has_each(resources: _Resources, owned: Any, counts: Any) -> bool:
    """Check that each row without ranks stands for one link of each rank of its actor."""
    has_all = np.array([ranks is None for ranks in resources.ranks])[owned]
    return bool((resources.links[owned] == counts[resources.actor[owned]])[has_all].all())


class _Wires:
    """Links of a grid, added name by name."""

    def __init__(self, run: RunDirectory, sizes: tuple[int, ...]) -> None:
        self._sizes = sizes
        self._strides = np.cumprod([1, *sizes[:-1]]).tolist()
        self._ranks = int(np.prod(sizes))
        self._actor_of_rank = np.zeros(self._ranks, np.int64)
        actors = run.actors()
        for actor, text in zip(actors["actor"].to_pylist(), actors["ranks"].to_pylist(), strict=True):
            for span in parse_ranks(text):
                self._actor_of_rank[span.start : span.stop : span.step] = actor
        self._switches: list[str] = []
        self._switch_rows: list[int] = []
        self._first_of: dict[int, int] = {}  # the first switch of a dimension
        self._source: list[Any] = []
        self._target: list[Any] = []
        self._row: list[Any] = []

    def add(self, dimension: int, name: str, rows: Any, resources: _Resources) -> None:
        """Add the links of this name, one for each rank that has one."""
        size, stride = self._sizes[dimension], self._strides[dimension]
        if size == 1 or (size == 2 and name == "anticlockwise" and not resources.bytes[rows].any()):
            return
        row_of_rank = self._rows_of_ranks(rows, resources)
        rank = np.flatnonzero(row_of_rank != NONE)
        at = rank // stride % size
        if name in (TO_SWITCH, FROM_SWITCH):
            line = self._switch(dimension) + rank // (stride * size) * stride + rank % stride
            ends = (rank, line) if name == TO_SWITCH else (line, rank)
        else:
            further = AHEAD.fullmatch(name)
            step = int(further[1]) if further else 1 if name == "clockwise" else -1
            ends = rank, rank + ((at + step) % size - at) * stride
        self._source.append(ends[0])
        self._target.append(ends[1])
        self._row.append(row_of_rank[rank])

    def _rows_of_ranks(self, rows: Any, resources: _Resources) -> Any:
        """Return the row of the link of each rank; NONE: the rank has no link."""
        row_of_actor = np.full(int(self._actor_of_rank.max()) + 1, NONE)
        row_of_actor[resources.actor[rows]] = rows
        row_of_rank = row_of_actor[self._actor_of_rank]
        for row in rows.tolist():
            text = resources.ranks[row]
            for span in parse_ranks(text) if text else ():
                row_of_rank[span.start : span.stop : span.step] = row
        return row_of_rank

    def _switch(self, dimension: int) -> int:
        """Return the first switch of a dimension; a dimension has one switch for each line of NPUs."""
        if dimension not in self._first_of:
            self._first_of[dimension] = self._ranks + len(self._switches)
            lines = self._ranks // self._sizes[dimension]
            self._switches += [f"dimension{dimension}.switch{line}" for line in range(lines)]
            self._switch_rows += [dimension + 1] * lines
        return self._first_of[dimension]

    def topology(self, resources: _Resources, has_links: bool, length: int) -> Topology | None:
        """Return the topology of all added links; None if there are none."""
        if not self._row:
            return None
        source, target, row = (np.concatenate(parts) for parts in (self._source, self._target, self._row))
        return Topology(
            names=(*(f"npu{rank}" for rank in range(self._ranks)), *self._switches),
            rows=np.array([0] * self._ranks + self._switch_rows, np.int64),
            sizes=self._sizes,
            source=source,
            target=target,
            has_links=has_links,
            **resources.of(row, length),
        )


class TierUse(Struct, frozen=True):
    """Use of the links of a tier."""

    tier: str
    links: int | None  # None: unknown
    bytes: int
    used: float  # share of the bandwidth of its links; if they are unknown, of the time of a rank
    most_used: float  # of the most loaded link
    used_shares: tuple[float, ...]  # by slice of time
    wait_ns: int | None  # sum over links; None here and below: messages do not wait for links
    most_at_once: int | None  # largest number of messages on a link or waiting for it


def tier_uses(
    run: RunDirectory, table: LinkTable, slices: int, part: Selection = EVERYTHING
) -> list[TierUse]:
    """Return all tiers with links that carried anything, the most loaded first."""
    if not run.holds("resources") or not len(table.actor):
        return []
    begin, length = part.window[0] if part.window else 0, max(part.length_ns(run.summary["makespan_ns"]), 1)
    (rate, alike), counts = _rates(run, table), _counts(run)
    names, of_link = np.unique(np.array(table.tier), return_inverse=True)
    links = np.array([counts.get(str(name), (0, 0)) for name in names], np.int64).reshape(-1, 2)
    weight = alike / np.maximum(links[of_link, 0], 1)
    row, figures = table.of_row, table.figures
    start, end = (np.clip(figures[name] - begin, 0, length) for name in ("start_ns", "end_ns"))
    whole = np.maximum(figures["end_ns"] - figures["start_ns"], 1)
    needed = np.where(
        rate[row] > 0, figures["bytes"] / np.where(rate[row] > 0, rate[row], 1), figures["busy_ns"]
    )
    density, within = needed / whole, (end - start) / whole
    of_each = np.bincount(row, needed * within, len(table.actor)) / length
    tracks = filled(of_link[row], start, end, density * weight[row], (len(names), slices), length)
    most = np.zeros(len(names))
    named = table.has_links | (table.actor != NONE) | (rate > 0)  # others are several links
    np.maximum.at(most, of_link, of_each * named)
    used = np.bincount(of_link, of_each * weight, len(names))
    size, waited = (
        np.bincount(of_link[row], np.maximum(figures[name], 0) * within * alike[row], len(names))
        for name in ("bytes", "wait_ns")
    )
    at_once = np.zeros(len(names), np.int64)
    np.maximum.at(at_once, of_link[row], np.where(within > 0, figures["most_at_once"], 0))
    uses = []
    for at in np.flatnonzero(used > 0).tolist():
        waits = (int(waited[at]), int(at_once[at])) if table.has_links else (None, None)
        uses.append(
            TierUse(
                str(names[at]),
                int(links[at, 0]) if links[at, 1] else None,
                int(size[at]),
                round(float(used[at]), 9),
                round(float(most[at]), 9),
                tuple(round(share, 9) for share in tracks[at].tolist()),
                *waits,
            )
        )
    return sorted(uses, key=lambda use: (-use.used, use.tier))


def _rates(run: RunDirectory, table: LinkTable) -> tuple[Any, Any]:
    """Return by link the bytes per ns (0: no bandwidth), and the number of links that its row stands for."""
    rate, links = run.arrays("resources", ("bytes_per_ns", "links")).values()
    return np.nan_to_num(rate)[table.resource], links[table.resource]


def _counts(run: RunDirectory) -> dict[str, tuple[int, bool]]:
    """Return, by tier, the number of its links, and whether they are links."""
    actor, tier, rate, alike = run.arrays("resources", ("actor", "tier", "bytes_per_ns", "links")).values()
    # Beside a memory pool, some rows are not links.
    are_links = np.bincount(tier.codes, np.nan_to_num(rate) > 0, len(tier.texts)) > 0
    counted = np.where(are_links[tier.codes], np.nan_to_num(rate) > 0, actor != NONE)
    counts = np.bincount(tier.codes, alike * counted, len(tier.texts))
    return {
        text: (int(count), bool(are))
        for text, count, are in zip(tier.texts, counts.tolist(), are_links.tolist(), strict=True)
        if text is not None
    }
