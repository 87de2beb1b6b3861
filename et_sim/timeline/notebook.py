"""A result in a notebook: a short HTML summary, and the libraries that make frames of its tables.

Neither library is needed by et-sim; who asks for a frame has one of them. Not here: views of files
(`et_sim.views`).
"""

from __future__ import annotations

from html import escape
from importlib import import_module
from types import ModuleType
from typing import Any

from et_sim.errors import UsageError
from et_sim.units import format_ns

SHOWN = 8
FIGURES = (
    ("finish_ns", "finish"),
    ("compute_ns", "compute"),
    ("exposed_comm_true_ns", "exposed communication"),
    ("idle_ns", "idle"),
)
CELL = 'style="text-align: right"'


def library(name: str) -> ModuleType:
    """pandas or Polars, if it is installed."""
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed", remedy=f"pip install {name}") from None


def html(summary: dict[str, Any]) -> str:
    """The figures of a run, and of the ranks that finish last."""
    state = "makespan" if summary["status"] == "complete" else "stalled at"
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
