"""What a layer file's program is: a trace, and tables that say which of its rows are what."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from et_sim.layerfile.dimensions import LogicalDimensions
from et_sim.layerfile.layer_file import LayerFile, Phase

if TYPE_CHECKING:
    from et_sim.trace.columns import Trace

IntColumn = npt.NDArray[np.int64]
RowColumn = npt.NDArray[np.int32]
BoolColumn = npt.NDArray[np.bool_]

TICK_NS = 1
FIRST, LAST, END = 0, 1, 2  # where a wait happens: before the computation, after it, when the run has ended


class Steps(Struct, frozen=True, eq=False):
    """One row per step, in order."""

    pass_number: RowColumn
    layer: RowColumn
    phase: RowColumn  # Phase
    compute_row: RowColumn  # of the trace
    tick_row: RowColumn


class Collectives(Struct, frozen=True, eq=False):
    """One row per collective, in the order of their issue."""

    pass_number: RowColumn
    layer: RowColumn  # whose collective it is, which need not be the layer just computed
    phase: RowColumn
    step: RowColumn  # after whose computation it is issued; -1: at the start
    bytes: IntColumn
    is_blocking: BoolColumn
    is_urgent: BoolColumn
    row: RowColumn  # of the trace
    update_row: RowColumn  # -1: no update time

    @property
    def done_row(self) -> RowColumn:
        """Whose end is the end of the collective for those who wait."""
        done: RowColumn = np.where(self.update_row >= 0, self.update_row, self.row).astype(np.int32)
        return done


class QueueWaits(Struct, frozen=True, eq=False):
    """One row per collective and place where the loop may have to wait for it; blocking ones are not here."""

    collective: RowColumn
    step: RowColumn  # -1: when the run has ended and there were no steps
    place: RowColumn  # FIRST, LAST or END


class LayerProgram(Struct, frozen=True, eq=False):
    """A trace and what its rows are."""

    layer_file: LayerFile
    trace: Trace
    logical: LogicalDimensions | None  # transformers on a machine of known dimensions
    steps: Steps
    collectives: Collectives
    waits: QueueWaits
    # Collectives of the loop that were left out, by (layer, phase, why).
    skipped: Counter[tuple[int, Phase, str]]
