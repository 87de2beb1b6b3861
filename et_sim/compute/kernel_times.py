"""How long the kernels of a trace take on a machine, for whoever adds them up without a run.

Not here: the models themselves (`registry`), and what else a node may wait for (the plan).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from et_sim.compute.model import ComputeModel
from et_sim.compute.replay import recorded_ns
from et_sim.trace.columns import Trace


def kernel_times(model: ComputeModel) -> Callable[[Trace, Any, int], Any]:
    """Of a trace, rows of its kernels and a rank: nanoseconds, as the model says.

    Kernels that lack what it needs take what their trace has.
    """

    def times(trace: Trace, rows: Any, rank: int) -> Any:
        lacks = np.zeros(len(trace), np.bool_)
        for one in model.lacking(trace, rank).values():
            lacks |= one
        found = recorded_ns(trace)[rows]
        described = ~lacks[rows]
        found[described] = model.durations(trace, rows[described], rank).ns
        return found

    return times
