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
from et_sim.machine.compute_rules import Recorded
from et_sim.machine.model import System
from et_sim.machine.operator_times import OperatorTimes
from et_sim.machine.roofline import RooflineDevice
from et_sim.machine.systolic import ClockedArray

# The first that a system asks for times its kernels; every system can replay.
MODELS: tuple[type[SystemModel], ...] = (Roofline, Replay)
# What kernels include that are timed by a model, or by one of a rule with such settings, and leave out.
SCOPES: Mapping[type, tuple[str, str]] = MappingProxyType(
    {
        Roofline: ("kernels at their roofs", "launches, and what keeps kernels below their roofs"),
        RooflineDevice: ("kernels as far below their roofs as the machine says", ""),
        ClockedArray: ("kernels on systolic arrays, clock by clock", ""),
        OperatorTimes: ("kernels as measured", ""),
    }
)


def _systolic(array: Any, label: str, place: str) -> TimingModel:
    from et_sim.compute.systolic import Systolic  # a third of this room, for few systems

    return Systolic(array, label, place)


# What makes a model of the settings, the label and the place of a rule.
OF_RULES: Mapping[type, Callable[[Any, str, str], TimingModel]] = MappingProxyType(
    {
        ClockedArray: _systolic,
        RooflineDevice: Device,
        OperatorTimes: OperatorTable,
        Recorded: lambda *_: Replay(),
    }
)


def scopes_of(system: System) -> dict[str, tuple[str, str]]:
    """The same of what times the kernels of a system, by its label."""
    found = {"roofline": SCOPES[Roofline]} if Roofline.of(system) else {}
    rules = () if system.replay_only else system.compute
    return found | {
        rule.label: SCOPES[type(rule.settings)] for rule in rules if type(rule.settings) in SCOPES
    }


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
