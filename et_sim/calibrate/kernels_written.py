"""What a machine file says of kernels that were fitted: keys of its device, and where their figures are from.

Measured kernels, read from a CSV as `et-sim validate` reads it, and those that are of a machine. A table that
names another GPU is left out, and it is said; a table that is named is taken whatever it says.

Not here: the fit (`calibrate.kernels`), and the rest of the file (`calibrate.machine_file`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from et_sim.basics.errors import InputError, UsageError
from et_sim.calibrate.kernels import Measured
from et_sim.calibrate.machine_file import accuracy_entry
from et_sim.machine.accuracy import OPERATIONS, small_kind
from et_sim.machine.datatypes import datatype_named
from et_sim.machine.presets import as_one_file, preset
from et_sim.machine.readers import read_system_alone
from et_sim.machine.roofline import Efficiency, RooflineDevice
from et_sim.validation.machines import machine_named
from et_sim.validation.rows import Kernel, Row, read_rows


def read_kernels(
    path: Path, machine: str, tables: Sequence[str] = ()
) -> tuple[list[Measured], tuple[str, ...]]:
    """Rows of a machine, and what was left out."""
    rows = [row for row in read_rows(path) if isinstance(row.job, Kernel)]
    known = {row.table: row for row in rows}
    for name in tables:
        if name not in known:
            raise UsageError(
                f"{path} has no table {name!r} of kernels", remedy=f"tables: {', '.join(known) or 'none'}"
            )
    taken = set(tables) or {name for name, row in known.items() if _is_of(machine, row)}
    left = tuple(
        f"table {name} ({sum(row.table == name for row in rows)} rows), which is of {row.hardware}"
        for name, row in known.items()
        if name not in taken and not tables
    )
    measured = [_measured(path, row) for row in rows if row.table in taken]
    if not measured:
        raise InputError(
            f"no kernel was measured on {machine}" + "".join(f"; left out: {reason}" for reason in left),
            place=str(path),
            remedy="name the machine that was measured, or the table: --table NAME",
        )
    return measured, left


def _is_of(machine: str, row: Row) -> bool:
    """Tables that do not say their GPU are of the machine that is named."""
    if not row.hardware:
        return True
    named = machine_named(row.hardware)
    words = as_one_file(machine).get("known-as")
    return named is not None and as_one_file(named).get("known-as") == words


def _measured(path: Path, row: Row) -> Measured:
    assert isinstance(row.job, Kernel)
    assert row.measured_us is not None
    place = f"{path}: table {row.table}, row {row.number}"
    datatype = datatype_named(row.job.datatype) if row.job.datatype else ""
    if datatype is None:
        raise InputError(
            f"dtype {row.job.datatype!r} is not known", place=place, remedy="name one such as bf16, fp8, fp32"
        )
    size_class = row.kind if row.size_class == "all" else f"{row.kind}, {row.size_class}"
    return Measured(row.what, datatype, row.measured_us, place, size_class)


NAME = "kernels"
FEWEST_UNSEEN = 4  # rows that tell how far off a class is
SEE, ELSE, BEFORE = f"see {NAME}", "; others: ", "; before: "


def device_of(machine: str) -> RooflineDevice:
    """What the machine of a name is made of."""
    rules = read_system_alone(preset(machine).system).compute
    if len(rules) != 1 or not isinstance(rules[0].settings, RooflineDevice):
        raise UsageError(f"{machine} has other rules than one roofline", remedy="calibrate one that has")
    return replace(rules[0].settings, sustained=MappingProxyType({}))  # single kernels are not at its limit


def accuracy_of(held_out: Iterable[tuple[Measured, float]]) -> dict[str, Any]:
    """What the device states of classes of kernels, from rows that a fit had not seen."""
    ratios_of: dict[str, list[float]] = {}
    for row, ratio in held_out:
        name = small_kind(row.shape) or row.shape.partition(" ")[0]
        if name in OPERATIONS:
            ratios_of.setdefault(name, []).append(ratio)
    return {
        name: accuracy_entry(ratios) for name, ratios in ratios_of.items() if len(ratios) >= FEWEST_UNSEEN
    }


def device_changes(
    machine: str, before: RooflineDevice, after: RooflineDevice, accuracy: Mapping[str, Any]
) -> dict[str, Any]:
    """Keys whose figures are others now, with their sources and what is still estimated."""
    old = as_one_file(machine)["device"]
    keys: dict[str, Any] = {}
    if after.tiles != before.tiles:
        keys["tiles"] = [
            [tile.rows, tile.columns, tile.step, float(f"{tile.part:.4g}")] for tile in after.tiles
        ]
    figures = {
        "prologue": (before.prologue, after.prologue),
        "query-tile": (before.query_tile, after.query_tile),
        "query-prologue": (before.query_prologue, after.query_prologue),
    }
    keys |= {name: new for name, (was, new) in figures.items() if new != was}
    times = {
        "launch-overhead": (before.launch_ns, after.launch_ns),
        "split-time": (before.split_ns, after.split_ns),
    }
    keys |= {name: f"{new:g}ns" for name, (was, new) in times.items() if new != was}
    sources, estimates = {name: _before(old, name) for name in keys}, dict[str, str]()
    for name, was, new in (
        ("efficiency", before.efficiency, after.efficiency),
        ("memory-efficiency", before.memory_efficiency, after.memory_efficiency),
    ):
        if parts := _changed(was, new):
            given = old["compute"].get(name, 1.0)
            keys[name] = {**(given if isinstance(given, dict) else {"other": given}), **parts}
            target = sources if name in old["sources"] else estimates
            target[name] = _source(old, name, parts)
    if accuracy:
        sources["accuracy"] = _source(old, "accuracy", accuracy)
    return {"compute": keys, "accuracy": accuracy, "sources": sources, "estimates": estimates}


def _before(old: dict[str, Any], name: str) -> str:
    """Where a figure is from, and where it was from before: other figures may refer to that."""
    source = {**old["sources"], **old["estimates"]}.get(name, "")
    kept = (
        source.partition(BEFORE)[2] if source.startswith(SEE) else "" if source.startswith("see ") else source
    )
    return SEE + (f"{BEFORE}{kept}" if kept else "")


def _source(old: dict[str, Any], name: str, kinds: Iterable[str]) -> str:
    """Where figures of kinds are from, before those of the others."""
    source = {**old["sources"], **old["estimates"]}.get(name, "")
    rest = source.partition(ELSE)[2] if source.startswith(SEE) else source
    return f"{SEE}: {', '.join(kinds)}" + (f"{ELSE}{rest}" if rest else "")


def _changed(before: Efficiency, after: Efficiency) -> dict[str, float]:
    return {
        kind: float(f"{curve.peak:.4g}") for kind, curve in after.curves.items() if curve != before.of(kind)
    }
