"""The compute models there are, and the times of kernels for whoever adds them up without a run.

Replay is one of them: a node takes exactly as long as its trace says, and nothing takes less than a
nanosecond.

Not here: what else a node may wait for (the plan).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from et_sim.basics.units import LONGEST_NS
from et_sim.compute.model import ComputeModel, Durations, OfAllRanks, SystemModel, TimingModel, Treatment
from et_sim.compute.roofline import Roofline
from et_sim.machine.compute_rules import Recorded
from et_sim.machine.model import System
from et_sim.machine.operator_times import OperatorTimes
from et_sim.machine.roofline import RooflineDevice
from et_sim.machine.systolic import ClockedArray
from et_sim.trace.columns import BoolColumn, IntColumn, Trace


class Replay(OfAllRanks):
    """Any node as its trace recorded it."""

    @classmethod
    def of(cls, system: System) -> Replay:  # noqa: ARG003
        """Every system can replay."""
        return cls()

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:  # noqa: ARG002
        """Nothing: a node without a duration takes one nanosecond."""
        return {}

    def durations(self, trace: Trace, rows: IntColumn, rank: int = 0) -> Durations:  # noqa: ARG002
        """The recorded durations; which of them are not recorded."""
        treatment = np.where(is_recorded(trace)[rows], Treatment.REPLAYED, Treatment.DEFAULTED).astype(
            np.uint8
        )
        return Durations(recorded_ns(trace)[rows], treatment)


def is_recorded(trace: Trace) -> BoolColumn:
    """Which nodes have a duration in their trace."""
    recorded: BoolColumn = (trace.duration_us != 0) | trace.has("duration_ns")
    return recorded


def recorded_ns(trace: Trace) -> IntColumn:
    """How long each node took: exactly if the trace says so, else by its microseconds.

    A recorded zero becomes one nanosecond; cut at what no run may reach, so that nothing overflows before it
    is refused.
    """
    micros = trace.duration_us
    rounded = np.where(micros == 0, 1, np.minimum(micros, LONGEST_NS // 1000 + 1) * 1000)
    return np.where(trace.has("duration_ns"), trace.duration_ns, rounded)


def kernel_times(model: ComputeModel) -> Callable[[Trace, Any, int], Any]:
    """Of a trace, rows of its kernels and a rank: nanoseconds, as the model says.

    Kernels that lack what it needs take what their trace has.
    """

    def times(trace: Trace, rows: Any, rank: int) -> Any:
        lacks = np.zeros(len(trace), np.bool_)
        for mask in model.lacking(trace, rank).values():
            lacks |= mask
        ns = recorded_ns(trace)[rows]
        described = ~lacks[rows]
        ns[described] = model.durations(trace, rows[described], rank).ns
        return ns

    return times


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


# Models of rules are two thirds of this room, and few systems have any.
def _systolic(array: Any, label: str, place: str) -> TimingModel:
    from et_sim.compute.systolic import Systolic

    return Systolic(array, label, place)


def _device(device: Any, label: str, place: str) -> TimingModel:
    from et_sim.compute.device import Device

    return Device(device, label, place)


def _operator_table(times: Any, label: str, place: str) -> TimingModel:
    from et_sim.compute.operator_table import OperatorTable

    return OperatorTable(times, label, place)


# What makes a model of the settings, the label and the place of a rule.
OF_RULES: Mapping[type, Callable[[Any, str, str], TimingModel]] = MappingProxyType(
    {
        ClockedArray: _systolic,
        RooflineDevice: _device,
        OperatorTimes: _operator_table,
        Recorded: lambda *_: Replay(),
    }
)


def scopes_of(system: System) -> dict[str, tuple[str, str]]:
    """The same of what times the kernels of a system, by its label."""
    scopes = {"roofline": SCOPES[Roofline]} if Roofline.of(system) else {}
    rules = () if system.replay_only else system.compute
    return scopes | {
        rule.label: SCOPES[type(rule.settings)] for rule in rules if type(rule.settings) in SCOPES
    }


def compute_model(system: System) -> ComputeModel:
    """The model that times the kernels of a system."""
    rest: ComputeModel = next(model for kind in MODELS if (model := kind.of(system)) is not None)
    if system.replay_only or not system.compute:
        return rest
    from et_sim.compute.rules import Rules

    return Rules(
        system.compute,
        [OF_RULES[type(rule.settings)](rule.settings, rule.label, rule.place) for rule in system.compute],
        rest,
    )
