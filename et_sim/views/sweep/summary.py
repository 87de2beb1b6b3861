"""A sweep on one screen: the best points, the effect of each axis, changes of the bottleneck, and
failures."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from textwrap import wrap
from types import MappingProxyType
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_bytes, format_ns, plural
from et_sim.tables.sweep_tables import FILES, MADE_OF, NUMBER, RUNS
from et_sim.views.bands import ALIKE, BAND, band_text, contains_none
from et_sim.views.sheet import Sheet, SheetColumn
from et_sim.views.sweep.directory import COMPLETE, SweepDirectory
from et_sim.views.sweep.next_best import NOTE, certificate, lost_text, next_best_lines
from et_sim.views.sweep.scales import (
    MAKESPAN,
    SweepQuantity,
    are_numbers,
    band_note,
    band_of_points,
    quantity_named,
    shown,
)
from et_sim.views.text import increase, not_shown, share, terminal_width

MOST_VALUES = 12  # distinct values of a numeric axis; more are grouped
PARTS = 8


class Effect(Struct, frozen=True):
    """The points of one value of an axis, or of a range of numbers."""

    axis: str
    value: Any
    until: Any  # the end of the range; the same for a single value
    points: int
    least_ns: int
    mean_ns: int


class Turn(Struct, frozen=True):
    """Neighbouring values of an axis between which the bottleneck changes, if all else is equal."""

    axis: str
    value: Any
    to: Any
    bottleneck: str
    becomes: str
    times: int
    of: int  # pairs of points that differ only in these two values


def effects_of(rows: Sequence[Mapping[str, Any]], axis: str) -> list[Effect]:
    """Return makespans of complete points by the values of an axis, in order."""
    effects = []
    for span in _spans(_ordered(rows, axis)):
        inside = set(span)
        times = [row["makespan_ns"] for row in rows if row[axis] in inside]
        effects.append(
            Effect(axis, span[0], span[-1], len(times), min(times), round(sum(times) / len(times)))
        )
    return effects


def _ordered(rows: Sequence[Mapping[str, Any]], axis: str) -> list[Any]:
    """Return numbers by size, words in the order of the sweep."""
    values = list(dict.fromkeys(row[axis] for row in rows))
    is_number = all(isinstance(value, int | float) for value in values)
    return sorted(values) if is_number else values


def _spans(values: list[Any]) -> list[list[Any]]:
    """Return each value by itself, or ranges of neighbours if there are many numbers."""
    if len(values) <= MOST_VALUES or not all(isinstance(value, int | float) for value in values):
        return [[value] for value in values]
    cuts = [len(values) * part // PARTS for part in range(PARTS + 1)]
    return [values[first:last] for first, last in pairwise(cuts)]


def turns_of(rows: Sequence[Mapping[str, Any]], axes: Sequence[str], axis: str) -> list[Turn]:
    """Return the places along an axis where the bottleneck changes."""
    others = [name for name in axes if name != axis]
    place = {value: number for number, value in enumerate(_ordered(rows, axis))}
    lines: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        lines.setdefault(tuple(row[name] for name in others), []).append(row)
    pairs: Counter[tuple[Any, Any]] = Counter()
    changes: Counter[tuple[Any, Any, str, str]] = Counter()
    for line in lines.values():
        line.sort(key=lambda row: place[row[axis]])
        for before, after in pairwise(line):
            ends = before[axis], after[axis]
            pairs[ends] += ends[0] != ends[1]
            if before["bottleneck"] != after["bottleneck"]:
                changes[(*ends, before["bottleneck"], after["bottleneck"])] += 1
    order = sorted(
        changes.items(), key=lambda item: (place[item[0][0]], place[item[0][1]], -item[1], item[0][2:])
    )
    return [Turn(axis, *ends, times, pairs[ends[:2]]) for ends, times in order]


USUAL_TOP = 5
MOST_TURNS = 12
NARROWEST = 8
POINT_FIGURES = ("makespan", "slower by", BAND, "memory", "most time goes to")
DROPPED = (BAND, "memory", "slower by")  # columns, in the order in which they are dropped
Row = Mapping[str, Any]


def sweep_text(sweep: SweepDirectory, top: int | None = None) -> str:
    """Return the results of a sweep."""
    rows = sweep.table.to_pylist()
    done = complete(rows)
    most, width = _top(top), terminal_width()
    lines = [counted(sweep, rows)]
    if sweep.search is not None:
        lines = search_lines(sweep, rows, most, width)
    elif done:
        in_order = _in_order(done)
        lines += ["", *_best(sweep, done, most, width)]
        lines += wrap(band_note(done), width)
        lines += ["", *_effects(sweep, in_order, width)]
        lines += _turns(sweep, in_order, width)
    lines += _failures(rows, most, width)
    return "\n".join(lines)


def sweep_json(
    sweep: SweepDirectory, top: int | None = None, more: Mapping[str, Any] = MappingProxyType({})
) -> str:
    """Return the results as JSON, with the keys of `more`; without `top`, all points."""
    rows = sweep.table.to_pylist()
    done = complete(rows)
    best, in_order = done if top is None else done[: _top(top)], _in_order(done)
    content = {
        "points": sweep.points,
        "evaluated": len(rows),
        "status": dict(Counter(row["status"] for row in rows)),
        "axes": list(sweep.axes),
        **({} if sweep.search is None else {"search": sweep.search}),
        "best": [_as_json(done[0], row) for row in best],
        "effects": [to_builtins(effect) for axis in sweep.axes for effect in effects_of(in_order, axis)],
        "turns": [to_builtins(turn) for axis in sweep.axes for turn in turns_of(in_order, sweep.axes, axis)],
        "failures": [
            {NUMBER: row[NUMBER], "status": row["status"], "error": row["error"]}
            for row in rows
            if row["status"] != COMPLETE
        ],
        **more,
    }
    return json.dumps(content, indent=2, ensure_ascii=False)


def _as_json(first: Row, row: Row) -> dict[str, Any]:
    """Return a point, and by how much it may be slower than the best one."""
    values = {name: value for name, value in row.items() if value is not None and name != MADE_OF}
    band = None if row is first else band_of_points(first, row)
    return values if band is None else {**values, "slower_by_band": band}


def _top(top: int | None) -> int:
    if top is not None and top < 1:
        raise UsageError(f"cannot show {top} lines", place="--top", remedy="give a number from 1")
    return USUAL_TOP if top is None else top


def complete(rows: Sequence[Row]) -> list[Row]:
    """Return complete points, the fastest first; equal ones in the order of points."""
    done = [row for row in rows if row["status"] == COMPLETE]
    return sorted(done, key=lambda row: (row["makespan_ns"], row[NUMBER]))


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """Return rows in the order of points, so that words on axes keep the order of the sweep."""
    return sorted(rows, key=lambda row: row[NUMBER])


def counted(sweep: SweepDirectory, rows: Sequence[Row]) -> str:
    """Return the number of points by status."""
    counts = Counter(row["status"] for row in rows)
    statuses = ", ".join(f"{count:,} {status}" for status, count in counts.most_common())
    left = sweep.points - len(rows)
    more = f"; {left:,} not evaluated yet" if left else ""
    return f"points       {sweep.points:,}: {statuses or 'none evaluated'}{more}"


def run_name(row: Row) -> str:
    """Return the name of the directory of a point's run."""
    return str(row["digest"][:12])


