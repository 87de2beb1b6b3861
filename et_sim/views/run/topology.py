"""Which devices a network has, what its links connect, and how much of each link's bandwidth is used.

From links.arrow and resources.arrow. Of a graph, resources.arrow names the ends of links. In a grid, a link's
name and the sizes of the dimensions tell them, for every rank behind an actor. Where rows stand for links
whose ends are not known, there are no devices.

Not here: the use of tiers as a whole (`tiers`), and how devices are placed (`drawing.devices`).
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.basics.units import parse_ranks
from et_sim.tables.kinds import DIMENSION_SIZES
from et_sim.views.run.directory import AGAIN, RunDirectory
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.run.slices import NONE, LinkTable, link_table

MOST_LINKS = 1 << 20  # that are spelled out
COLUMNS = ("actor", "dimension", "link", "links", "tier", "bytes_per_ns", "source", "target")
ROWS = ("source_row", "target_row")
AHEAD = re.compile(r"(\d+) further on")
TO_SWITCH, FROM_SWITCH = "to the switch", "from the switch"


class Topology(Struct, frozen=True, eq=False):
    """Devices, NPUs first and in order; and links, each in one direction."""

    names: tuple[str, ...]
    rows: Any  # of each device; 0: it is an NPU
    sizes: tuple[int, ...]  # NPUs by dimension, if they lie in a grid
    source: Any  # of each link, a device
    target: Any
    tier: tuple[str, ...]
    bytes_per_ns: Any
    bytes: Any  # that it carried
    used: Any  # of what it could have carried
    has_links: bool  # which messages wait for


class _Resources(Struct, frozen=True, eq=False):
    """resources.arrow in columns, and what each row carried."""

    actor: Any
    dimension: Any
    link: tuple[str, ...]
    links: Any
    tier: tuple[str, ...]
    bytes_per_ns: Any  # 0: there is no link
    bytes: Any

    def of(self, rows: Any, length: int) -> dict[str, Any]:
        """What a topology says of these links, in a window of this length."""
        rates, sizes = self.bytes_per_ns[rows], self.bytes[rows]
        tier = tuple(self.tier[row] for row in rows.tolist())
        return {"tier": tier, "bytes_per_ns": rates, "bytes": sizes, "used": _used(sizes, rates, length)}


def topology_of(run: RunDirectory, part: Selection = EVERYTHING) -> Topology | None:
    """The network of a run, in a window of time; None if its links are not known one by one."""
    table = link_table(run)
    if table is None or not run.holds("resources"):
        return None
    content = run.arrays("resources", (*COLUMNS, *ROWS))
    resources = _resources(content, _carried(run, table, part))
    source = content["source"]
    is_wired = source.codes < len(source.texts) - 1
    length = max(part.length_ns(run.summary["makespan_ns"]), 1)
    if is_wired.any():
        is_drawable = (resources.links == 1)[is_wired].all() and is_wired.sum() <= MOST_LINKS
        return _graph(run, content, resources, table.has_links, length) if is_drawable else None
    return _grid(run, resources, table.has_links, length)


def _resources(content: dict[str, Any], carried: dict[tuple[int, int, str], float]) -> _Resources:
    link, tier = (tuple(map(str, content[name].of_rows())) for name in ("link", "tier"))
    actor, dimension, links = (content[name] for name in ("actor", "dimension", "links"))
    keys = zip(actor.tolist(), dimension.tolist(), link, strict=True)
    sizes = np.array([carried.get(key, 0.0) for key in keys])
    return _Resources(actor, dimension, link, links, tier, np.nan_to_num(content["bytes_per_ns"]), sizes)


def _carried(run: RunDirectory, table: LinkTable, part: Selection) -> dict[tuple[int, int, str], float]:
    """Bytes by link; slices at an edge of the window count in proportion."""
    figures = table.figures
    first, last = part.window_of(run)
    start, end = figures["start_ns"], np.maximum(figures["end_ns"], figures["start_ns"] + 1)
    within = np.ones(len(start))
    if part.window is not None:
        within = (np.minimum(end, last) - np.maximum(start, first)).clip(0) / (end - start)
    sizes = np.bincount(table.of_row, np.maximum(figures["bytes"], 0) * within, len(table.actor))
    keys = zip(table.actor.tolist(), table.dimension.tolist(), table.name, strict=True)
    return dict(zip(keys, sizes.tolist(), strict=True))


def _graph(run: RunDirectory, content: Any, resources: _Resources, has_links: bool, length: int) -> Topology:
    ends, rows = [content[name] for name in ("source", "target")], [content[name] for name in ROWS]
    row_of: dict[str, int] = {}
    for end, row in zip(ends, rows, strict=True):
        known = np.flatnonzero(end.codes < len(end.texts) - 1)
        first_of_name = known[np.unique(end.codes[known], return_index=True)[1]]
        row_of |= {str(end.texts[end.codes[at]]): int(row[at]) for at in first_of_name.tolist()}
    names = sorted(row_of, key=lambda name: (row_of[name], _natural(name)))
    number = {name: at for at, name in enumerate(names)}
    known = np.flatnonzero(ends[0].codes < len(ends[0].texts) - 1)
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


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """By letters, and numbers in it by their size."""
    pieces = re.findall(r"(\D*)(\d*)", name)
    return tuple((letters, int(digits or -1)) for letters, digits in pieces)


def _used(carried: Any, rate: Any, length: int) -> Any:
    return np.where(rate > 0, carried / np.where(rate > 0, rate, 1) / length, 0.0)


def _sizes(run: RunDirectory) -> tuple[int, ...]:
    text = run.metadata("resources").get(DIMENSION_SIZES.encode(), b"").decode()
    return tuple(int(size) for size in text.split() if size.isdecimal())


def _grid(run: RunDirectory, resources: _Resources, has_links: bool, length: int) -> Topology | None:
    """Every link of every rank behind the actors; None if rows are not one link of each of them."""
    sizes, counts = _sizes(run), run.rank_counts()
    ranks = int(counts.sum())
    owned = np.flatnonzero((resources.actor != NONE) & (resources.bytes_per_ns > 0))
    if (
        not sizes
        or int(np.prod(sizes)) != ranks
        or (resources.links[owned] != counts[resources.actor[owned]]).any()
    ):
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


class _Wires:
    """The links of a grid as they are added."""

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
        """The links of this name of all ranks whose actor has one."""
        size, stride = self._sizes[dimension], self._strides[dimension]
        if size == 1 or (size == 2 and name == "anticlockwise" and not resources.bytes[rows].any()):
            return
        row_of_actor = np.full(int(self._actor_of_rank.max()) + 1, NONE)
        row_of_actor[resources.actor[rows]] = rows
        rank = np.flatnonzero(row_of_actor[self._actor_of_rank] != NONE)
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
        self._row.append(row_of_actor[self._actor_of_rank[rank]])

    def _switch(self, dimension: int) -> int:
        """The first one of a dimension; it has one for each line of NPUs."""
        if dimension not in self._first_of:
            self._first_of[dimension] = self._ranks + len(self._switches)
            lines = self._ranks // self._sizes[dimension]
            self._switches += [f"dimension{dimension}.switch{line}" for line in range(lines)]
            self._switch_rows += [dimension + 1] * lines
        return self._first_of[dimension]

    def topology(self, resources: _Resources, has_links: bool, length: int) -> Topology | None:
        """All that was added; None: nothing was."""
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
