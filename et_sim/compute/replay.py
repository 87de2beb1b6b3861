"""Replay: a node takes exactly as long as its trace says; nothing takes less than a nanosecond."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from et_sim.basics.units import LONGEST_NS
from et_sim.compute.model import Durations, Treatment
from et_sim.machine.model import Notice, System
from et_sim.trace.columns import BoolColumn, IntColumn, Trace


class Replay:
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

    def rank_classes(self, ranks: int) -> None:
        """Ranks of one trace replay the same."""

    def notices(self) -> tuple[Notice, ...]:
        """None."""
        return ()


def is_recorded(trace: Trace) -> BoolColumn:
    """Which nodes have a duration in their trace."""
    found: BoolColumn = (trace.duration_us != 0) | trace.has("duration_ns")
    return found


def recorded_ns(trace: Trace) -> IntColumn:
    """How long each node took: exactly if the trace says so, else by its microseconds.

    A recorded zero becomes one nanosecond; cut at what no run may reach, so that nothing overflows before it
    is refused.
    """
    micros = trace.duration_us
    rounded = np.where(micros == 0, 1, np.minimum(micros, LONGEST_NS // 1000 + 1) * 1000)
    return np.where(trace.has("duration_ns"), trace.duration_ns, rounded)
