"""et-sim: simulate distributed machine-learning training from execution traces.

`simulate` runs a workload on a machine and returns a `Result`; `sweep` varies such a run; `Workload` and
`TraceBuilder` make workloads in Python. Everything else is found in the rooms (sub-packages) and may change.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import (
    EtSimError,
    InputError,
    MachineError,
    OutOfMemoryError,
    StallError,
    TraceError,
    UsageError,
)
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

# Loaded on first use: importing et_sim alone costs neither numpy nor Numba.
_HOME = {
    "Result": "et_sim.run.result",
    "Trace": "et_sim.trace",
    "TraceBuilder": "et_sim.trace",
    "Workload": "et_sim.trace",
    "read_workload": "et_sim.trace",
    "simulate": "et_sim.api",
    "sweep": "et_sim.sweeps.sweep",
    "write_workload": "et_sim.trace",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
