"""A calibrated machine: a preset with fitted figures, their sources, and their errors.

Measured kernels are read from a CSV in the form of `et-sim validate`. Tables for another GPU are left out,
and reported; a table that is selected by name is taken with any GPU.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from et_sim.basics.errors import InputError, UsageError
from et_sim.basics.uncertainty import CALIBRATED
from et_sim.calibrate.kernel_factors import family_of, target_of
from et_sim.calibrate.kernels import MeasuredKernel
from et_sim.documents.keys import keys_of
from et_sim.machine.accuracy import OPERATIONS, small_kind
from et_sim.machine.datatypes import datatype_named
from et_sim.machine.efficiencies import Curve
from et_sim.machine.kernel_kinds import FIELDS, KernelKind
from et_sim.machine.presets import as_one_file, preset
from et_sim.machine.readers import read_system_alone
from et_sim.machine.roofline import RooflineDevice
from et_sim.validation.predictions import machine_named
from et_sim.validation.row import KernelRow, Row
from et_sim.validation.rows import read_rows

COMMON = 0.03  # error of runs and versions on one machine: E 1.3 to 7 %


def calibrated_machine(
    base: str,
    changes: Mapping[str, Any],
    measured: str,
    fitted: str,
    errors: Mapping[str, Any],
    *,
    adds: bool = False,
) -> dict[str, Any]:
    """Return the machine `base` with `changes`, and the sources and errors of the part `fitted`.

    An earlier fit of this part is replaced, unless the new one `adds` to it. An estimate that has a source
    now is removed.
    """
    machine: dict[str, Any] = _merged(as_one_file(base.partition(":")[0]), changes)
    source, before = f"Fitted by et-sim calibrate to {measured}", machine["sources"].get(fitted)
    if adds and before:
        source += f"; the rest: {before[0].lower()}{before[1:]}"
    machine["sources"] = {**machine["sources"], fitted: source}
    machine["estimates"] = {
        name: text for name, text in machine["estimates"].items() if name.partition(":")[0] != fitted
    }
    device = machine["device"]
    estimates = {name: text for name, text in device["estimates"].items() if name not in device["sources"]}
    machine["device"] = {**device, "estimates": estimates}
    calibrated = machine.get("calibrated", {})
    kept = calibrated.get(fitted, {}) if adds else {}
    machine["calibrated"] = {**calibrated, fitted: {**kept, **errors}}
    return machine


def accuracy_entry(unseen: Sequence[float]) -> dict[str, Any]:
    """Return the entry of `accuracy` for a class of time, from the ratios of rows outside the fit.

    The standard error follows from the mean of |ln|, in which single outliers have little weight. The error
    of other software, which rows on one machine do not show, is common to all times, and stated for them.
    """
    mean = sum(abs(math.log(ratio)) for ratio in unseen) / len(unseen)
    random = math.sqrt(math.pi / 2) * mean
    return {"basis": CALIBRATED, "random": round(random, 4), "common": COMMON}


def files_text(paths: Sequence[Path]) -> str:
    """Return the names of files, with a part of their hashes."""
    return ", ".join(f"{path.name} (sha256 {_digest(path)})" for path in paths)


def _merged(old: Any, new: Any) -> Any:
    """Merge objects key by key; replace other values."""
    if not isinstance(old, dict) or not isinstance(new, Mapping):
        return new
    return {**old, **{name: _merged(old.get(name), value) for name, value in new.items()}}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def read_kernels(
    path: Path, machine: str, tables: Sequence[str] = ()
) -> tuple[list[MeasuredKernel], tuple[str, ...]]:
    """Read the rows of a machine, and describe the tables that are left out."""
    rows = [row for row in read_rows(path) if isinstance(row.job, KernelRow)]
    known = {row.table: row for row in rows}
    for name in tables:
        if name not in known:
            raise UsageError(
                f"{path} has no table {name!r} of kernels", remedy=f"tables: {', '.join(known) or 'none'}"
            )
    taken = set(tables) or {name for name, row in known.items() if _is_of(machine, row)}
    left = tuple(
        f"table {name} ({sum(row.table == name for row in rows)} rows), measured on {row.hardware}"
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
    """Check whether a table belongs to the machine; one without a GPU does."""
    if not row.hardware:
        return True
    named = machine_named(row.hardware)
    words = as_one_file(machine).get("known-as")
    return named is not None and as_one_file(named).get("known-as") == words


def _measured(path: Path, row: Row) -> MeasuredKernel:
    assert isinstance(row.job, KernelRow)
    assert row.measured_us is not None
    place = f"{path}: table {row.table}, row {row.number}"
    datatype = datatype_named(row.job.datatype) if row.job.datatype else ""
    if datatype is None:
        raise InputError(
            f"dtype {row.job.datatype!r} is not known", place=place, remedy="name one such as bf16, fp8, fp32"
        )
    size_class = row.kind if row.size_class == "all" else f"{row.kind}, {row.size_class}"
    return MeasuredKernel(row.what, datatype, row.measured_us, place, size_class, row.job.included)


NAME = "kernels"
FEWEST_UNSEEN = 4  # least rows outside the fit for the error of a class
SEE, ELSE, BEFORE = f"see {NAME}", "; others: ", "; before: "


def device_of(machine: str) -> RooflineDevice:
    """Return the device of a preset."""
    rules = read_system_alone(preset(machine).system).compute
    if len(rules) != 1 or not isinstance(rules[0].settings, RooflineDevice):
        raise UsageError(
            f"{machine} has other rules than one roofline", remedy="calibrate a machine with one roofline"
        )
    return rules[0].settings.at_full_clock  # single kernels are too short for the power cap


def accuracy_of(device: RooflineDevice, held_out: Iterable[tuple[MeasuredKernel, float]]) -> dict[str, Any]:
    """Return the device's `accuracy` of classes of kernels, from rows outside the fit.

    Datatypes that have figures of their own are separate.
    """
    ratios_of: dict[str, list[float]] = {}
    for row, ratio in held_out:
        kind = row.shape.partition(" ")[0]
        name = small_kind(row.shape) or kind
        if name in OPERATIONS:
            target = target_of(device, family_of(kind), kind, row.datatype)
            ratios_of.setdefault(f"{name} {target.datatype}".strip(), []).append(ratio)
    return {
        name: accuracy_entry(ratios) for name, ratios in ratios_of.items() if len(ratios) >= FEWEST_UNSEEN
    }


def device_changes(
    machine: str, before: RooflineDevice, after: RooflineDevice, accuracy: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keys with changed figures, with their sources and estimates."""
    old = as_one_file(machine)["device"]
    keys: dict[str, Any] = {}
    if after.tiles != before.tiles:
        keys["tiles"] = _written(after.tiles)
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
    if kinds := _changed_kinds(before.kinds, after.kinds):
        keys["kinds"] = kinds
        sources["kinds"] = _source(old, "kinds", kinds)
    for name, was, new in (
        ("efficiency", before.efficiency, after.efficiency),
        ("memory-efficiency", before.memory_efficiency, after.memory_efficiency),
    ):
        if parts := {
            kind: float(f"{curve.peak:.4g}") for kind, curve in new.curves.items() if curve != was.of(kind)
        }:
            given = old["compute"].get(name, 1.0)
            keys[name] = {**(given if isinstance(given, dict) else {"other": given}), **parts}
            target = sources if name in old["sources"] else estimates
            target[name] = _source(old, name, parts)
    if accuracy:
        sources["accuracy"] = _source(old, "accuracy", accuracy)
    return {"compute": keys, "accuracy": accuracy, "sources": sources, "estimates": estimates}