def is_kept(sweep: SweepDirectory, row: Row) -> bool:
    """Return whether the directory of a point's run exists."""
    return (sweep.path / RUNS / run_name(row)).is_dir()


def _best(sweep: SweepDirectory, done: Sequence[Row], most: int, width: int) -> list[str]:
    has_memory = any(row["peak_memory_bytes"] is not None for row in done)
    figures = {row[NUMBER]: figures_of_point(done[0], row) for row in done[:most]}
    columns = [SheetColumn("best", lambda row: str(row[NUMBER]), "<"), *axis_columns(sweep, done)]
    for at, name in enumerate(POINT_FIGURES):
        side, is_optional = "<" if at == len(POINT_FIGURES) - 1 else ">", name != "memory" or not has_memory
        columns.append(SheetColumn(name, partial(_figure, figures, at), side, is_optional))
    columns.append(
        SheetColumn("run", lambda row: f"{RUNS}/{run_name(row)}" if is_kept(sweep, row) else "", "<", True)
    )
    texts = tuple(_key(axis) for axis in sweep.axes if not are_numbers(done, axis))
    return Sheet(tuple(columns), dict.fromkeys(texts, NARROWEST), DROPPED, texts).lines(done[:most], width)


def _figure(figures: Mapping[int, Sequence[str]], at: int, row: Row) -> str:
    return figures[row[NUMBER]][at]


