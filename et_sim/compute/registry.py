"""The compute models of whole systems, and the times of kernels without a run.

Roofline: a kernel is bound by its arithmetic or by its memory traffic.

intensity = ops / bytes; rate = min(memory bandwidth * intensity, peak); time = ops / rate. The order
of the floating-point operations is the reference's, so that the truncated nanoseconds agree. A kernel
without operations (the reference divides zero by zero) takes the time of its memory traffic.
A local reduction inside a collective reads local memory twice and writes it once.

Replay: a node takes exactly its time in the trace, and at least a nanosecond.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.lazy_names import loaded
from et_sim.basics.quantities import Quantity
from et_sim.basics.units import LONGEST_NS
from et_sim.compute.model import (
    ComputeModel,
    Durations,
    Labels,
    OfAllRanks,
    SystemModel,
    Treatment,
    Utilisation,
    ns_of,
    without,
)
from et_sim.machine.model import System
from et_sim.trace.columns import BoolColumn, IntColumn, Trace

Column = npt.NDArray[np.int64]


def reduction_ns(reduced_bytes: Column, bytes_per_ns: float) -> Column:
    """Return the time of three passes over the data, each truncated; zero without a bandwidth.

    Times are cut at a limit that no run may reach, so that they do not overflow before they are refused. The
    factors of 1e9 are the reference's: without them, some times would be rounded otherwise.
    """
    if bytes_per_ns <= 0 or not math.isfinite(bytes_per_ns):
        return np.zeros_like(reduced_bytes)
    one_pass = (reduced_bytes.astype(np.float64) / (bytes_per_ns * 1e9)) * 1e9
    return 3 * np.minimum(one_pass, 2 * LONGEST_NS).astype(np.int64)


class Roofline(OfAllRanks, Struct, frozen=True):
    """A roofline of one NPU: TFLOPS, and bytes of local memory per nanosecond."""

    peak_tflops: float
    bytes_per_ns: float

    @classmethod
    def of(cls, system: System) -> Roofline | None:
        """Return the roofline of a system that enables it, or None."""
        is_used = system.roofline and not system.replay_only
        return cls(system.peak_perf, system.local_mem_bw) if is_used else None

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:  # noqa: ARG002
        """Return the kernels that lack operations or bytes."""
        return without(trace, "tensor_size", "num_ops")

    def durations(self, trace: Trace, rows: IntColumn, rank: int = 0) -> Durations:  # noqa: ARG002
        """Return the durations of kernels; those without bytes complete at once, as in the reference."""
        ops, size = trace.num_ops[rows], trace.tensor_bytes[rows]
        timed = np.flatnonzero(size)
        nanoseconds = np.zeros(len(rows), np.int64)
        nanoseconds[timed] = self.duration_ns(ops[timed], size[timed])
        treatment = np.where(size != 0, Treatment.MODELLED, Treatment.INSTANT).astype(np.uint8)
        used = self.utilisation(ops[timed], size[timed]).spread(timed, len(rows))
        return Durations(nanoseconds, treatment, size, used)

    @property
    def _peak(self) -> float:
        return self.peak_tflops * 1e12

    @property
    def _bandwidth(self) -> float:
        """Return bytes per second, in which the reference computes."""
        return self.bytes_per_ns * 1e9

    def duration_ns(self, num_ops: IntColumn, tensor_bytes: IntColumn) -> IntColumn:
        """Return the time of each kernel; `tensor_bytes` must not be zero."""
        ops = num_ops.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.minimum(self._bandwidth * (ops / tensor_bytes), self._peak)
            seconds = np.where(num_ops == 0, tensor_bytes / self._bandwidth, ops / rate)
        nanoseconds = seconds * 1e9
        # Without a peak or bandwidth, kernels take no time, as in the reference.
        finite = np.where(np.isfinite(nanoseconds), nanoseconds, 0.0)
        return np.minimum(finite, 2 * LONGEST_NS).astype(np.int64)

    def utilisation(self, num_ops: IntColumn, tensor_bytes: IntColumn) -> Utilisation:
        """Return the utilisation of each kernel, with NaN without peak or bandwidth.

        `tensor_bytes` must not be zero.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            intensity = num_ops / tensor_bytes
            rate = np.minimum(self._bandwidth * intensity, self._peak)
            compute = rate / self._peak
            memory = np.where(rate < self._peak, 1.0, self._peak / intensity / self._bandwidth)
            arithmetic_ns = num_ops / self._peak * 1e9
            traffic_ns = tensor_bytes / self._bandwidth * 1e9
        is_memory_bound = rate < self._peak
        labelled = replace(
            Utilisation.unknown("roofline", "", len(intensity)),
            is_memory_bound=is_memory_bound,
            peak=Labels.alike(Quantity.PEAK_COMPUTE.value, len(intensity)),
            level=Labels.alike(Quantity.LOCAL_MEMORY_BANDWIDTH.value, len(intensity)),
        )
        if not (0 < self._peak < np.inf and 0 < self._bandwidth < np.inf):
            return labelled
        return replace(
            labelled,
            compute=compute,
            memory=memory,
            intensity=intensity,
            arithmetic_ns=arithmetic_ns,
            traffic_ns=traffic_ns,
            launch_ns=np.zeros(len(intensity)),
            bound=Labels.of(("compute", "memory"), is_memory_bound.astype(np.int64)),
        )


