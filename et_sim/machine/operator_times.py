"""Measured durations of operations, as a file of the system gives them.

Not here: which node takes which (`et_sim.compute.operator_table`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

MEASURED = "time of measured operations"


class Outside(StrEnum):
    """What becomes of sizes beyond those that were measured."""

    REFUSE = "refuse"
    LEAVE = "leave"  # to the rules behind
    EXTRAPOLATE = "extrapolate"  # above in proportion to size; below, the time of the smallest


class Measure(StrEnum):
    """What the column `size` counts."""

    OPERATIONS = "operations"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True, eq=False)
class OperatorTimes:
    """Durations in ns: of whole shapes, and by size."""

    place: str
    datatype: str  # of nodes that say none
    size_is: Measure
    outside: Outside
    of_shapes: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (shape, datatype)
    # Kind of operation and datatype ("": any) -> sizes in ascending order, and their durations.
    of_sizes: Mapping[tuple[str, str], tuple[tuple[float, ...], tuple[float, ...]]] = field(
        default_factory=dict
    )
    multiple: float = 1.0  # of all of them

    @property
    def figures(self) -> tuple[str, ...]:
        """All durations together."""
        return (MEASURED,)

    def scaled(self, name: str, multiple: float) -> tuple[OperatorTimes, float] | None:
        """With all durations multiplied."""
        return (replace(self, multiple=self.multiple * multiple), multiple) if name == MEASURED else None
