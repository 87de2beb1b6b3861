"""The compute models of whole systems, and the times of kernels for whoever adds them up without a run.

Replay is one of them: a node takes exactly as long as its trace says, and nothing takes less than a
nanosecond.

Not here: what else a node may wait for (the plan).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from et_sim.basics.lazy_names import loaded
from et_sim.basics.units import LONGEST_NS
from et_sim.compute.model import ComputeModel, Durations, OfAllRanks, SystemModel, Treatment
from et_sim.compute.roofline import Roofline
from et_sim.machine.model import System
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
# What kernels include that are timed at their roofs, and leave out.
AT_THE_ROOFS = "kernels at their roofs", "launches, and what keeps kernels below their roofs"


def replay(*_: Any) -> Replay:
    """The model of a rule by which kernels take their recorded times."""
    return Replay()


def scopes_of(system: System) -> dict[str, tuple[str, str]]:
    """The same of what times the kernels of a system, by its label."""
    scopes = {"roofline": AT_THE_ROOFS} if Roofline.of(system) else {}
    rules = () if system.replay_only else system.compute
    return scopes | {rule.label: scope for rule in rules if (scope := rule.settings.scope)}


def compute_model(system: System) -> ComputeModel:
    """The model that times the kernels of a system."""
    rest: ComputeModel = next(model for kind in MODELS if (model := kind.of(system)) is not None)
    if system.replay_only or not system.compute:
        return rest
    from et_sim.compute.rules import Rules

    return Rules(
        system.compute,
        [loaded(rule.settings.timer)(rule.settings, rule.label, rule.place) for rule in system.compute],
        rest,
    )
