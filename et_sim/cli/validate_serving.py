"""`et-sim validate` on measured servings: rows, errors by group, and rows that are not expressed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.basics.units import plural
from et_sim.cli.progress import Progress

if TYPE_CHECKING:
    from et_sim.validation.serving_rows import ServedRow
    from et_sim.validation.servings import ServingPrediction

LATENCIES = ("tpot_ms", "ttft_ms")
GROUPS: tuple[tuple[str, Callable[[ServedRow], str]], ...] = (
    ("all", lambda _: "all"),
    ("campaign", lambda row: row.campaign),
    ("engine", lambda row: row.backend),
    ("GPU", lambda row: row.system),
    ("model", lambda row: row.model),
)
WORST = 5


def is_serving_file(path: Path | None) -> bool:
    """Check whether a file holds measured servings."""
    from et_sim.validation.serving_rows import is_serving

    if path is None or path.suffix.lower() != ".csv":
        return False
    try:
        with path.open(encoding="utf-8-sig") as file:
            return is_serving(file.readline().strip().split(","))
    except (OSError, UnicodeDecodeError):
        return False


def validate(path: Path, machine: str | None, *, as_json: bool) -> int:
    """Predict the rows of a file, and print them or their errors."""
    from et_sim.machine.presets import unchanged
    from et_sim.validation.serving_rows import read_servings
    from et_sim.validation.servings import predicted_servings

    rows = read_servings(path)
    with Progress() as progress:
        progress.stage("predicting")
        each = predicted_servings(rows, None if machine is None else unchanged(machine))
        counted = progress.counted(each, len(rows), "rows")
        found = list(printed(counted, len(rows), as_row) if as_json else counted)
    if as_json:
        print(f' "errors": {json.dumps(errors(found))}}}')
    else:
        print("\n".join(_text(found)))
    return status_of(prediction.found is not None for prediction in found)


def status_of(predicted: Iterable[bool]) -> int:
    """Return 0 if a row was predicted; otherwise print that none was, and return 1."""
    if any(predicted):
        return 0
    print("et-sim: error: no row is predicted (the reason of each row is above)", file=sys.stderr)
    return 1


def printed(predictions: Iterable[Any], count: int, as_row: Callable[[Any], dict[str, Any]]) -> Iterator[Any]:
    """Yield predictions, and print each at once as a line of a JSON list."""
    print('{"rows": [', flush=True)
    for number, prediction in enumerate(predictions, 1):
        print(json.dumps(as_row(prediction)) + ("," if number < count else "],"), flush=True)
        yield prediction


def as_row(prediction: ServingPrediction) -> dict[str, Any]:
    """Return a row with its prediction."""
    row, found = prediction.row, prediction.found
    return {
        "row": row.number,
        "campaign": row.campaign,
        "model": row.model,
        "system": row.system,
        "engine": row.engine,
        "machine": row.case.machine if row.case else None,
        "tpot_ms": row.tpot_ms,
        "predicted_tpot_ms": found and found.tpot_ms,
        "tpot_band_ms": found and found.tpot_band,
        "ttft_ms": row.ttft_ms,
        "predicted_ttft_ms": found and found.ttft_ms,
        "ttft_band_ms": found and found.ttft_band,
        "cache_full": found and found.is_full,
        "why": prediction.why,
    }


def errors(predictions: list[ServingPrediction]) -> list[dict[str, Any]]:
    """Return the errors of each group of rows."""
    table = []
    for kind, named in GROUPS:
        groups: dict[str, list[ServingPrediction]] = {}
        for prediction in predictions:
            groups.setdefault(named(prediction.row), []).append(prediction)
        for name, members in sorted(groups.items()):
            known = [each for each in members if each.found is not None]
            line: dict[str, Any] = {"by": kind, "name": name, "rows": len(members), "expressed": len(known)}
            for latency in LATENCIES:
                line |= _error(latency, known)
            table.append(line)
    return table


def _error(latency: str, predictions: list[ServingPrediction]) -> dict[str, Any]:
    """Return MAPE, bias and the share within the band of a latency, in percent; None without a row."""
    from et_sim.validation.rows import mape, mean_error

    word = latency.removesuffix("_ms")
    ratios = [ratio for each in predictions if (ratio := each.ratio(latency)) is not None]
    inside = [
        low <= measured <= high
        for each in predictions
        if (measured := getattr(each.row, latency)) is not None
        for low, high in [getattr(each.found, f"{word}_band") or (0.0, 0.0)]
        if high
    ]
    return {
        f"{word}_mape": mape(ratios) if ratios else None,
        f"{word}_bias": mean_error(ratios) if ratios else None,
        f"{word}_in_band": 100 * sum(inside) / len(inside) if inside else None,
    }


def _text(predictions: list[ServingPrediction]) -> list[str]:
    from et_sim.views.sheet import Sheet, SheetColumn

    figures = (("mape", "MAPE %"), ("bias", "bias %"), ("in_band", "in band %"))
    sheet = Sheet(
        (
            SheetColumn("by", side="<"),
            SheetColumn("name", side="<"),
            SheetColumn("rows"),
            SheetColumn("expressed"),
            *(
                SheetColumn(f"{word.upper()} {text}", f"{word}_{key}", form="{:.1f}", missing="-")
                for word in ("tpot", "ttft")
                for key, text in figures
            ),
        )
    )
    lines = sheet.lines(errors(predictions))
    known = [each for each in predictions if each.ratio("tpot_ms") is not None]
    known.sort(key=lambda each: -abs((each.ratio("tpot_ms") or 1) - 1))
    if known:
        lines += ["", f"furthest off in time per output token, of {plural(len(known), 'row')}:"]
    for each in known[:WORST]:
        row, found = each.row, each.found
        of = f"row {row.number}: {row.model} on {row.system} by {row.engine or 'an engine'}"
        lines.append(f"  {of}: {found.tpot_ms if found else 0:.4g} ms, measured {row.tpot_ms:.4g} ms")
    left = ((each.why, f"row {each.row.number}") for each in predictions if each.found is None)
    return [*lines, "", *left_lines(left), "campaign A queued requests: its TTFT is not comparable"]


def left_lines(left: Iterable[tuple[str, str]]) -> list[str]:
    """Return the reasons for which rows are not predicted, each with its number of rows and the first one.

    `left` has the reason and the name of each such row.
    """
    rows_of: dict[str, list[str]] = {}
    for why, row in left:
        rows_of.setdefault(why, []).append(row)
    return [
        f"not predicted: {plural(len(rows), 'row')}{', the first' if rows[1:] else ''}, {rows[0]}: {why}"
        for why, rows in rows_of.items()
    ]