class Replay(OfAllRanks):
    """A model by which nodes take their recorded times."""

    @classmethod
    def of(cls, system: System) -> Replay:  # noqa: ARG003
        """Return the model: every system can replay."""
        return cls()

    def lacking(self, trace: Trace, rank: int) -> Mapping[str, BoolColumn]:  # noqa: ARG002
        """Return no kernels: a node without a duration takes one nanosecond."""
        return {}

    def durations(self, trace: Trace, rows: IntColumn, rank: int = 0) -> Durations:  # noqa: ARG002
        """Return the recorded durations, and mark nodes without one."""
        treatment = np.where(is_recorded(trace)[rows], Treatment.REPLAYED, Treatment.DEFAULTED).astype(
            np.uint8
        )
        return Durations(recorded_ns(trace)[rows], treatment)


def is_recorded(trace: Trace) -> BoolColumn:
    """Return the nodes that have a duration in their trace."""
    recorded: BoolColumn = (trace.duration_us != 0) | trace.has("duration_ns")
    return recorded


def recorded_ns(trace: Trace) -> IntColumn:
    """Return the duration of each node: exact if the trace has it, else from its microseconds.

    A recorded zero becomes one nanosecond. Times are cut at a limit that no run may reach, so that they do
    not overflow before they are refused.
    """
    micros = trace.duration_us
    rounded = np.where(micros == 0, 1, np.minimum(micros, LONGEST_NS // 1000 + 1) * 1000)
    return np.where(trace.has("duration_ns"), trace.duration_ns, rounded)


def at_full_clock(system: System) -> System:
    """Return the system without power caps."""
    rules = (
        replace(rule, settings=getattr(rule.settings, "at_full_clock", rule.settings))
        for rule in system.compute
    )
    return replace(system, compute=tuple(rules))


def kernel_times(model: ComputeModel) -> Callable[[Trace, Any, int], Any]:
    """Return a function of a trace, rows of its kernels and a rank, to nanoseconds.

    Kernels that lack attributes of the model take their recorded times.
    """

    def times(trace: Trace, rows: Any, rank: int) -> Any:
        lacks = np.zeros(len(trace), np.bool_)
        for mask in model.lacking(trace, rank).values():
            lacks |= mask
        ns = recorded_ns(trace)[rows]
        described = ~lacks[rows]
        rows = rows[described]
        ns[described] = ns_of(model, trace, rows, rank)
        return ns

    return times


# The first model that a system selects times its kernels; every system can replay.
MODELS: tuple[type[SystemModel], ...] = (Roofline, Replay)
# Contents and omissions of times of kernels at their roofs.
AT_THE_ROOFS = "kernels at their roofs", "launches, and losses below the roofs"


def replay(*_: Any) -> Replay:
    """Return the model of a rule by which kernels take their recorded times."""
    return Replay()


def scopes_of(system: System) -> dict[str, tuple[str, str]]:
    """Return the contents and omissions of the times of kernels, by label."""
    scopes = {"roofline": AT_THE_ROOFS} if Roofline.of(system) else {}
    rules = () if system.replay_only else system.compute
    return scopes | {rule.label: scope for rule in rules if (scope := rule.settings.scope)}


def compute_model(system: System) -> ComputeModel:
    """Return the model that times the kernels of a system."""
    rest: ComputeModel = next(model for kind in MODELS if (model := kind.of(system)) is not None)
    if system.replay_only or not system.compute:
        return rest
    from et_sim.compute.rules import ComputeRules

    return ComputeRules(
        system.compute,
        [loaded(rule.settings.timer)(rule.settings, rule.label, rule.place) for rule in system.compute],
        rest,
    )
