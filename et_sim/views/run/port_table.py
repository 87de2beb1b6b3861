"""queues.arrow as numpy columns: what packets met at each port, slice by slice of the time; and flows.arrow.

Not here: what is shown of them (`summary.queues`, `summary.flows`, `drawing.network`, `export.counters`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.views.run.columns import coded, integers, numbers
from et_sim.views.run.directory import RunDirectory

NONE = -1
NOT_RECORDED = "ports were not recorded: simulate with --network-model packet --detail ports"
COUNTED = ("lost", "marked", "pauses", "paused_ns")
FIGURES = ("start_ns", "end_ns", "deepest_bytes", "most_messages", *COUNTED)
ENDS = ("source", "target", "bytes", "begin_ns", "left_ns", "arrived_ns", "packets")
HOLDS = ("sent_again", "timeouts", "window_ns", "rate_ns", "paused_ns")
FLOW_FIGURES = (*ENDS, *HOLDS, "last_queue_ns")


@dataclass(frozen=True, slots=True, eq=False)
class PortTable:
    """Ports as they come in the table; `of_row` says which one a slice belongs to."""

    resource: Any  # the number of its link
    name: tuple[str, ...]
    tier: tuple[str, ...]
    of_row: Any
    mean: Any  # bytes, per slice
    figures: dict[str, Any]  # per slice, by column; -1: not known

    def where(self, mask: Any) -> PortTable:
        """Some of the slices; all ports keep their numbers."""
        figures = {name: column[mask] for name, column in self.figures.items()}
        return PortTable(self.resource, self.name, self.tier, self.of_row[mask], self.mean[mask], figures)

    def total(self, figure: str) -> Any:
        """Per port, the sum of a figure over its slices."""
        found = np.zeros(len(self.resource), np.int64)
        np.add.at(found, self.of_row, self.figures[figure])
        return found

    def most(self, figure: str) -> Any:
        """Per port, the most of a figure in any slice."""
        found = np.full(len(self.resource), NONE, np.int64)
        np.maximum.at(found, self.of_row, self.figures[figure])
        return found

    def deepest_by_column(self, columns: int, begin: int, length: int) -> Any:
        """Per port and part of the time, the most bytes at a time in the slices that touch it."""
        found = np.zeros((len(self.resource), columns), np.int64)
        start, end = self.figures["start_ns"] - begin, self.figures["end_ns"] - begin
        first = np.clip(start * columns // max(length, 1), 0, columns - 1)
        last = np.clip((np.maximum(end, start + 1) - 1) * columns // max(length, 1), 0, columns - 1)
        for step in range(int((last - first).max(initial=-1)) + 1):
            some = first + step <= last
            np.maximum.at(found, (self.of_row[some], first[some] + step), self.figures["deepest_bytes"][some])
        return found


def port_table(run: RunDirectory) -> PortTable | None:
    """The table of a run; None if ports were not recorded."""
    if not run.holds("queues"):
        return None
    columns = ("resource", "link", "tier", "mean_bytes", *FIGURES)
    parts: dict[str, list[Any]] = {name: [np.zeros(0, np.int64)] for name in columns}
    names: dict[str, list[str]] = {"link": [], "tier": []}
    for rows in run.batches("queues", columns):
        for name in columns:
            if name in names:
                names[name] = rows[name].dictionary.to_pylist()
                parts[name].append(coded(rows[name]))
            else:
                column = rows[name]
                parts[name].append(
                    numbers(column) if name == "mean_bytes" else integers(column, missing=NONE)
                )
    every = {name: np.concatenate(part) for name, part in parts.items()}
    first = np.flatnonzero(np.diff(every["resource"], prepend=NONE - 1))
    of_row = np.zeros(len(every["resource"]), np.int64)
    of_row[first] = 1
    return PortTable(
        resource=every["resource"][first],
        name=tuple(names["link"][code] for code in every["link"][first].tolist()),
        tier=tuple(names["tier"][code] for code in every["tier"][first].tolist()),
        of_row=np.cumsum(of_row) - 1,
        mean=every["mean_bytes"],
        figures={name: every[name] for name in FIGURES},
    )


@dataclass(frozen=True, slots=True, eq=False)
class FlowTable:
    """Messages, and the links on their ways."""

    figures: dict[str, Any]  # per message, by column
    mean_queue_ns: Any
    ways: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ways)

    def crossing(self) -> tuple[Any, Any]:
        """(messages, the number of a link on their way): a row for each such link."""
        counts = [way.count(" ") + 1 if way else 0 for way in self.ways]
        links = np.array(" ".join(filter(None, self.ways)).split(), np.int64)
        return np.repeat(np.arange(len(self.ways)), counts), links


def flow_table(run: RunDirectory) -> FlowTable | None:
    """The table of a run; None if it has none."""
    table = run.table("flows", (*FLOW_FIGURES, "mean_queue_ns", "way"))
    if table is None:
        return None
    figures = {name: integers(table[name], missing=NONE) for name in FLOW_FIGURES}
    return FlowTable(figures, numbers(table["mean_queue_ns"]), tuple(table["way"].to_pylist()))
