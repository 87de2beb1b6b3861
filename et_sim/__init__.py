"""et-sim: simulate distributed machine-learning training from execution traces.

`simulate` runs a workload on a machine and returns a `Result`; `sweep` varies such a run; `Workload` and
`TraceBuilder` make workloads in Python. Everything else is in the sub-packages and may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.errors import (
    EtSimError,
    InputError,
    MachineError,
    OutOfMemoryError,
    StallError,
    TraceError,
    UsageError,
)
from et_sim.basics.lazy_names import lazy_names
from et_sim.version import __version__

if TYPE_CHECKING:
    from et_sim.api import simulate
    from et_sim.run.result import Result
    from et_sim.sweeps.sweep import sweep
    from et_sim.trace import Trace, TraceBuilder, Workload, read_workload, write_workload

__all__ = [
    "EtSimError",
    "InputError",
    "MachineError",
    "OutOfMemoryError",
    "Result",
    "StallError",
    "Trace",
    "TraceBuilder",
    "TraceError",
    "UsageError",
    "Workload",
    "__version__",
    "read_workload",
    "simulate",
    "sweep",
    "write_workload",
]

# Loaded on first use: importing et_sim alone imports neither numpy nor Numba.
__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    {
        "api": ("simulate",),
        "run.result": ("Result",),
        "sweeps.sweep": ("sweep",),
        "trace": ("Trace", "TraceBuilder", "Workload", "read_workload", "write_workload"),
    },
)
