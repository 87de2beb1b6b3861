"""Durations of local work: one module per compute model, behind one interface; and reductions."""

from et_sim.compute.model import ComputeModel, Durations, Treatment, Utilisation
from et_sim.compute.registry import (
    Replay,
    Roofline,
    at_full_clock,
    compute_model,
    is_recorded,
    kernel_times,
    recorded_ns,
    reduction_ns,
)
from et_sim.machine.datatypes import datatype_named

__all__ = [
    "ComputeModel",
    "Durations",
    "Replay",
    "Roofline",
    "Treatment",
    "Utilisation",
    "at_full_clock",
    "compute_model",
    "datatype_named",
    "is_recorded",
    "kernel_times",
    "recorded_ns",
    "reduction_ns",
]
