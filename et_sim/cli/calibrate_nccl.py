"""`et-sim calibrate nccl`: fit a machine's collective library to measured collectives.

Not here: the fit (`et_sim.calibrate.collectives`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import UsageError
from et_sim.cli.calibrate_report import ALL, all_errors, error_data, error_lines

if TYPE_CHECKING:
    from et_sim.calibrate.collectives import Fit, Measured
    from et_sim.machine.library import Library

MIB = 1 << 20


def add_parser(commands: Any) -> None:
    """Register the sub-command."""
    parser = commands.add_parser(
        "nccl",
        help="collectives: logs of nccl-tests or rccl-tests",
        description="Fit what a machine's collective library takes to measured collectives: launches, steps"
        " and bandwidth of each protocol, the copy beside them, copies of all pairs, and groups on several"
        " nodes.",
    )
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="logs, CSV, or tables as JSON")
    parser.add_argument("--machine", required=True, metavar="NAME", help="the machine that was measured")
    parser.add_argument(
        "--graph",
        action="append",
        default=[],
        type=Path,
        metavar="LOG",
        help="a log of NCCL with the channels that it found (NCCL_DEBUG_SUBSYS=INIT,GRAPH)",
    )
    parser.add_argument(
        "--tuning",
        action="append",
        default=[],
        type=Path,
        metavar="LOG",
        help="a log of NCCL with what it chose (NCCL_DEBUG_SUBSYS=INIT,TUNING)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the machine here")
    parser.add_argument("--json", action="store_true", help="print the fit and its errors as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Fit, say how far off it is, and write the machine."""
    from et_sim.basics.files import write_json
    from et_sim.calibrate.collectives import fit, left_out, ratios
    from et_sim.calibrate.logs import read_choices, read_measured, read_rings
    from et_sim.calibrate.machine_file import calibrated_machine, files_text

    rows = [row for path in options.logs for row in read_measured(path)]
    rings = {name: pair for path in options.graph for name, pair in read_rings(path).items()}
    said: dict[str, Any] = {"rings": rings} if rings else {}
    choices: dict[str, list[Any]] = {}
    for path in options.tuning:
        for kind, entries in read_choices(path).items():
            choices.setdefault(kind, []).extend(entries)
    said |= {"choices": choices} if choices else {}
    library = _library(options.machine, rows, said)
    found = fit(library, rows)
    calibrated = replace(library, calibration=found.calibration)
    fitted = list(zip(rows, ratios(calibrated, rows), strict=True))
    held_out = left_out(library, rows)
    if options.json:
        print(json.dumps(_data(found, fitted, held_out), indent=2))
    else:
        print("\n".join(_text(found, fitted, held_out)))
    if options.output:
        own: dict[str, Any] = {"calibration": _values(found)} | said
        changes = {"library": own, "accuracy": _accuracy(held_out)}
        files = files_text([*options.logs, *options.graph, *options.tuning])
        errors = error_data(_classes(fitted), _classes(held_out))
        machine = calibrated_machine(options.machine, changes, files, "library", errors)
        write_json(machine, options.output)
    return 0


def _library(machine: str, rows: Sequence[Measured], said: dict[str, Any]) -> Library:
    """That of the machine with as many nodes as were measured."""
    from et_sim.machine.presets import entry, preset, unchanged
    from et_sim.machine.readers import read_machine

    nodes = max(row.call.nodes for row in rows)
    name = unchanged(machine)
    known = preset(f"{name}:{entry(name).fewest * max(nodes, 1)}")
    system = dict(known.system)
    if isinstance(system.get("library"), dict):
        system["library"] = {**system["library"], **said}
    library = read_machine(system=system, network=known.network).system.library
    if library is None:
        raise UsageError(f"{name} names no collective library", remedy="calibrate a machine that does")
    for row in rows:
        if row.call.ranks > library.node * row.call.nodes:
            raise UsageError(
                f"{row.place}: {row.call.ranks} ranks on {row.call.nodes} nodes, and nodes of {name} have "
                f"{library.node}",
                remedy="name the machine that was measured",
            )
    from et_sim.machine.library import Calibration

    return replace(library, calibration=Calibration())


def _values(found: Fit) -> dict[str, float]:
    return {
        name.replace("_", "-"): float(f"{value:.4g}")
        for name, value in asdict(found.calibration).items()
        if name in found.fitted
    }


def _accuracy(held_out: Ratios) -> dict[str, Any]:
    """By the classes of time that were left out."""
    from et_sim.calibrate.machine_file import accuracy_entry
    from et_sim.machine.accuracy import library_class

    found: dict[str, list[float]] = {}
    for row, ratio in held_out:
        name = library_class(row.call.size, is_on_one_node=row.call.nodes == 1)
        found.setdefault(name, []).append(ratio)
    return {name: accuracy_entry(ratios) for name, ratios in found.items()}


Ratios = Sequence[tuple["Measured", float]]


def _classes(rows: Ratios) -> dict[str, list[float]]:
    """By the bytes of what was measured, and all."""
    bounds = (("< 1 MiB", 0, MIB), ("< 64 MiB", MIB, 64 * MIB), (">= 64 MiB", 64 * MIB, 1 << 63))
    found = {
        name: [ratio for row, ratio in rows if least <= row.call.size < most] for name, least, most in bounds
    }
    return {name: inside for name, inside in {**found, ALL: [ratio for _, ratio in rows]}.items() if inside}


def _text(found: Fit, fitted: Ratios, held_out: Ratios) -> Iterator[str]:
    yield f"{found.rows} rows, {len(found.fitted)} factors:"
    yield "  " + ", ".join(f"{name} {value:g}" for name, value in _values(found).items())
    yield from error_lines("bytes", _classes(fitted), _classes(held_out))
    for one in found.unknown:
        yield f"unknown: {one}"


def _data(found: Fit, fitted: Ratios, held_out: Ratios) -> dict[str, Any]:
    return {
        "calibration": _values(found),
        "unknown": list(found.unknown),
        "fitted": all_errors(_classes(fitted)),
        "left_out": all_errors(_classes(held_out)),
    }
