"""`et-sim validate`: hold predictions against measurements."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from et_sim.validation.predictions import Prediction

WORST = 5
COLUMNS = ("system", "kind", "size", "rows", "E %", "G %", "MAPE %", "bias %", "largest %", "in band %")


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "validate",
        description="Predict every row of a file of measurements on the machine by name that its hardware is,"
        " and say how far it is off: by system, kind and size.",
    )
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="tables.json, kernels.csv or iterations.json; without it, the measurements of et-sim itself",
    )
    parser.add_argument(
        "--machine", metavar="NAME", help="this machine for all rows, whatever the tables name"
    )
    parser.add_argument("--table", action="append", metavar="NAME", help="only this table of the file")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw predicted by measured times")
    parser.add_argument(
        "--host-time",
        metavar="TIME",
        help="what the host takes to launch a kernel or collective of an iteration, such as 10us",
    )
    parser.add_argument("--json", action="store_true", help="print every row, and the errors, as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Predict and compare."""
    from et_sim.basics.errors import UsageError, did_you_mean
    from et_sim.cli.progress import Progress
    from et_sim.machine.presets import unchanged
    from et_sim.plan.host import KEY
    from et_sim.validation.predictions import predictions
    from et_sim.validation.rows import read_rows, shipped

    paths = [options.file] if options.file else shipped()
    rows = [row for path in paths for row in read_rows(path)]
    machine = None if options.machine is None else unchanged(options.machine)
    if options.table:
        known = tuple(dict.fromkeys(row.table for row in rows))
        for name in options.table:
            if name not in known:
                remedy = did_you_mean(name, known) or f"its tables: {', '.join(known)}"
                raise UsageError(f"{options.file or 'et-sim'} has no table {name!r}", remedy=remedy)
        rows = [row for row in rows if row.table in options.table]
    changes = {} if options.host_time is None else {KEY: options.host_time}
    with Progress() as progress:
        progress.stage("predicting")
        found = list(progress.counted(predictions(rows, machine, changes), len(rows), "rows"))
    if options.svg:
        _draw(found, options.svg)
    if options.json:
        print(json.dumps({"rows": [_as_row(one) for one in found], "errors": _errors(found)}, indent=1))
    else:
        print("\n".join(_text(found)))
    return 0


def _draw(found: list[Prediction], target: Path) -> None:
    """Kinds with the largest errors first."""
    from et_sim.views.drawing.planes import Kind, measured_picture
    from et_sim.views.drawing.scene import write_picture

    kinds: dict[str, list[tuple[float, float]]] = {}
    for one in found:
        if one.predicted_us is not None and one.row.measured_us is not None:
            points = kinds.setdefault(one.row.kind.replace("_", "-"), [])
            points.append((one.row.measured_us, one.predicted_us))
    mape = {name: sum(abs(p / m - 1) for m, p in points) / len(points) for name, points in kinds.items()}
    worst = sorted(kinds, key=lambda name: -mape[name])
    write_picture(
        measured_picture([Kind(name, 100 * mape[name], kinds[name]) for name in worst]), target, None
    )


def _as_row(one: Prediction) -> dict[str, Any]:
    return {
        "table": one.row.table,
        "row": one.row.number,
        "what": one.row.what,
        "hardware": one.row.hardware,
        "machine": one.machine,
        "measured_us": one.row.measured_us,
        "predicted_us": one.predicted_us,
        "low_us": one.band_us and one.band_us[0],
        "high_us": one.band_us and one.band_us[1],
        "how": one.how,
    }


def _errors(found: list[Prediction]) -> list[dict[str, Any]]:
    """By system, kind and size class, and of all rows of a system and kind."""
    from msgspec import to_builtins

    from et_sim.validation.errors import Errors

    groups: dict[tuple[str, str], dict[str, list[Prediction]]] = {}
    for one in found:
        if one.machine is not None and one.ratio is not None:
            sizes = groups.setdefault((one.machine, one.row.kind), {})
            sizes.setdefault(one.row.size_class, []).append(one)
    for sizes in groups.values():
        if len(sizes) > 1:
            sizes["all"] = [one for some in sizes.values() for one in some]
    return [
        {
            "system": system,
            "kind": kind,
            "size": size,
            **to_builtins(Errors.of([one.ratio for one in some if one.ratio is not None])),
            "in_band": _in_band(some),
        }
        for (system, kind), sizes in groups.items()
        for size, some in sizes.items()
    ]


def _in_band(some: list[Prediction]) -> float | None:
    """In how many percent of the rows with a band it holds what was measured; None: none has one."""
    known = [inside for one in some if (inside := one.is_in_band) is not None]
    return 100 * sum(known) / len(known) if known else None


def _text(found: list[Prediction]) -> list[str]:
    from et_sim.basics.uncertainty import LEVEL
    from et_sim.basics.units import plural
    from et_sim.views.text import aligned

    cells = [list(COLUMNS)]
    for group in _errors(found):
        numbers = (f"{group[name]:.1f}" for name in ("e", "g", "mape", "bias", "largest"))
        inside = "-" if group["in_band"] is None else f"{group['in_band']:.0f}"
        cells.append([group["system"], group["kind"], group["size"], f"{group['rows']:,}", *numbers, inside])
    lines = aligned(cells, "<<<>>>>>>>") if len(cells) > 1 else []
    known = [(ratio - 1, one) for one in found if (ratio := one.ratio) is not None]
    known.sort(key=lambda pair: -abs(pair[0]))
    if known:
        lines += ["", f"furthest off, of {plural(len(known), 'row')}:"]
    lines += [
        f"  {one.row.table} row {one.row.number}: {one.row.what}: measured {one.row.measured_us:,.6g} us,"
        f" predicted {one.predicted_us:,.6g} us ({100 * off:+.0f} %)"
        for off, one in known[:WORST]
    ]
    left: dict[str, int] = {}
    for one in found:
        if one.predicted_us is None:
            left[one.how] = left.get(one.how, 0) + 1
    lines += [f"not predicted: {plural(count, 'row')}: {why}" for why, count in left.items()]
    lines.append(
        "E: exp of the mean |ln(predicted / measured)|, less one; G: geometric mean of relative errors"
    )
    if any(one.band_us is not None for one in found):
        lines.append(f"in band: measured within the band of {100 * LEVEL:.0f} % that the machine states")
    return lines
