"""`et-sim calibrate serving`: fit times of an engine's host to a part of measured servings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.declared_options import Option
from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_ns, plural
from et_sim.cli.calibrate_report import OutputOptions, conclude

if TYPE_CHECKING:
    from et_sim.calibrate.servings import Fit


class Options(OutputOptions):
    """Fit a few times of an engine's host to a part of measured servings, and judge them on the other rows.
    Factors on kernels are not fitted. The result is a description of an engine: et-sim serve --engine FILE.
    """

    rows: Annotated[Path, "CSV of measured servings, with the columns of et-sim validate", "ROWS.csv"]
    part: Annotated[
        str,
        "the rows that are fitted: 1/2 is every second one, COLUMN=VALUE[,VALUE] those with a value",
        Option(),
    ]
    engine: Annotated[
        str | None,
        "engine whose rows are taken, and whose other figures stay (default: the only one)",
        "NAME",
    ] = None
    figures: Annotated[
        str | None,
        "times that are fitted, at most three of layer, expert-layer, pass, prompt-pass, before and"
        " before-layer (default: layer,before)",
        "NAMES",
    ] = None


def run(options: Options) -> int:
    """Fit, print the errors of both parts, and write the engine."""
    from et_sim.calibrate.servings import USUAL, description, fit, names_of, part_of
    from et_sim.documents.reading import csv_rows
    from et_sim.serving.engines.reading import read_engine
    from et_sim.validation.rows import text_of
    from et_sim.validation.serving_rows import read_servings

    names = names_of(USUAL if options.figures is None else options.figures.split(","))
    every = read_servings(options.rows)
    columns = [row for _, row in csv_rows(text_of(options.rows), str(options.rows))]
    part = part_of(every, columns, options.part)
    like = options.engine or _only_engine([row.backend for row in every])
    rows = [row for row in every if row.backend == like.partition(":")[0]]
    if not rows:
        raise UsageError(f"no row is of {like}", remedy="give the engine of the rows with --engine")
    found = fit(rows, part, names, read_engine(like))
    data: dict[str, Any] = {
        "engine": like,
        "part": options.part,
        "host_ns": dict(found.figures),
        "errors": _errors(found),
        "not_compared": dict(found.left_out),
    }
    return conclude(
        options, data, _text(found, like), lambda: description(found, like, options.part, options.rows)
    )


def _only_engine(backends: list[str]) -> str:
    names = sorted(set(backends))
    if len(names) > 1:
        raise UsageError(
            f"the rows are of {len(names)} engines", remedy=f"give --engine, one of {', '.join(names)}"
        )
    return names[0]


def _errors(found: Fit) -> list[dict[str, Any]]:
    """Return rows, MAPE and bias in percent by part and latency, before and after."""
    from et_sim.validation.rows import mape, mean_error

    return [
        {
            "part": part,
            "latency": latency,
            "rows": len(ratios),
            "mape_before": round(mape(old), 2),
            "bias_before": round(mean_error(old), 2),
            "mape": round(mape(ratios), 2),
            "bias": round(mean_error(ratios), 2),
        }
        for part, columns in found.after.items()
        for latency, ratios in columns.items()
        if ratios
        for old in [found.before[part][latency]]
    ]


def _text(found: Fit, like: str) -> Iterator[str]:
    from et_sim.basics.alignment import aligned

    times = ", ".join(f"{name} {format_ns(value)}" for name, value in found.figures.items())
    yield f"host of {like}: {times}"
    table: list[tuple[str, ...]] = [
        ("part", "latency", "rows", "before: MAPE %", "bias %", "after: MAPE %", "bias %")
    ]
    for each in _errors(found):
        figures = [f"{each[name]:.1f}" for name in ("mape_before", "bias_before", "mape", "bias")]
        table.append((each["part"], each["latency"].upper(), f"{each['rows']}", *figures))
    yield from aligned(table, "<<>>>>>")
    for why, count in found.left_out.items():
        yield f"not compared: {plural(count, 'row')}: {why}"
