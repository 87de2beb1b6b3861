"""The compute models there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from et_sim.compute.device import Device
from et_sim.compute.model import ComputeModel, SystemModel, TimingModel
from et_sim.compute.operator_table import OperatorTable
from et_sim.compute.replay import Replay
from et_sim.compute.roofline import Roofline
from et_sim.compute.rules import Rules
from et_sim.compute.systolic import Systolic
from et_sim.machine.compute_rules import Recorded
from et_sim.machine.model import System
from et_sim.machine.operator_times import OperatorTimes
from et_sim.machine.roofline import RooflineDevice
from et_sim.machine.systolic import ClockedArray

# The first that a system asks for times its kernels; every system can replay.
MODELS: tuple[type[SystemModel], ...] = (Roofline, Replay)
# What kernels timed by a model include, and leave out, by its label; those of rules have labels of their own.
SCOPES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"roofline": ("kernels at their roofs", "what keeps kernels below their roofs")}
)
# What makes a model of the settings, the label and the place of a rule.
OF_RULES: Mapping[type, Callable[[Any, str, str], TimingModel]] = MappingProxyType(
    {
        ClockedArray: Systolic,
        RooflineDevice: Device,
        OperatorTimes: OperatorTable,
        Recorded: lambda *_: Replay(),
    }
)


def scope_of(label: str) -> tuple[str, str]:
    """What kernels include that a model has timed, and what they leave out, if that is known."""
    return SCOPES.get(label, (f"kernels as {label} times them", ""))


def compute_model(system: System) -> ComputeModel:
    """The model that times the kernels of a system."""
    rest: ComputeModel = next(model for kind in MODELS if (model := kind.of(system)) is not None)
    if system.replay_only or not system.compute:
        return rest
    return Rules(
        system.compute,
        [OF_RULES[type(rule.settings)](rule.settings, rule.label, rule.place) for rule in system.compute],
        rest,
    )
