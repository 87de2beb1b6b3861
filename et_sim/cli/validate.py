"""`et-sim validate`: compare predictions with measurements."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from et_sim.basics.declared_options import Argument, Command
from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.units import plural
from et_sim.cli.progress import Progress
from et_sim.cli.validate_serving import is_serving_file, left_lines, printed, status_of, validate

if TYPE_CHECKING:
    from et_sim.validation.predictions import Prediction
    from et_sim.validation.row import Row

WORST = 5
PERCENT = (("e", "E %"), ("g", "G %"), ("mape", "MAPE %"), ("bias", "bias %"), ("largest", "largest %"))


class Options(Command):
    """Predict every row of a file of measurements on the machine by name of its hardware, and print the
    errors by system, kind and size.
    """

    file: Annotated[
        Path | None,
        "tables.json, kernels.csv, iterations.json, steps.csv, serving.csv, or a log or folder of logs of"
        " MLPerf Training; without it, those of et-sim",
        "FILE",
        Argument(),
    ] = None
    machine: Annotated[str | None, "this machine for all rows, instead of those of the tables", "NAME"] = None
    table: Annotated[Sequence[str] | None, "only this table of the file", "NAME"] = None
    svg: Annotated[Path | None, "draw predicted by measured times", "FILE"] = None
    host_time: Annotated[
        str | None,
        "what the host takes to launch a kernel or collective of an iteration, such as 10us",
        "TIME",
    ] = None
    model: Annotated[str | None, "of logs of MLPerf: the model, if the benchmark is not one", "NAME"] = None
    plan: Annotated[str | None, "of logs of MLPerf: ranks of each axis, as 'tp1 pp1 dp8 zero1'", "TEXT"] = (
        None
    )
    precision: Annotated[str | None, "of logs of MLPerf: the datatype of products, as bf16", "NAME"] = None
    json: Annotated[bool, "print every row, and the errors, as JSON"] = False


def run(options: Options) -> int:
    """Predict and compare."""
    from et_sim.machine.presets import unchanged
    from et_sim.plan.host import KEY
    from et_sim.validation.predictions import predictions

    if options.file is not None and is_serving_file(options.file):
        return validate(options.file, options.machine, as_json=options.json)
    rows = _rows(options)
    machine = None if options.machine is None else unchanged(options.machine)
    changes = {} if options.host_time is None else {KEY: options.host_time}
    with Progress() as progress:
        progress.stage("predicting")
        each = progress.counted(predictions(rows, machine, changes), len(rows), "rows")
        all_predictions = list(printed(each, len(rows), _as_row) if options.json else each)
    if options.svg:
        _draw(all_predictions, options.svg)
    if options.json:
        print(f' "errors": {json.dumps(_errors(all_predictions))}}}')
    else:
        print("\n".join(_text(all_predictions)))
    return status_of(prediction.predicted_us is not None for prediction in all_predictions)


def _rows(options: Options) -> list[Row]:
    """Return the rows of the file that the options select."""
    from et_sim.validation.rows import measured_rows, shipped

    paths = [options.file] if options.file else shipped()
    rows = _of_logs(options) or [row for path in paths for row in measured_rows(path)]
    if not options.table:
        return rows
    known = tuple(dict.fromkeys(row.table for row in rows))
    for name in options.table:
        if name not in known:
            remedy = did_you_mean(name, known) or f"its tables: {', '.join(known)}"
            raise UsageError(f"{options.file or 'et-sim'} has no table {name!r}", remedy=remedy)
    return [row for row in rows if row.table in options.table]


def _of_logs(options: Options) -> list[Row]:
    """Return the rows of logs of MLPerf; none for other files."""
    from et_sim.validation.mlperf import StepOptions, is_mlperf, read_mlperf

    given = {"model": options.model, "plan": options.plan, "precision": options.precision}
    stated = {name: value for name, value in given.items() if value is not None}
    if options.file is not None and is_mlperf(options.file):
        return read_mlperf(options.file, StepOptions(**stated))
    if options.file is not None and options.file.is_dir():
        raise UsageError(
            f"no file *.txt in {options.file}, or in a folder below it, is a log of MLPerf Training",
            remedy="name the folder that holds the logs, or a file of measurements",
        )
    if stated:
        remedy = "leave it out, or name logs of MLPerf: other files state it"
        raise UsageError(f"--{next(iter(stated))} describes logs of MLPerf Training", remedy=remedy)
    return []


def _draw(predictions: list[Prediction], target: Path) -> None:
    """Draw predicted by measured times; kinds with the largest errors come first."""
    from et_sim.validation.rows import mape
    from et_sim.views.drawing.planes import MeasuredKind, measured_picture
    from et_sim.views.drawing.scene import write_picture

    kinds: dict[str, list[tuple[float, float]]] = {}
    for prediction in predictions:
        if prediction.predicted_us is not None and prediction.row.measured_us is not None:
            points = kinds.setdefault(prediction.row.kind.replace("_", "-"), [])
            points.append((prediction.row.measured_us, prediction.predicted_us))
    panels = [MeasuredKind(name, mape([p / m for m, p in points]), points) for name, points in kinds.items()]
    write_picture(measured_picture(sorted(panels, key=lambda panel: -panel.mape)), target, None)


def _as_row(prediction: Prediction) -> dict[str, Any]:
    return {
        "table": prediction.row.table,
        "row": prediction.row.number,
        "what": prediction.row.what,
        "hardware": prediction.row.hardware,
        "machine": prediction.machine,
        "measured_us": prediction.row.measured_us,
        "measured_low_us": prediction.row.interval_us and prediction.row.interval_us[0],
        "measured_high_us": prediction.row.interval_us and prediction.row.interval_us[1],
        "predicted_us": prediction.predicted_us,
        "low_us": prediction.band_us and prediction.band_us[0],
        "high_us": prediction.band_us and prediction.band_us[1],
        "how": prediction.how,
        "remarks": list(prediction.row.remarks),
    }


def _errors(predictions: list[Prediction]) -> list[dict[str, Any]]:
    """Return the errors by system, kind and size class, and over all sizes."""
    from msgspec import to_builtins

    from et_sim.validation.rows import Errors

    groups: dict[tuple[str, str], dict[str, list[Prediction]]] = {}
    for prediction in predictions:
        if prediction.machine is not None and prediction.ratio is not None:
            sizes = groups.setdefault((prediction.machine, prediction.row.kind), {})
            sizes.setdefault(prediction.row.size_class, []).append(prediction)
    for sizes in groups.values():
        if len(sizes) > 1:
            sizes["all"] = [prediction for of_size in sizes.values() for prediction in of_size]
    return [
        {
            "system": system,
            "kind": kind,
            "size": size,
            **to_builtins(
                Errors.of([prediction.ratio for prediction in of_size if prediction.ratio is not None])
            ),
            "in_band": _in_band(of_size),
            "width": _width(of_size),
        }
        for (system, kind), sizes in groups.items()
        for size, of_size in sizes.items()
    ]


def _in_band(of_size: list[Prediction]) -> float | None:
    """Return the percentage of rows whose band holds the measured time; None if no row has a band."""
    known = [inside for prediction in of_size if (inside := prediction.is_in_band) is not None]
    return 100 * sum(known) / len(known) if known else None


def _width(of_size: list[Prediction]) -> float | None:
    """Return the median ratio of the band's upper to its lower end; None if no row has a band."""
    from statistics import median

    known = [high / low for prediction in of_size if prediction.band_us for low, high in [prediction.band_us]]
    return median(known) if known else None


