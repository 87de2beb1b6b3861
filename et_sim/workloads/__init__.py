"""Workloads that are made, not recorded: programs of ranks along named axes; training; inference;
microbenchmarks.

The names below load their modules on first use, so that the command line starts without numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from et_sim.basics.lazy_names import lazy_names

if TYPE_CHECKING:
    from et_sim.workloads.axes import Axes
    from et_sim.workloads.convolution import make_convolution_training, read_network
    from et_sim.workloads.inference.batch import Batch, Segment
    from et_sim.workloads.inference.forward import make_inference
    from et_sim.workloads.models.configuration import read_model
    from et_sim.workloads.models.model import Model
    from et_sim.workloads.rank import Rank, make_workload
    from et_sim.workloads.recommendation import make_dlrm_training, read_dlrm
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

__getattr__, __dir__ = lazy_names(
    __name__,
    __all__,
    {
        "axes": ("Axes",),
        "convolution": ("make_convolution_training", "read_network"),
        "inference.batch": ("Batch", "Segment"),
        "inference.forward": ("make_inference",),
        "models.configuration": ("read_model",),
        "models.model": ("Model",),
        "rank": ("Rank", "make_workload"),
        "recommendation": ("make_dlrm_training", "read_dlrm"),
        "training.plan": ("Plan",),
        "training.step": ("make_training",),
    },
)
