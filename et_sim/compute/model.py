"""The seam of compute models: how long a kernel takes, and how well it uses the machine.

A model is one module in this folder and one line in `registry`; the plan asks it for durations, folding
whether two traces measure the same, the timeline for utilisation. None of them knows which models there are.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import IntEnum
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from et_sim.machine.model import System
from et_sim.trace.columns import BoolColumn, IntColumn, RowColumn, Trace

FloatColumn = npt.NDArray[np.float64]


class Treatment(IntEnum):
    """Where a node's time comes from: the coverage table counts these."""

    MODELLED = 0
    REPLAYED = 1
    DEFAULTED = 2  # replayed, but the trace records no duration: one nanosecond
    INSTANT = 3  # takes no time by its nature


@dataclass(frozen=True, slots=True, eq=False)
class Utilisation:
    """Of each kernel: the shares of peak and of bandwidth that it reaches, and which of them limits it."""

    compute: FloatColumn
    memory: FloatColumn
    intensity: FloatColumn  # operations per byte
    is_memory_bound: BoolColumn

    def take(self, rows: IntColumn) -> Utilisation:
        """That of some of the kernels, in the order given."""
        return Utilisation(
            self.compute[rows], self.memory[rows], self.intensity[rows], self.is_memory_bound[rows]
        )

    def slowed(self, nominal_ns: IntColumn, actual_ns: IntColumn) -> Utilisation:
        """The same kernels where they take other times than the model says."""
        ratio = np.where(actual_ns > 0, nominal_ns / np.maximum(actual_ns, 1), 1.0)
        return replace(self, compute=self.compute * ratio, memory=self.memory * ratio)

    def spread(self, rows: IntColumn, count: int) -> Utilisation:
        """The same kernels as these rows of so many nodes: the others have NaN."""
        compute, memory, intensity = np.full((3, count), np.nan)
        compute[rows], memory[rows], intensity[rows] = self.compute, self.memory, self.intensity
        is_memory_bound = np.zeros(count, np.bool_)
        is_memory_bound[rows] = self.is_memory_bound
        return Utilisation(compute, memory, intensity, is_memory_bound)

    @staticmethod
    def joined(parts: list[Utilisation]) -> Utilisation:
        """All of them, one after the other."""
        columns = ([getattr(part, field.name) for part in parts] for field in fields(Utilisation))
        return Utilisation(*(np.concatenate(column) for column in columns))


@dataclass(frozen=True, slots=True, eq=False)
class Durations:
    """What a model says about some nodes, an entry for each."""

    ns: IntColumn
    treatment: npt.NDArray[np.uint8]  # Treatment; what is INSTANT occupies nothing
    bytes: IntColumn | None = None  # what the timeline shows as moved; None: nothing
    utilisation: Utilisation | None = None


class ComputeModel(Protocol):
    """How long the kernels of a machine take: its nodes that compute on the device."""

    @classmethod
    def of(cls, system: System) -> Self | None:
        """The model of a system; None if the system does not ask for this one."""

    def needs(self) -> tuple[str, ...]:
        """The attributes without which a kernel cannot be timed, and is replayed; by their names in files."""

    def durations(self, trace: Trace, rows: IntColumn, rank: int) -> Durations:
        """How long the kernels at these rows take on a rank, and on all others of its class."""

    def rank_classes(self, ranks: int) -> RowColumn | None:
        """A number per rank, equal where ranks are timed alike; None: all of them are."""

    def same(self, first: Trace, second: Trace) -> bool:
        """Whether traces whose durations and bytes are equal also use the machine equally well."""