def axis_columns(sweep: SweepDirectory, rows: Sequence[Row]) -> tuple[SheetColumn, ...]:
    """Return a column for each axis; numbers are aligned to the right."""
    return tuple(
        SheetColumn(
            axis,
            partial(_value, axis),
            ">" if are_numbers(rows, axis) else "<",
            is_optional=True,
            key=_key(axis),
        )
        for axis in sweep.axes
    )


def _key(axis: str) -> str:
    """Return a key that differs from those of figures, since an axis may share its name with one."""
    return f"axis {axis}"


def _value(axis: str, row: Row) -> str:
    return shown(row[axis])


def figures_of_point(first: Row, row: Row) -> tuple[str, ...]:
    """Return POINT_FIGURES as text, relative to the best; `≈ 3 %` if the point may not be slower."""
    slower, band = "", None
    if row is not first:
        least, band = first["makespan_ns"], band_of_points(first, row)
        slower = increase(row["makespan_ns"] - least, least) if row["makespan_ns"] > least else ""
        slower = f"{ALIKE} {slower}".strip() if contains_none(band) else slower
    peak = row["peak_memory_bytes"]
    memory = "" if peak is None else format_bytes(peak)
    return format_ns(row["makespan_ns"]), slower, band_text(band), memory, longest_part(row)


def longest_part(row: Row) -> str:
    """Return the activity with the most time, and its share."""
    return f"{row['bottleneck']} {share(row['bottleneck_share'] or 0, 1)}"


def _effects(sweep: SweepDirectory, done: Sequence[Row], width: int) -> list[str]:
    rows: list[tuple[str, Effect, str]] = []
    for axis in sweep.axes:
        effects = effects_of(done, axis)
        least = min(effect.mean_ns for effect in effects)
        for number, effect in enumerate(effects):
            slower = increase(effect.mean_ns - least, least) if effect.mean_ns > least else ""
            rows.append(
                (axis if number == 0 else "", effect, f"+{slower}" if slower[:1].isdecimal() else slower)
            )
    return EFFECTS.lines(rows, width)


def _span(effect: Effect) -> str:
    return (
        shown(effect.value)
        if effect.value == effect.until
        else f"{shown(effect.value)} to {shown(effect.until)}"
    )


def _turns(sweep: SweepDirectory, done: Sequence[Row], width: int) -> list[str]:
    """Return the table of changes of the bottleneck, if all other axes are equal."""
    if len({row["bottleneck"] for row in done}) < 2:
        return ["", *wrap(f"Most time goes to {done[0]['bottleneck']} at every point.", width)]
    turns = [turn for axis in sweep.axes for turn in turns_of(done, sweep.axes, axis)]
    if not turns:
        return []
    return [
        "",
        *TURNS.lines(turns[:MOST_TURNS], width),
        *not_shown(len(turns) - MOST_TURNS, "more change", ": --json has all"),
    ]


EFFECTS = Sheet(
    (
        SheetColumn("axis", 0, "<"),
        SheetColumn("value", lambda row: _span(row[1])),
        SheetColumn("points", lambda row: f"{row[1].points:,}"),
        SheetColumn("best", lambda row: format_ns(row[1].least_ns)),
        SheetColumn("mean", lambda row: format_ns(row[1].mean_ns)),
        SheetColumn("", 2),
    ),
    cut={"axis": 16, "value": NARROWEST},
    names=("axis", "value"),
)
_PLACE = "where the bottleneck changes"
TURNS = Sheet(
    (
        SheetColumn(_PLACE, lambda turn: f"{turn.axis}: {shown(turn.value)} -> {shown(turn.to)}", "<"),
        SheetColumn("from", "bottleneck", "<"),
        SheetColumn("to", "becomes", "<"),
        SheetColumn("pairs of points", lambda turn: f"{turn.times:,} of {turn.of:,}"),
    ),
    cut={_PLACE: 24},
    names=(_PLACE,),
)


def _failures(rows: Sequence[Row], most: int, width: int) -> list[str]:
    reasons: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        if row["status"] != COMPLETE:
            reasons.setdefault((row["status"], row["error"] or ""), []).append(row[NUMBER])
    lines: list[str] = []
    for (status, reason), numbers in list(reasons.items())[:most]:
        others = f" and {plural(len(numbers) - 1, 'other')}" if len(numbers) > 1 else ""
        lines += ["", *wrap(f"point {numbers[0]}{others} {status}: {reason}", width)]
    if len(reasons) > most:
        lines += ["", f"… and {plural(len(reasons) - most, 'more reason')}: column error of {FILES['sweep']}"]
    return lines