def _text(predictions: list[Prediction]) -> list[str]:
    from et_sim.basics.uncertainty import LEVEL
    from et_sim.views.sheet import Sheet, SheetColumn

    sheet = Sheet(
        (
            *(SheetColumn(name, side="<") for name in ("system", "kind", "size")),
            SheetColumn("rows"),
            *(SheetColumn(head, name, form="{:.1f}") for name, head in PERCENT),
            SheetColumn("in band %", "in_band", form="{:.0f}", missing="-"),
            SheetColumn("width", form="{:.2f}", missing="-"),
        )
    )
    errors = _errors(predictions)
    lines = sheet.lines(errors) if errors else []
    known = [(ratio - 1, prediction) for prediction in predictions if (ratio := prediction.ratio) is not None]
    known.sort(key=lambda pair: -abs(pair[0]))
    if known:
        lines += ["", f"furthest off, of {plural(len(known), 'row')}:"]
    lines += [
        f"  {prediction.row.table} row {prediction.row.number}: {prediction.row.what}:"
        f" measured {prediction.row.measured_us:,.6g} us,"
        f" predicted {prediction.predicted_us:,.6g} us ({100 * off:+.0f} %)"
        for off, prediction in known[:WORST]
    ]
    left = (
        (prediction.how, f"{prediction.row.table} row {prediction.row.number}")
        for prediction in predictions
        if prediction.predicted_us is None
    )
    lines += [*left_lines(left), *_remarks(predictions)]
    if known:
        lines.append(
            "E: exp of the mean |ln(predicted / measured)|, less one; G: geometric mean of relative errors"
        )
    if any(prediction.band_us is not None for prediction in predictions):
        lines.append(f"in band: measured within the band of {100 * LEVEL:.0f} % that the machine states")
        lines.append("width: the upper end of the band by its lower one, the median; above 2 it is too wide")
    return lines


def _remarks(predictions: list[Prediction]) -> list[str]:
    """Return the parts of the rows' descriptions that predictions do not use, with numbers of rows."""
    remarks = Counter(remark for prediction in predictions for remark in prediction.row.remarks)
    return [f"not used: {plural(count, 'row')}: {remark}" for remark, count in remarks.items()]
