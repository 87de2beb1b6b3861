"""The compute models there are."""

from __future__ import annotations

from et_sim.compute.model import ComputeModel
from et_sim.compute.replay import Replay
from et_sim.compute.roofline import Roofline
from et_sim.compute.systolic import Systolic
from et_sim.machine.model import System

# The first that a system asks for times its kernels; every system can replay.
MODELS: tuple[type[ComputeModel], ...] = (Systolic, Roofline, Replay)


def compute_model(system: System) -> ComputeModel:
    """The model that times the kernels of a system."""
    return next(model for kind in MODELS if (model := kind.of(system)) is not None)
