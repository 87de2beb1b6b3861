"""Many passes from two: every pass but the first does the same, a pass later.

A pass waits for collectives of the pass before and of itself, never for older ones, so the second pass of a
program stands for all that follow. Copying its columns takes milliseconds where building nodes takes seconds.

Not here: the program of two passes (`program`), and MICRO, which has no passes to repeat.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs

if TYPE_CHECKING:
    from et_sim.layerfile.tables import LayerProgram
    from et_sim.trace.columns import Trace

_Table = TypeVar("_Table", bound=Struct)
Column = npt.NDArray[Any]


def repeated(program: LayerProgram, passes: int, end: int) -> LayerProgram:
    """A program of `passes` passes, made of one of two. `end`: the place of waits after the last pass."""
    copies = passes - 2
    issued, steps, waits = program.collectives, program.steps, program.waits
    rows = len(program.trace) // 2
    apart = {"row": rows, "update_row": rows, "compute_row": rows, "tick_row": rows, "pass_number": 1}
    apart |= {"step": len(steps.layer) // 2, "collective": len(issued.layer) // 2}
    last = waits.place == end
    first = np.flatnonzero(~last & (waits.step >= apart["step"]))
    begin = int(first[0]) if len(first) else int((~last).sum())
    middle = _copied(_rows_of(waits, ~last), begin, copies, apart)
    tail = _moved(_rows_of(waits, last), copies, apart)
    return structs.replace(
        program,
        trace=_copied_trace(program.trace, rows, copies),
        steps=_copied(steps, apart["step"], copies, apart),
        collectives=_copied(issued, apart["collective"], copies, apart),
        waits=_joined(middle, tail),
        skipped=Counter({reason: count // 2 * passes for reason, count in program.skipped.items()}),
    )


def _copied(table: _Table, begin: int, copies: int, apart: dict[str, int]) -> _Table:
    """A table of columns with the rows from `begin` on once more for each copy, moved on."""
    columns = {
        name: _tiled(column, begin, copies, apart.get(name, 0))
        for name, column in structs.asdict(table).items()
    }
    return structs.replace(table, **columns)


def _moved(table: _Table, copies: int, apart: dict[str, int]) -> _Table:
    columns = structs.asdict(table)
    return structs.replace(
        table, **{name: (column + copies * apart.get(name, 0)) for name, column in columns.items()}
    )


def _rows_of(table: _Table, which: Column) -> _Table:
    columns = structs.asdict(table)
    return structs.replace(table, **{name: column[which] for name, column in columns.items()})


def _joined(table: _Table, other: _Table) -> _Table:
    columns = structs.asdict(table).items()
    return structs.replace(
        table, **{name: np.concatenate((column, getattr(other, name))) for name, column in columns}
    )


def _tiled(column: Column, begin: int, copies: int, apart: int) -> Column:
    """The values from `begin` on once more for each copy, each time `apart` more; -1 stays."""
    block = column[begin:]
    more = np.tile(block, copies)
    if apart:
        shift = np.repeat(np.arange(1, copies + 1, dtype=np.int64) * apart, len(block))
        more = np.where(more < 0, more, more + shift).astype(column.dtype)
    return np.concatenate((column, more))


def _copied_trace(trace: Trace, begin: int, copies: int) -> Trace:
    columns: dict[str, Any] = {}
    for field in fields(trace):
        column = getattr(trace, field.name)
        if isinstance(column, np.ndarray) and len(column) == len(trace):
            columns[field.name] = _tiled(column, begin, copies, 0)
    columns["node_id"] = np.arange(len(trace) + copies * (len(trace) - begin), dtype=np.uint64)
    for kind in ("data", "ctrl"):
        start, deps = getattr(trace, f"{kind}_start"), getattr(trace, f"{kind}_deps")
        counts = _tiled(np.diff(start), begin, copies, 0)
        columns[f"{kind}_start"] = np.concatenate(([0], np.cumsum(counts)))
        columns[f"{kind}_deps"] = _tiled(deps, int(start[begin]), copies, len(trace) - begin)
    return replace(trace, **columns)
