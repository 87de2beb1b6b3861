"""Arrays of links.arrow, queues.arrow and flows.arrow: use of links and ports by slice of time, and messages.

Without a link model there are no links: a row stands for all that an actor sends along a dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.tables.registry import table_named
from et_sim.views.run.directory import RunDirectory
from et_sim.views.run.rows import most_by, total_by

NONE = -1
NO_PORTS = table_named("queues").not_recorded
COUNTED = ("lost", "marked", "pauses", "paused_ns")
ENDS = ("source", "target", "bytes", "begin_ns", "left_ns", "arrived_ns", "packets")
HOLDS = ("sent_again", "timeouts", "window_ns", "rate_ns", "paused_ns")
FLOW_FIGURES = (*ENDS, *HOLDS, "last_queue_ns")


class SliceTable(Struct, frozen=True, eq=False, kw_only=True):
    """Figures of links or ports by slice of time; `of_row` is the index of the link or port of a slice."""

    TABLE: ClassVar[str]
    OWNERS: ClassVar[tuple[str, ...]]  # columns that identify an entry together with name and tier
    FIGURES: ClassVar[tuple[str, ...]]
    LEAST: ClassVar[int]  # the largest value of a figure without values

    name: tuple[str, ...]
    tier: tuple[str, ...]
    of_row: Any
    figures: dict[str, Any]  # by column, one value per slice; -1: not recorded

    @classmethod
    def read(cls, run: RunDirectory) -> Self | None:
        """Read the table of a run; return None if it was not recorded."""
        if not run.holds(cls.TABLE):
            return None
        every = run.arrays(cls.TABLE, (*cls.OWNERS, "link", "tier", *cls.FIGURES))
        link, tier = every["link"], every["tier"]
        is_new = np.zeros(len(link.codes), np.bool_)
        is_new[:1] = True
        for column in (*(every[owner] for owner in cls.OWNERS), link.codes, tier.codes):
            is_new[1:] |= np.diff(column) != 0
        first = np.flatnonzero(is_new)
        return cls(
            **{owner: every[owner][first] for owner in cls.OWNERS},
            name=tuple(map(str, link.of_rows(first))),
            tier=tuple(map(str, tier.of_rows(first))),
            of_row=np.cumsum(is_new) - 1,
            figures={figure: every[figure] for figure in cls.FIGURES},
        )

    def where(self, mask: Any) -> Self:
        """Return some of the slices; the indices of links and ports do not change."""
        figures = {name: column[mask] for name, column in self.figures.items()}
        return replace(self, of_row=self.of_row[mask], figures=figures)

    def total(self, figure: str) -> Any:
        """Return the sum of a figure over the slices of each link or port."""
        return total_by(self.of_row, len(self.name), np.maximum(self.figures[figure], 0))

    def most(self, figure: str) -> Any:
        """Return the largest value of a figure in the slices of each link or port."""
        return most_by(self.of_row, len(self.name), self.figures[figure], self.LEAST)


class LinkTable(SliceTable, frozen=True, eq=False, kw_only=True):
    """Links by name and owner. If one link was simulated for several, each of them has its slices."""

    TABLE = "links"
    OWNERS = ("resource",)
    FIGURES = (
        *("start_ns", "end_ns", "busy_ns", "bytes", "messages"),
        *("wait_ns", "longest_wait_ns", "most_waiting", "most_at_once"),  # -1: there is no link model
    )
    LEAST = 0

    resource: Any
    actor: Any
    dimension: Any
    ranks: tuple[str, ...]  # ranks that own the link; empty: it connects devices that are no NPUs

    @classmethod
    def read(cls, run: RunDirectory) -> Self | None:
        """Read the table of a run; return None if it was not recorded."""
        if not run.holds(cls.TABLE):
            return None
        every = run.arrays(cls.TABLE, (*cls.OWNERS, *cls.FIGURES))
        links = run.arrays("resources", ("stand_in", "actor", "ranks", "dimension", "link", "tier"))
        stand_in = links["stand_in"]
        counts = np.bincount(every["resource"], minlength=len(stand_in))
        begins = np.cumsum(counts) - counts
        there = np.flatnonzero(counts[stand_in])
        slices = counts[stand_in[there]]
        of_row = np.repeat(np.arange(len(there)), slices)
        rows = np.arange(len(of_row)) + np.repeat(
            begins[stand_in[there]] - (np.cumsum(slices) - slices), slices
        )
        of_actors = [*run.actors()["ranks"].to_pylist(), ""]  # the last entry is for links without owner
        named = zip(links["ranks"].of_rows(there), links["actor"][there].tolist(), strict=True)
        return cls(
            resource=there,
            actor=links["actor"][there],
            dimension=links["dimension"][there],
            ranks=tuple(ranks or of_actors[actor] for ranks, actor in named),
            name=tuple(map(str, links["link"].of_rows(there))),
            tier=tuple(map(str, links["tier"].of_rows(there))),
            of_row=of_row,
            figures={figure: every[figure][rows] for figure in cls.FIGURES},
        )

    @property
    def has_links(self) -> bool:
        """Return whether the rows are links, which carry one message at a time."""
        return not (self.figures["wait_ns"] == NONE).any()


class PortTable(SliceTable, frozen=True, eq=False, kw_only=True):
    """Ports, each with the row of its link."""

    TABLE = "queues"
    OWNERS = ("resource",)
    FIGURES = ("start_ns", "end_ns", "mean_bytes", "deepest_bytes", "most_messages", *COUNTED)
    LEAST = NONE

    resource: Any

    def deepest_by_column(self, columns: int, begin: int, length: int) -> Any:
        """Return the largest queue, in bytes, of each port in each of `columns` equal parts of the time."""
        deepest = np.zeros((len(self.resource), columns), np.int64)
        start, end = self.figures["start_ns"] - begin, self.figures["end_ns"] - begin
        first = np.clip(start * columns // max(length, 1), 0, columns - 1)
        last = np.clip((np.maximum(end, start + 1) - 1) * columns // max(length, 1), 0, columns - 1)
        for step in range(int((last - first).max(initial=-1)) + 1):
            reaching = first + step <= last
            np.maximum.at(
                deepest,
                (self.of_row[reaching], first[reaching] + step),
                self.figures["deepest_bytes"][reaching],
            )
        return deepest


link_table = LinkTable.read
port_table = PortTable.read


class FlowTable(Struct, frozen=True, eq=False):
    """Messages, and the links on their paths."""

    figures: dict[str, Any]  # per message, by column
    mean_queue_ns: Any
    ways: Sequence[str]

    def __len__(self) -> int:
        return len(self.ways)

    def crossing(self) -> tuple[Any, Any]:
        """Return (message indices, link indices) with one entry for each link on each message's path."""
        counts = [way.count(" ") + 1 if way else 0 for way in self.ways]
        links = np.array(" ".join(filter(None, self.ways)).split(), np.int64)
        return np.repeat(np.arange(len(self.ways)), counts), links


def flow_table(run: RunDirectory) -> FlowTable | None:
    """Read the messages of a run; return None if they were not recorded."""
    if not run.holds("flows"):
        return None
    every = run.arrays("flows", (*FLOW_FIGURES, "mean_queue_ns"))
    ways = run.table("flows", ("way",))["way"].to_pylist()
    return FlowTable({name: every[name] for name in FLOW_FIGURES}, every["mean_queue_ns"], ways)
