"""Workloads that are made, not recorded: programs of ranks along named axes; training; inference;
microbenchmarks.

The names below load their modules on first use, so that the command line starts without numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from et_sim.workloads.axes import Axes
    from et_sim.workloads.convolution.network import make_convolution_training, read_network
    from et_sim.workloads.inference.batch import Batch, Segment
    from et_sim.workloads.inference.forward import make_inference
    from et_sim.workloads.job import make_workload
    from et_sim.workloads.models.configuration import read_model
    from et_sim.workloads.models.model import Model
    from et_sim.workloads.rank import Rank
    from et_sim.workloads.recommendation.model import make_dlrm_training, read_dlrm
    from et_sim.workloads.training.plan import Plan
    from et_sim.workloads.training.step import make_training

__all__ = [
    "Axes",
    "Batch",
    "Model",
    "Plan",
    "Rank",
    "Segment",
    "make_convolution_training",
    "make_dlrm_training",
    "make_inference",
    "make_training",
    "make_workload",
    "read_dlrm",
    "read_model",
    "read_network",
]

_HOME = {
    "axes": ("Axes",),
    "convolution.network": ("make_convolution_training", "read_network"),
    "inference.batch": ("Batch", "Segment"),
    "inference.forward": ("make_inference",),
    "job": ("make_workload",),
    "models.configuration": ("read_model",),
    "models.model": ("Model",),
    "rank": ("Rank",),
    "recommendation.model": ("make_dlrm_training", "read_dlrm"),
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
