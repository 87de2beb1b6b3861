"""Measured kernels, read from a CSV as `et-sim validate` reads it, and those that are of a machine.

A table that names another GPU is left out, and it is said; a table that is named is taken whatever it says.

Not here: what is fitted to them (`calibrate.kernels`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from et_sim.basics.errors import InputError, UsageError
from et_sim.calibrate.kernels import Measured
from et_sim.machine.datatypes import datatype_named
from et_sim.machine.presets import as_one_file
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
    found = [_measured(path, row) for row in rows if row.table in taken]
    if not found:
        raise InputError(
            f"no kernel was measured on {machine}" + "".join(f"; left out: {one}" for one in left),
            place=str(path),
            remedy="name the machine that was measured, or the table: --table NAME",
        )
    return found, left


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
    what = row.kind if row.size_class == "all" else f"{row.kind}, {row.size_class}"
    return Measured(row.what, datatype, row.measured_us, place, what)
