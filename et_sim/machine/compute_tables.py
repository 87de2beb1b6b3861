"""Keys of the object `compute` of the system file.

Not here: reading it (`compute_object`), and what an array is (`systolic`).
"""

from __future__ import annotations

from et_sim.machine.keys import Key, Kind
from et_sim.machine.systolic import (
    GREATEST_BANDWIDTH,
    LARGEST_MEMORY_KB,
    LARGEST_SIDE,
    Dataflow,
    Rules,
)

NAME = "compute"
SYSTOLIC = "systolic"


def _size(name: str, meaning: str, unit: str, most: int) -> Key:
    return Key(name, Kind.COUNT, meaning, unit=unit, minimum=1, maximum=most, required=True)


SYSTOLIC_KEYS = (
    Key(
        "model",
        Kind.CHOICE,
        "What times kernels: `systolic`, a [systolic array](systolic.md).",
        choices=(SYSTOLIC,),
        required=True,
    ),
    _size("array-height", "Rows of the array.", "processing elements", LARGEST_SIDE),
    _size("array-width", "Columns of the array.", "processing elements", LARGEST_SIDE),
    _size("ifmap-sram-kb", "Memory for the first operand.", "KiB", LARGEST_MEMORY_KB),
    _size("filter-sram-kb", "Memory for the second operand.", "KiB", LARGEST_MEMORY_KB),
    _size("ofmap-sram-kb", "Memory for the result.", "KiB", LARGEST_MEMORY_KB),
    Key(
        "dataflow",
        Kind.CHOICE,
        "What stays in the array: the output, the weights or the input.",
        choices=tuple(one.value for one in Dataflow),
        required=True,
    ),
    Key(
        "bandwidth",
        Kind.COUNT,
        "Words that each operand moves per cycle to or from DRAM. Without the key: as many as it needs.",
        unit="words per cycle",
        minimum=1,
        maximum=GREATEST_BANDWIDTH,
    ),
    Key(
        "rules",
        Kind.CHOICE,
        "Whose rules are applied: those of SCALE-Sim, or [corrected ones](systolic.md#corrected-rules).",
        default=Rules.SCALE_SIM.value,
        choices=tuple(one.value for one in Rules),
    ),
    Key(
        "clock-ghz",
        Kind.NUMBER,
        "Cycles per nanosecond; times are cut to whole nanoseconds.",
        default=1.0,
        unit="GHz",
        above_minimum=True,
        maximum=1000,
    ),
)

COMPUTE_KEY = Key(
    NAME,
    Kind.OBJECT,
    "What times kernels, if not the roofline; see [systolic arrays](systolic.md#in-a-simulation).",
    "Not known there.",
    choices=tuple(key.name for key in SYSTOLIC_KEYS),
)
