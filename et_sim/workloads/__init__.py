"""Workloads that are made, not recorded: programs of ranks along named axes; training; microbenchmarks.

The names below load their modules on first use, so that the command line starts without numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from et_sim.workloads.axes import Axes
    from et_sim.workloads.job import make_workload
    from et_sim.workloads.models.configuration import read_model
    from et_sim.workloads.models.model import Model
    from et_sim.workloads.rank import Rank
    from et_sim.workloads.training.plan import Plan
    from et_sim.workloads.training.step import make_training

__all__ = ["Axes", "Model", "Plan", "Rank", "make_training", "make_workload", "read_model"]

_HOME = {
    "axes": ("Axes",),
    "job": ("make_workload",),
    "models.configuration": ("read_model",),
    "models.model": ("Model",),
    "rank": ("Rank",),
    "training.plan": ("Plan",),
    "training.step": ("make_training",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
