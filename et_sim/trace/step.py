"""What a workload says that it does for its user: tokens, and the operations that they are worth.

A run of the workload is one step. `model_operations` are those that the mathematics of the model need,
whatever is worked out again; `hardware_operations` those that kernels do, by the same rules of counting, so
that both may be divided by a device's peak (`et_sim.timeline.throughput`).

Not here: how they are counted for a model (`et_sim.workloads.training.operations`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from et_sim.basics.errors import TraceError

MOST = 1e30
DATATYPE = "dtype"
NUMBERS = ("tokens", "model_operations", "hardware_operations")
KEYS = (*NUMBERS, DATATYPE)


@dataclass(frozen=True, slots=True)
class Step:
    """Of all ranks together; None: nobody says."""

    tokens: int
    model_operations: int | None = None
    hardware_operations: int | None = None
    datatype: str = ""  # of the products, whose peak operations are held against

    def as_written(self) -> dict[str, Any]:
        """As a manifest has it."""
        values = (self.tokens, self.model_operations, self.hardware_operations, self.datatype or None)
        return {key: value for key, value in zip(KEYS, values, strict=True) if value is not None}


def read_step(content: Mapping[str, Any], place: str) -> Step:
    """From the object `step` of a manifest, whose keys are known ones."""
    if "tokens" not in content:
        raise TraceError('step: key "tokens" is missing', place=place, remedy="say how many a run works on")
    numbers = [_number(content[key], key, place) if key in content else None for key in NUMBERS]
    datatype = content.get(DATATYPE, "")
    if not isinstance(datatype, str):
        raise TraceError(
            f'step: key "{DATATYPE}" is {datatype!r}', place=place, remedy='give a name such as "bf16"'
        )
    return Step(numbers[0] or 1, numbers[1], numbers[2], datatype)


def _number(value: Any, key: str, place: str) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not 1 <= value <= MOST:
        raise TraceError(
            f'step: key "{key}" is {str(value)[:40]}',
            place=place,
            remedy=f"give a number from 1 to {MOST:g}, of all ranks together",
        )
    return int(value)
