"""Program of a layer file by passes: a trace, and tables that describe its rows.

Many passes are made of two. A pass waits only for collectives of itself and the pass before, so the second
pass stands for all later ones. Copying its columns takes milliseconds; building nodes takes seconds.
`program` builds two passes. MICRO has no passes to repeat.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Struct, structs
from msgspec.structs import replace

from et_sim.layerfile.dimensions import LogicalDimensions
from et_sim.layerfile.layer_file import LayerFile, LayerPhase
from et_sim.trace.columns import Trace

IntColumn = npt.NDArray[np.int64]
RowColumn = npt.NDArray[np.int32]
BoolColumn = npt.NDArray[np.bool_]

TICK_NS = 1
FIRST, LAST, END = 0, 1, 2  # place of a wait: before the computation, after it, when the run has ended


class LayerSteps(Struct, frozen=True, eq=False):
    """Steps in order, a row each."""

    pass_number: RowColumn
    layer: RowColumn
    phase: RowColumn  # Phase
    compute_row: RowColumn  # of the trace
    tick_row: RowColumn


class LayerCollectives(Struct, frozen=True, eq=False):
    """Collectives in the order of their issue, a row each."""

    pass_number: RowColumn
    layer: RowColumn  # that owns the collective, perhaps not the one just computed
    phase: RowColumn
    step: RowColumn  # that issues it after its computation; -1: at the start
    bytes: IntColumn
    is_blocking: BoolColumn
    is_urgent: BoolColumn
    row: RowColumn  # of the trace
    update_row: RowColumn  # -1: no update time

    @property
    def done_row(self) -> RowColumn:
        """Return the row whose end is the end of the collective for steps that wait."""
        done: RowColumn = np.where(self.update_row >= 0, self.update_row, self.row).astype(np.int32)
        return done


class QueueWaits(Struct, frozen=True, eq=False):
    """Waits for collectives without blocking, a row per collective and place."""

    collective: RowColumn
    step: RowColumn  # -1: when the run has ended and there were no steps
    place: RowColumn  # FIRST, LAST or END


class LayerProgram(Struct, frozen=True, eq=False):
    """A trace, and the meaning of its rows."""

    layer_file: LayerFile
    trace: Trace
    logical: LogicalDimensions | None  # transformers on a machine with known dimensions
    steps: LayerSteps
    collectives: LayerCollectives
    waits: QueueWaits
    # Collectives of the loop that were left out, by (layer, phase, reason).
    skipped: Counter[tuple[int, LayerPhase, str]]


_Table = TypeVar("_Table", bound=Struct)
Column = npt.NDArray[Any]


def repeated(program: LayerProgram, passes: int, end: int) -> LayerProgram:
    """Return a program of `passes` passes, made of one of two. `end`: the place of waits after the
    last pass.
    """
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
    """Return a table of columns in which the rows from `begin` on are repeated for each copy, shifted."""
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
    """Return the values, with those from `begin` on repeated, each time `apart` larger; -1 stays."""
    block = column[begin:]
    more = np.tile(block, copies)
    if apart:
        shift = np.repeat(np.arange(1, copies + 1, dtype=np.int64) * apart, len(block))
        more = np.where(more < 0, more, more + shift).astype(column.dtype)
    return np.concatenate((column, more))


def _copied_trace(trace: Trace, begin: int, copies: int) -> Trace:
    columns: dict[str, Any] = {}
    for name in trace.__struct_fields__:
        column = getattr(trace, name)
        if isinstance(column, np.ndarray) and len(column) == len(trace):
            columns[name] = _tiled(column, begin, copies, 0)
    columns["node_id"] = np.arange(len(trace) + copies * (len(trace) - begin), dtype=np.uint64)
    for kind in ("data", "ctrl"):
        start, deps = getattr(trace, f"{kind}_start"), getattr(trace, f"{kind}_deps")
        counts = _tiled(np.diff(start), begin, copies, 0)
        columns[f"{kind}_start"] = np.concatenate(([0], np.cumsum(counts)))
        columns[f"{kind}_deps"] = _tiled(deps, int(start[begin]), copies, len(trace) - begin)
    return replace(trace, **columns)
