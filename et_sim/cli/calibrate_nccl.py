"""`et-sim calibrate nccl`: fit a machine's collective library to logs of nccl-tests or rccl-tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import asdict, replace

from et_sim.basics.errors import UsageError
from et_sim.cli.calibrate_report import ALL, FitErrors, FitOptions, conclude

if TYPE_CHECKING:
    from et_sim.calibrate.collective_library import MeasuredCollective
    from et_sim.machine.collective_library import Library

MIB = 1 << 20


class Options(FitOptions):
    """Fit the collective library of a machine to measured collectives: launches, steps and bandwidth of each
    protocol, the copy beside them, copies of all pairs, and groups on several nodes.
    """

    logs: Annotated[Sequence[Path], "logs, CSV, or tables as JSON; or folders of these", "LOG"]
    graph: Annotated[
        Sequence[Path], "a log of NCCL with the channels that it found (NCCL_DEBUG_SUBSYS=INIT,GRAPH)", "LOG"
    ] = ()
    tuning: Annotated[
        Sequence[Path], "a log of NCCL with what it chose (NCCL_DEBUG_SUBSYS=INIT,TUNING)", "LOG"
    ] = ()


def run(options: Options) -> int:
    """Fit the library, print the errors, and write the machine."""
    from et_sim.calibrate.collective_library import as_taken, fit, left_out, ratios, without_worse
    from et_sim.calibrate.logs import read_all, read_choices, read_rings
    from et_sim.calibrate.machine_file import calibrated_machine, files_text

    rows, left = read_all(options.logs)
    rows = _of_racks(options.machine, rows)
    rings = {name: pair for path in options.graph for name, pair in read_rings(path).items()}
    logged: dict[str, Any] = {"rings": rings} if rings else {}
    choices: dict[str, list[Any]] = {}
    for path in options.tuning:
        for kind, entries in read_choices(path).items():
            choices.setdefault(kind, []).extend(entries)
    logged |= {"choices": choices} if choices else {}
    library = _library(options.machine, rows, logged)
    held_out = left_out(library, rows)
    fitting = without_worse(library, fit(library, rows), rows, held_out)
    calibrated = replace(library, calibration=fitting.calibration)
    fitted = list(zip(rows, ratios(calibrated, rows), strict=True))
    held_out = as_taken(library, fitting, held_out)
    values = {
        name.replace("_", "-"): value
        for name, value in asdict(fitting.calibration).items()
        if name in fitting.fitted
    }
    errors = FitErrors(_classes(fitted), _classes(held_out), fitting.unknown)

    def machine() -> dict[str, Any]:
        changes = {"library": {"calibration": values, **logged}, "accuracy": _accuracy(held_out)}
        files = files_text([*_files(options.logs), *options.graph, *options.tuning])
        return calibrated_machine(options.machine, changes, files, "library", errors.of_machine())

    text = [
        f"{fitting.rows} rows, {len(fitting.fitted)} factors:",
        "  " + ", ".join(f"{name} {value:g}" for name, value in values.items()),
        *errors.lines("bytes"),
        *(f"not taken: {reason}" for reason in fitting.kept),
        *(f"left out: {reason}" for reason in left),
    ]
    data = {"calibration": values, **errors.data(), "not_taken": list(fitting.kept), "files_left": list(left)}
    return conclude(options, data, text, machine)


def _files(paths: Sequence[Path]) -> list[Path]:
    """Return the files, and those in folders."""
    return [
        file
        for path in paths
        for file in (
            sorted(child for child in path.iterdir() if child.is_file()) if path.is_dir() else [path]
        )
    ]


def _of_racks(machine: str, rows: Sequence[MeasuredCollective]) -> list[MeasuredCollective]:
    """Return the rows with nodes as the machine counts them: racks, where hosts are their trays."""
    from msgspec.structs import replace as changed

    from et_sim.machine.presets import as_one_file, unchanged

    known = as_one_file(unchanged(machine))
    if "tray" not in known:
        return list(rows)
    return [changed(row, call=changed(row.call, nodes=-(-row.call.ranks // known["node"]))) for row in rows]


def _library(machine: str, rows: Sequence[MeasuredCollective], logged: dict[str, Any]) -> Library:
    """Return the library of the machine with as many nodes as were measured."""
    from et_sim.machine.presets import entry, preset, unchanged
    from et_sim.machine.readers import read_machine

    nodes = max(row.call.nodes for row in rows)
    name = unchanged(machine)
    known = preset(f"{name}:{entry(name).fewest * max(nodes, 1)}")
    system = dict(known.system)
    if isinstance(system.get("library"), dict):
        system["library"] = {**system["library"], **logged}
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
    return library


def _accuracy(held_out: Ratios) -> dict[str, Any]:
    """Return the errors on rows that were left out, by class of time."""
    from et_sim.calibrate.machine_file import accuracy_entry
    from et_sim.machine.accuracy import library_class

    ratios_by_name: dict[str, list[float]] = {}
    for row, ratio in held_out:
        name = library_class(row.call.size, is_on_one_node=row.call.nodes == 1)
        ratios_by_name.setdefault(name, []).append(ratio)
    return {name: accuracy_entry(ratios) for name, ratios in ratios_by_name.items()}


Ratios = Sequence[tuple["MeasuredCollective", float]]


def _classes(rows: Ratios) -> dict[str, list[float]]:
    """Return the ratios by size, and all of them."""
    bounds = (("< 1 MiB", 0, MIB), ("< 64 MiB", MIB, 64 * MIB), (">= 64 MiB", 64 * MIB, 1 << 63))
    classes = {
        name: [ratio for row, ratio in rows if least <= row.call.size < most] for name, least, most in bounds
    }
    return {name: inside for name, inside in {**classes, ALL: [ratio for _, ratio in rows]}.items() if inside}
