"""A result in a notebook: a short HTML summary, and its tables as frames of pandas or Polars.

Neither library is needed by et-sim; who asks for a frame has one of them. Not here: views of files
(`et_sim.views`).
"""

from __future__ import annotations

from html import escape
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from et_sim.errors import UsageError, did_you_mean
from et_sim.units import format_ns

if TYPE_CHECKING:
    from et_sim.timeline.result import Result

TABLES = ("timeline", "actors", "phases", "messages", "links", "memory")
SHOWN = 8
FIGURES = (
    ("finish_ns", "finish"),
    ("compute_ns", "compute"),
    ("exposed_comm_true_ns", "exposed communication"),
    ("idle_ns", "idle"),
)
CELL = 'style="text-align: right"'


def table_of(result: Result, name: str) -> Any:
    """One of the tables of a run, as it would be written."""
    import pyarrow as pa

    if name not in TABLES:
        remedy = did_you_mean(name, TABLES) or f"tables: {', '.join(TABLES)}"
        raise UsageError(f"there is no table {name!r}", remedy=remedy)
    if name == "actors":
        return result.actors_table()
    if name == "phases" and result.phases is not None:
        return pa.Table.from_batches(list(result.phase_batches()), result.phase_schema)
    if name == "messages" and result.messages is not None:
        return pa.Table.from_batches(list(result.message_batches()), result.message_schema)
    if name == "links" and result.records_links:
        return pa.Table.from_batches(list(result.link_batches()), result.link_schema)
    table = {"timeline": lambda: result.timeline, "memory": lambda: result.memory}.get(name, lambda: None)()
    if table is None:
        remedy = 'set "track-local-mem": 1' if name == "memory" else f'simulate with detail="{name}"'
        raise UsageError(f"this run has no table {name!r}", remedy=remedy)
    return table


def library(name: str) -> ModuleType:
    """pandas or Polars, if it is installed."""
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed", remedy=f"pip install {name}") from None


def html(result: Result) -> str:
    """The figures of a run, and of the ranks that finish last."""
    summary = result.summary()
    state = "makespan" if result.is_complete else "stalled at"
    folded = summary["folded"]
    facts = (
        f"<b>{state} {format_ns(summary['makespan_ns'])}</b> · {folded['ranks']:,} ranks, "
        f"{folded['actors']:,} simulated · {escape(summary['model'])} network, "
        f"{escape(summary['profile'])} profile"
    )
    entries = sorted(
        summary["per_rank"], key=lambda entry: -(entry["finish_ns"] or summary["makespan_ns"] + 1)
    )
    head = "".join(f"<th {CELL}>{title}</th>" for _, title in FIGURES)
    rows = "".join(_row(entry) for entry in entries[:SHOWN])
    hidden = len(entries) - SHOWN
    more = f"<p>… and {hidden:,} lines of faster ranks</p>" if hidden > 0 else ""
    table = f"<thead><tr><th>ranks</th>{head}</tr></thead><tbody>{rows}</tbody>"
    return f"<p>{facts}</p><table>{table}</table>{more}"


def _row(entry: dict[str, Any]) -> str:
    figures = ("never" if entry[name] is None else format_ns(entry[name]) for name, _ in FIGURES)
    cells = "".join(f"<td {CELL}>{figure}</td>" for figure in figures)
    return f"<tr><td>{escape(entry['ranks'])}</td>{cells}</tr>"