def _before(old: dict[str, Any], name: str) -> str:
    """Return the source of a figure, with the previous one, to which other figures may refer."""
    source = {**old["sources"], **old["estimates"]}.get(name, "")
    kept = (
        source.partition(BEFORE)[2] if source.startswith(SEE) else "" if source.startswith("see ") else source
    )
    return SEE + (f"{BEFORE}{kept}" if kept else "")


def _source(old: dict[str, Any], name: str, kinds: Iterable[str]) -> str:
    """Return the source of figures of kinds, followed by that of the others."""
    source = {**old["sources"], **old["estimates"]}.get(name, "")
    rest = source.partition(ELSE)[2] if source.startswith(SEE) else source
    return f"{SEE}: {', '.join(kinds)}" + (f"{ELSE}{rest}" if rest else "")


def _changed_kinds(
    before: Mapping[str, KernelKind], after: Mapping[str, KernelKind]
) -> dict[str, dict[str, Any]]:
    """Return entries of `kinds`, each with the keys that changed."""
    names = dict(zip(FIELDS, (key.name for key in keys_of(KernelKind)), strict=True))
    changed = {}
    for name, kind in after.items():
        was = before.get(name, KernelKind())
        others = {field: value for field in FIELDS if (value := getattr(kind, field)) != getattr(was, field)}
        if others:
            changed[name] = {
                names[field]: f"{value:g}ns" if field.endswith("_ns") else _written(value)
                for field, value in others.items()
            }
    return changed


def _written(value: Any) -> Any:
    """Return a fitted figure of a kind of kernels in the form of a file."""
    match value:
        case tuple():
            return [[tile.rows, tile.columns, tile.step, float(f"{tile.part:.4g}")] for tile in value]
        case Curve():
            return float(f"{value.peak:.4g}")
    return value
