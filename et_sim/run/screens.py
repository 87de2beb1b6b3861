"""A result on one screen, as text and as HTML for notebooks; and Arrow tables as frames of other libraries.

et-sim does not need these libraries; callers that want a frame have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib import import_module
from types import ModuleType
from typing import Any

from et_sim.basics.alignment import aligned
from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_ns, plural
from et_sim.tables.summary import RankFigures, Summary

SHOWN = 8
MOST_LETTERS = 24  # width of a list of ranks
FIGURES = (
    ("finish_ns", "finish"),
    ("compute_ns", "compute"),
    ("exposed_comm_ns", "exposed communication"),
    ("waiting_ns", "waiting"),
    ("host_ns", "host"),
    ("idle_ns", "idle"),
)
CELL = 'style="text-align: right"'


def library(name: str) -> ModuleType:
    """Return pandas or Polars, if it is installed."""
    try:
        return import_module(name)
    except ImportError:
        raise UsageError(f"{name} is not installed", remedy=f"pip install {name}") from None


def as_frame(table: Any) -> Any:
    """Return a pandas frame in which whole numbers and truth values with gaps keep their type."""
    import pyarrow as pa

    pandas = library("pandas")
    missing = {
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
        pa.uint64(): pandas.UInt64Dtype(),
        pa.bool_(): pandas.BooleanDtype(),
    }
    frame = table.to_pandas()
    for name in table.column_names:
        column = table.column(name)
        if column.null_count and column.type in missing:
            frame[name] = column.to_pandas(types_mapper=missing.get)
    return frame


def plain(summary: Summary) -> str:
    """Return the figures of a run, and of the ranks that finish last."""
    entries, more = _shown(summary)
    rows = [("ranks", *(title for _, title in FIGURES))]
    rows += [(_cut(entry["ranks"]), *_figures(entry)) for entry in entries]
    table = aligned(rows, ">" * len(rows[0]))
    return "\n".join([" · ".join(_facts(summary)), *table, *([more] if more else [])])


def html(summary: Summary) -> str:
    """Return the figures for a notebook."""
    makespan, *facts = map(escape, _facts(summary))
    entries, more = _shown(summary)
    head = "".join(f"<th {CELL}>{title}</th>" for _, title in FIGURES)
    rows = "".join(_row(entry) for entry in entries)
    table = f"<thead><tr><th>ranks</th>{head}</tr></thead><tbody>{rows}</tbody>"
    facts = [f"<b>{makespan}</b>", *facts]
    return f"<p>{' · '.join(facts)}</p><table>{table}</table>{f'<p>{more}</p>' if more else ''}"


def _facts(summary: Summary) -> tuple[str, ...]:
    state = {"complete": "makespan", "stalled": "stalled at"}.get(summary["status"], "out of memory at")
    folded = summary["folded"]
    return (
        f"{state} {format_ns(summary['makespan_ns'])}",
        f"{folded['ranks']:,} ranks, {folded['actors']:,} simulated",
        f"{summary['model']} network, {summary['profile']} profile",
    )


def _shown(summary: Summary) -> tuple[list[RankFigures], str]:
    """Return entries of the ranks that finish last, and a line on the others."""
    last = summary["makespan_ns"] + 1
    entries = sorted(summary["per_rank"], key=lambda entry: -(entry["finish_ns"] or last))
    hidden = len(entries) - SHOWN
    return entries[:SHOWN], f"… and {plural(hidden, 'line')} of faster ranks" if hidden > 0 else ""


def _figures(entry: Mapping[str, Any]) -> list[str]:
    return ["never" if entry[name] is None else format_ns(entry[name]) for name, _ in FIGURES]


def _cut(ranks: str) -> str:
    return ranks if len(ranks) <= MOST_LETTERS else f"{ranks[: MOST_LETTERS - 1]}…"


def _row(entry: Mapping[str, Any]) -> str:
    cells = "".join(f"<td {CELL}>{figure}</td>" for figure in _figures(entry))
    return f"<tr><td>{escape(_cut(entry['ranks']))}</td>{cells}</tr>"
