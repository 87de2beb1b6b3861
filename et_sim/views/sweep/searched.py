"""What a search found: the points that no other one dominates, in order, and what was not evaluated, and why.

Not here: how a front is found among what a sweep evaluated (`content`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from et_sim.tables.sweep_tables import NUMBER
from et_sim.views.sweep.bands import band_note
from et_sim.views.sweep.directory import SweepDirectory
from et_sim.views.sweep.scales import EXPOSED, MAKESPAN, RATES, RESOURCES, SweepQuantity, are_numbers, shown
from et_sim.views.text import fitted, not_shown

NARROWEST = 8
Row = Mapping[str, Any]


def front_rows(sweep: SweepDirectory, rows: Sequence[Row]) -> list[Row]:
    """The best points, in their order."""
    assert sweep.search is not None
    known = [
        row for row in rows if all(row[quantity.column] is not None for quantity in objectives_of(sweep))
    ]
    by_number = {row[NUMBER]: row for row in known}
    return [by_number[number] for number in sweep.search["front"] if number in by_number]


def objectives_of(sweep: SweepDirectory) -> tuple[SweepQuantity, ...]:
    """What a search looked for; empty, if none did."""
    if sweep.search is None:
        return ()
    known = {quantity.column: quantity for quantity in (MAKESPAN, EXPOSED, *RESOURCES, *RATES)}
    return tuple(
        known[name].of(sweep.table) for key in ("minimise", "maximise") for name in sweep.search[key]
    )


def search_lines(sweep: SweepDirectory, rows: Sequence[Row], most: int, width: int) -> list[str]:
    """What was looked at, and the best points."""
    search = sweep.search
    assert search is not None
    lines = wrap(searched(search), width, subsequent_indent=" " * 13)
    front = front_rows(sweep, rows)
    if not front:
        return [*lines, "", "No point that was evaluated is what was looked for."]
    lines += ["", *_table(sweep, front[:most], width)]
    lines += not_shown(len(front) - most, "more point", ": --json has all")
    lines += ["", *wrap(meaning(search), width)]
    if objectives_of(sweep) == (MAKESPAN,):
        done = sorted(filter(lambda row: row["makespan_ns"] is not None, rows), key=_by_makespan)
        lines += wrap(band_note(done), width)
    return lines


def _by_makespan(row: Row) -> tuple[int, int]:
    return row["makespan_ns"], row[NUMBER]


def searched(search: Mapping[str, Any]) -> str:
    total = sum(search[name] for name in ("evaluated", "impossible", "ruled_out", "left"))
    parts = [
        (search["evaluated"], "evaluated"),
        (search["ruled_out"], "ruled out by their bounds"),
        (search["impossible"], "that cannot run, or cannot meet the constraints"),
        (search["left"], "not looked at"),
    ]
    return f"points       {total:,}: " + ", ".join(
        f"{count:,} {outcome}" for count, outcome in parts if count
    )


def _table(sweep: SweepDirectory, front: Sequence[Row], width: int) -> list[str]:
    columns = objectives_of(sweep)
    cells = [["best", *sweep.axes, *(column.title for column in columns)]]
    for row in front:
        values = (shown(row[axis]) for axis in sweep.axes)
        cells.append([str(row[NUMBER]), *values, *(column.shown(row[column.column]) for column in columns)])
    sides = [">" if are_numbers(front, axis) else "<" for axis in sweep.axes]
    texts = [place for place, side in enumerate(sides, 1) if side == "<"]
    alignment = f"<{''.join(sides)}{'>' * len(columns)}"
    return fitted(cells, alignment, width, shrink=dict.fromkeys(texts, NARROWEST))


def meaning(search: Mapping[str, Any]) -> str:
    """How sure that is."""
    better = (
        "dominates one of these" if len(search["minimise"]) + len(search["maximise"]) > 1 else "is better"
    )
    models = [model for model in search.get("models", ()) if model]
    if search["left"]:
        return f"No evaluated point {better}; of those that were not looked at, nothing is known."
    if len(models) > 1:
        return f"No point {better} of those that were simulated on {models[-1]}: the best on {models[0]}."
    rest = ": those that were not evaluated cannot, by their bounds" if search["ruled_out"] else ""
    return f"No other point {better}{rest}."