def front_rows(sweep: SweepDirectory, rows: Sequence[Row]) -> list[Row]:
    """Return the best points of a search, in their order."""
    assert sweep.search is not None
    known = [
        row for row in rows if all(row[quantity.column] is not None for quantity in objectives_of(sweep))
    ]
    by_number = {row[NUMBER]: row for row in known}
    return [by_number[number] for number in sweep.search["front"] if number in by_number]


def objectives_of(sweep: SweepDirectory) -> tuple[SweepQuantity, ...]:
    """Return the objectives of a search; empty if there was none."""
    if sweep.search is None:
        return ()
    return tuple(
        quantity_named(name).of(sweep.table) for key in ("minimise", "maximise") for name in sweep.search[key]
    )


def search_lines(sweep: SweepDirectory, rows: Sequence[Row], most: int, width: int) -> list[str]:
    """Return the counts of evaluated points, and the best points."""
    search = sweep.search
    assert search is not None
    lines = wrap(searched(search), width, subsequent_indent=" " * 13)
    lines += wrap(lost_text(search), width, subsequent_indent=" " * 13)
    front = front_rows(sweep, rows)
    if not front:
        return [*lines, "", "No evaluated point meets the search's conditions."]
    lines += ["", *_table(sweep, front[:most], width)]
    lines += not_shown(len(front) - most, "more point", ": --json has all")
    if search.get("runners_up") and len(objectives_of(sweep)) == 1:
        of_next = next_best_lines(sweep.axes, rows, search, objectives_of(sweep)[0], width)
        lines += ["", *of_next, "", *wrap(NOTE, width)] if of_next else []
    lines += ["", *wrap(certainty(search), width)]
    if objectives_of(sweep) == (MAKESPAN,):
        done = sorted(
            filter(lambda row: row["makespan_ns"] is not None, rows),
            key=lambda row: (row["makespan_ns"], row[NUMBER]),
        )
        lines += wrap(band_note(done), width)
    return lines


def searched(search: Mapping[str, Any]) -> str:
    total = sum(search[name] for name in ("evaluated", "impossible", "ruled_out", "left"))
    parts = [
        (search["evaluated"], "evaluated"),
        (search["ruled_out"], "ruled out by their bounds"),
        (search["impossible"], "that cannot run, or cannot meet the constraints"),
        (search["left"], "not evaluated"),
    ]
    return f"points       {total:,}: " + ", ".join(
        f"{count:,} {outcome}" for count, outcome in parts if count
    )


def _table(sweep: SweepDirectory, front: Sequence[Row], width: int) -> list[str]:
    objectives = tuple(
        SheetColumn(quantity.title, partial(_objective, quantity)) for quantity in objectives_of(sweep)
    )
    axes = [replace(column, is_optional=False) for column in axis_columns(sweep, front)]
    texts = [_key(axis) for axis in sweep.axes if not are_numbers(front, axis)]
    best = SheetColumn("best", lambda row: str(row[NUMBER]), "<")
    return Sheet((best, *axes, *objectives), dict.fromkeys(texts, NARROWEST)).lines(front, width)


def _objective(quantity: SweepQuantity, row: Row) -> str:
    return quantity.shown(row[quantity.column])


def certainty(search: Mapping[str, Any]) -> str:
    """Return what is certain of the points that were not evaluated."""
    is_proved = search["left"] or search.get("gap")
    return (certificate(search) if is_proved else "") or meaning(search)


def meaning(search: Mapping[str, Any]) -> str:
    """Return how certain the result of a search is."""
    better = (
        "dominates one of these" if len(search["minimise"]) + len(search["maximise"]) > 1 else "is better"
    )
    models = [model for model in search.get("models", ()) if model]
    if search["left"]:
        return f"No evaluated point {better}; points that were not evaluated may be."
    if len(models) > 1:
        return f"No point {better} of those that were simulated on {models[-1]}: the best on {models[0]}."
    rest = ": those that were not evaluated cannot, by their bounds" if search["ruled_out"] else ""
    return f"No other point {better}{rest}."
