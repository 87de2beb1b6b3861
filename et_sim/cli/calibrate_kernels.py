"""`et-sim calibrate kernels`: fit what a machine's device makes of kernels to measured ones.

Not here: the fit (`et_sim.calibrate.kernels`), and how errors are shown (`calibrate_report`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.cli.calibrate_report import ALL, all_errors, by_class, error_data, error_lines

if TYPE_CHECKING:
    from et_sim.calibrate.kernels import Fit, Measured


def add_parser(commands: Any) -> None:
    """Register the sub-command."""
    parser = commands.add_parser(
        "kernels",
        help="kernels: a CSV of shapes and times",
        description="Fit what a machine's device makes of kernels: parts of the peak by size of tile, what"
        " launches, tiles and splits take besides, and parts of the bandwidth. Rows are those that et-sim"
        " validate reads: table,shape,us, with gpu and dtype in a JSON file beside it.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="kernels as CSV")
    parser.add_argument("--table", action="append", default=[], metavar="NAME", help="only this table")
    add_fit_options(parser)
    parser.set_defaults(run=run)


def add_fit_options(parser: argparse.ArgumentParser) -> None:
    """What every fit of kernels has."""
    parser.add_argument("--machine", required=True, metavar="NAME", help="the machine that was measured")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the machine here")
    parser.add_argument("--json", action="store_true", help="print the fit and its errors as JSON")


def run(options: argparse.Namespace) -> int:
    """Read, and fit."""
    from et_sim.calibrate.kernel_rows import read_kernels

    machine = options.machine.partition(":")[0]
    rows, left = read_kernels(options.file, machine, options.table)
    return fit_kernels(options, rows, [f"left out: {one}" for one in left])


def fit_kernels(options: argparse.Namespace, rows: Sequence[Measured], notes: Sequence[str]) -> int:
    """Fit, say how far off it is, and write the machine."""
    import numpy as np

    from et_sim.calibrate.kernels import Kernels, fit, left_out
    from et_sim.calibrate.kernels_written import NAME, device_changes, device_of
    from et_sim.calibrate.machine_file import calibrated_machine, files_text
    from et_sim.views.files import write_json

    machine = options.machine.partition(":")[0]
    before, kernels = device_of(machine), Kernels.of(rows)
    found = fit(before, kernels)
    ratios = kernels.ratios(found.device, np.arange(len(rows))).tolist()
    fitted = _classes(list(zip(rows, ratios, strict=True)))
    held_out = _classes(list(left_out(found.device, kernels)))
    if options.json:
        data = {
            "fitted_figures": found.fitted,
            "unknown": list(found.unknown),
            "notes": list(notes),
            "fitted": all_errors(fitted),
            "left_out": all_errors(held_out),
        }
        print(json.dumps(data, indent=2))
    else:
        print("\n".join((*_text(found, fitted, held_out), *notes)))
    if options.output:
        changes = {"device": device_changes(machine, before, found.device)}
        errors = error_data(fitted, held_out)
        new = calibrated_machine(machine, changes, files_text([options.file]), NAME, errors, adds=True)
        write_json(new, options.output)
    return 0


def _classes(rows: Sequence[tuple[Measured, float]]) -> dict[str, list[float]]:
    """By kind and size, and each kind as a whole if it has several sizes."""
    found = by_class((row.size_class, ratio) for row, ratio in rows)
    kinds = by_class((f"{row.size_class.partition(',')[0]}, {ALL}", ratio) for row, ratio in rows)
    several = {name for name in kinds if sum(one.split(",")[0] == name.split(",")[0] for one in found) > 1}
    return dict(sorted({**found, **{name: kinds[name] for name in several}}.items()))


def _text(found: Fit, fitted: dict[str, list[float]], held_out: dict[str, list[float]]) -> Iterator[str]:
    yield f"{found.rows} rows, {len(found.fitted)} figures:"
    for name, value in found.fitted.items():
        unit = " ns" if name in ("launch-overhead", "split-time") else ""
        yield f"  {name}: {value:g}{unit}"
    yield from error_lines("kernels", fitted, held_out)
    for one in found.unknown:
        yield f"unknown: {one}"
