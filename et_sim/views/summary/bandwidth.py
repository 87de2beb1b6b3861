"""Bandwidth against message size: algorithm and bus bandwidth of collectives and sends, beside that of links.

A collective moves bytes from the arrival of its first member to the end of its last one; a send, from the end
of its waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict

from et_sim.basics.units import LONGEST_NS, format_bandwidth, format_ns
from et_sim.views.run.columns import Words, integers, words
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import TIMES, GroupCounts, Grouped, communicates, most_by, spans
from et_sim.views.run.selection import EVERYTHING, Selection
from et_sim.views.sheet import Sheet, SheetColumn, rate
from et_sim.views.summary.operations import LEGEND as BOTH
from et_sim.views.summary.operations import Bandwidth, bandwidth, members_of
from et_sim.views.text import prose
from et_sim.views.view import Forms

COLUMNS = ("actor", "kind", "group", *TIMES, "bytes")
NO_LINKS = (
    "links have no bandwidth in this run: simulate with --network-model link (or flow, packet)"
    " and --detail links"
)

LEGEND = f"{BOTH}; slowest and fastest: bandwidth of a single one"


class Rate(Struct, frozen=True):
    """Collectives of one kind, group and size, or sends of one size, over all selected ranks."""

    kind: str
    group: str | None
    bytes: int
    count: int
    moving_ns: int
    shortest_ns: int
    longest_ns: int
    members: int | None  # of the group

    def over(self, count: int, moving_ns: int) -> Bandwidth:
        """Return the bandwidth of `count` transfers in a time."""
        return bandwidth(self.kind, self.members, self.bytes * count, moving_ns)

    @property
    def bytes_per_second(self) -> float:
        """Return the algorithm bandwidth over all transfers."""
        return self.over(self.count, self.moving_ns).algorithm or 0.0

    @property
    def least_bytes_per_second(self) -> float:
        """Return the algorithm bandwidth of the slowest transfer."""
        return self.over(1, self.longest_ns).algorithm or 0.0

    @property
    def most_bytes_per_second(self) -> float:
        """Return the algorithm bandwidth of the fastest transfer."""
        return self.over(1, self.shortest_ns).algorithm or 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return it for `--json`."""
        ends = {
            "least_bytes_per_second": self.least_bytes_per_second,
            "most_bytes_per_second": self.most_bytes_per_second,
        }
        return {**asdict(self), **ends, **self.over(self.count, self.moving_ns).as_dict()}


def rates(run: RunDirectory, part: Selection = EVERYTHING) -> list[Rate]:
    """Return rates by kind, group and size; only transfers that lie wholly in the window count."""
    groups = GroupCounts(run, part)
    figures_of: dict[tuple[str, str | None, int], list[Any]] = {}
    for rows in run.batches("timeline", COLUMNS):
        kinds = words(rows["kind"])
        for (kind, counts, size), (nodes, moving, shortest, longest) in _of_batch(rows, groups, kinds, part):
            for group, ranks in groups.counts[counts]:
                if ranks:
                    totals = figures_of.setdefault(
                        (str(kinds.texts[kind]), group, size),
                        [0, 0, shortest, longest, members_of(groups.sizes, group)],
                    )
                    totals[0] += ranks * nodes
                    totals[1] += ranks * moving
                    totals[2], totals[3] = min(totals[2], shortest), max(totals[3], longest)
    every = [Rate(*key, *figures) for key, figures in figures_of.items()]
    return sorted(every, key=lambda entry: (entry.kind, entry.group or "", entry.bytes))


def _of_batch(
    rows: Any, groups: GroupCounts, kinds: Words, part: Selection
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return, by kind, group and size: nodes of one rank, and their total, shortest and longest time."""
    times, size = spans(rows), integers(rows["bytes"], missing=0)
    first, last = part.window or (0, np.iinfo(np.int64).max)
    is_inside = times.completed & (times.start >= first) & (times.end <= last)
    counts = kinds.where(lambda kind: communicates(kind) and kind != "receive")
    moving = times.moving
    moved = np.flatnonzero(counts & is_inside & (size > 0) & (moving > 0))
    moving, grouped = moving[moved], Grouped(kinds.codes[moved], groups.of(rows)[moved], size[moved])
    longest = most_by(grouped.of_row, len(grouped.keys), moving)
    shortest = -most_by(grouped.of_row, len(grouped.keys), -moving, least=-LONGEST_NS)
    return grouped.with_keys(np.bincount(grouped.of_row), grouped.total(moving), shortest, longest)


def link_ceilings(run: RunDirectory) -> dict[str, float]:
    """Return bytes per second of the fastest link of each tier; empty if links were not recorded."""
    table = run.table("resources", ("tier", "bytes_per_ns"))
    if table is None:
        return {}
    ceilings: dict[str, float] = {}
    for tier, speed in zip(table["tier"].to_pylist(), table["bytes_per_ns"].to_pylist(), strict=True):
        if speed is not None:
            ceilings[tier] = max(ceilings.get(tier, 0.0), speed * 1e9)
    return ceilings


def bandwidth_data(run: RunDirectory, part: Selection) -> dict[str, Any]:
    """Return rates and link bandwidths for `--json`."""
    entries = [entry.as_dict() for entry in part.cut(rates(run, part))]
    return {"rates": entries, "links_bytes_per_second": link_ceilings(run)}


def bandwidth_lines(run: RunDirectory, part: Selection, width: int) -> list[str]:
    """Return a line for each kind, group and size."""
    every = rates(run, part)
    if not every:
        return prose(["no collective or send with a payload was simulated from begin to end"], width)
    return prose([*SHEET.shown(every, part, width), LEGEND, ceiling_text(run)], width)


SHEET = Sheet(
    (
        SheetColumn("kind", side="<"),
        SheetColumn("group", side="<"),
        SheetColumn("bytes"),
        SheetColumn("count"),
        SheetColumn("transfer", lambda entry: format_ns(entry.moving_ns / entry.count)),
        SheetColumn("bandwidth", lambda entry: rate(entry.over(entry.count, entry.moving_ns).algorithm)),
        SheetColumn("bus bw", lambda entry: rate(entry.over(entry.count, entry.moving_ns).bus)),
        SheetColumn("slowest", lambda entry: rate(entry.least_bytes_per_second)),
        SheetColumn("fastest", lambda entry: rate(entry.most_bytes_per_second)),
    ),
    cut={"group": 8, "kind": 10},
    drop=("count", "transfer"),
    names=("group",),
)


def ceiling_text(run: RunDirectory) -> str:
    """Return the bandwidth of links as text."""
    ceilings = link_ceilings(run)
    rates_text = ", ".join(f"{tier} {format_bandwidth(rate / 1e9)}" for tier, rate in ceilings.items())
    return f"a link carries: {rates_text}" if ceilings else NO_LINKS


BANDWIDTH = Forms(bandwidth_lines, bandwidth_data)
