"""The next best points of a search, what keeps each from being the best, and what is proved of all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from et_sim.basics.units import format_bytes
from et_sim.tables.sweep_tables import NUMBER
from et_sim.views.bands import ALIKE, BAND, band_text, contains_none
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.sweep.scales import SweepQuantity, band_of_points, quantity_named, shown
from et_sim.views.text import increase

Row = Mapping[str, Any]
NUMBERS = (int, float)


def next_best_lines(
    axes: Sequence[str], rows: Sequence[Row], search: Mapping[str, Any], quantity: SweepQuantity, width: int
) -> list[str]:
    """Return the best point and the next ones, the best first, with bands of the ratios to the best."""
    known = [row for row in rows if row[quantity.column] is not None]
    most = bool(search["maximise"])
    known.sort(key=lambda row: (-row[quantity.column] if most else row[quantity.column], row[NUMBER]))
    chosen = known[: search["runners_up"] + 1]
    if len(chosen) < 2:
        return []
    first = chosen[0]
    varied = [axis for axis in axes if len({row[axis] for row in chosen}) > 1]
    front = _on_front(chosen)
    sheet = Sheet(
        (
            SheetColumn("next", lambda row: "best" if row is first else str(row[NUMBER]), "<"),
            *(SheetColumn(axis, partial(_value, axis), _side(chosen, axis)) for axis in varied),
            SheetColumn(quantity.title, lambda row: quantity.shown(row[quantity.column])),
            SheetColumn("slower by", partial(_slower, first)),
            SheetColumn(BAND, lambda row: band_text(None if row is first else band_of_points(first, row))),
            SheetColumn("memory", partial(_memory, front)),
            SheetColumn("more", lambda row: search["why"].get(str(row[NUMBER]), ""), "<"),
        ),
        drop=(BAND, "slower by"),
    )
    return sheet.lines(chosen, width)


NOTE = (
    "* no plan of these has both less time and less memory. more: what the plan has more of than the best"
    " one, by their bounds."
)


def _on_front(rows: Sequence[Row]) -> set[int]:
    """Return the numbers of the rows that no other one beats in time and in memory."""
    least: float | None = None
    front = set()
    for row in sorted(rows, key=lambda row: (row["makespan_ns"], row["peak_memory_bytes"] or 0, row[NUMBER])):
        memory = row["peak_memory_bytes"]
        if memory is not None and (least is None or memory < least):
            least = memory
            front.add(row[NUMBER])
    return front


def _value(axis: str, row: Row) -> str:
    return shown(row[axis])


def _side(rows: Sequence[Row], axis: str) -> str:
    is_number = all(isinstance(row[axis], NUMBERS) and not isinstance(row[axis], bool) for row in rows)
    return ">" if is_number else "<"


def _slower(first: Row, row: Row) -> str:
    least = first["makespan_ns"]
    if row is first or row["makespan_ns"] <= least:
        return ""
    slower = increase(row["makespan_ns"] - least, least)
    return f"{ALIKE} {slower}" if contains_none(band_of_points(first, row)) else slower


def _memory(front: set[int], row: Row) -> str:
    peak = row["peak_memory_bytes"]
    return "" if peak is None else format_bytes(peak) + (" *" if row[NUMBER] in front else "  ")


def certificate(search: Mapping[str, Any]) -> str:
    """Return what is proved of the points that were not evaluated."""
    gap = search.get("gap")
    if gap is None:
        return ""
    (column,) = search["minimise"] or search["maximise"]
    title = quantity_named(column).title
    if search["maximise"]:
        limit = f" than the best one by over {gap:.1%}" if gap else ""
        return f"Certain: no plan of the space has more {title}{limit}, by their bounds."
    if not gap:
        return f"Certain: no plan of the space has less {title}, by their bounds."
    return (
        f"Certain: the {title} of the best one is at most {gap:.1%} above that of any plan of the space, by"
        " their bounds."
    )


def lost_text(search: Mapping[str, Any]) -> str:
    """Return how many points each reason keeps from being the best."""
    lost: Mapping[str, int] = search.get("lost", {})
    parts = [
        f"{count:,} {_OUTCOMES.get(reason, f'have more {reason}')}" for reason, count in lost.items() if count
    ]
    return f"others lose  {', '.join(parts)}" if parts else ""


_OUTCOMES = {"memory": "need more memory than there is", "not possible": "are not possible"}
