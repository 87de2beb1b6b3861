"""Keys of `compute` in the system file: of its rules, and of each model.

Not here: reading them (`compute_object`), and what the models are (`systolic`, `roofline`).
"""

from __future__ import annotations

from et_sim.machine.compute_rules import WorkOf
from et_sim.machine.datatypes import BITS
from et_sim.machine.keys import Key, Kind
from et_sim.machine.operator_times import Measure, Outside
from et_sim.machine.systolic import (
    GREATEST_BANDWIDTH,
    LARGEST_MEMORY_KB,
    LARGEST_SIDE,
    Dataflow,
    Rules,
)

NAME = "compute"
WHERE, LABEL, MODEL = "where", "label", "model"
LARGEST_RATE = 1 << 40


def _size(name: str, meaning: str, unit: str, most: int) -> Key:
    return Key(name, Kind.COUNT, meaning, unit=unit, minimum=1, maximum=most, required=True)


WHERE_KEYS = (
    Key("name", Kind.TEXT, 'Nodes with this name; `*` stands for any text: `"*gemm*"`.'),
    Key("name-regex", Kind.TEXT, "Nodes whose whole name matches this regular expression."),
    Key(
        "kind",
        Kind.CHOICE,
        "`copy`: nodes marked as copies of the device's memory; `kernel`: all others.",
        choices=tuple(one.value for one in WorkOf),
    ),
    Key(
        "operation",
        Kind.TEXT,
        "Nodes whose `layer_shape` begins with this word; several with commas between.",
    ),
    Key("dtype", Kind.TEXT, "Nodes whose attribute `dtype` is this one."),
    Key("attribute", Kind.TEXT, "Nodes that carry this attribute."),
    Key(
        "value",
        Kind.TEXT_OR_NUMBER,
        "The attribute's value. Without the key: any.",
        needs="attribute",
    ),
    Key("ranks", Kind.TEXT, 'Which ranks: `"0-3,8"`, `"0-14/2"` for every second one, or `"all"`.'),
)

RULE_KEYS = (
    Key(
        MODEL,
        Kind.TEXT,
        "What times the kernels: `roofline`, `systolic`, `table` or `replay`.",
        required=True,
    ),
    Key(
        WHERE,
        Kind.OBJECT,
        "Which kernels: all that is given must hold. Without the key: all that no rule before has.",
        choices=tuple(key.name for key in WHERE_KEYS),
    ),
    Key(LABEL, Kind.TEXT, "What the timeline calls the rule in `timed_by`. Without the key: the model."),
)

SYSTOLIC_KEYS = (
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

_DATATYPE = Key(
    "dtype",
    Kind.CHOICE,
    "The datatype of nodes that have no attribute `dtype`.",
    choices=tuple(BITS),
)

ROOFLINE_KEYS = (
    Key(
        "peaks",
        Kind.OBJECT,
        "Peak rate by datatype, in TFLOPS (integers: TOPS).",
        unit="TFLOPS",
        choices=tuple(BITS),
        required=True,
    ),
    Key(
        "sustained-peaks",
        Kind.OBJECT,
        "Rate by datatype that kernels do not exceed in a run, in TFLOPS: what the power of the board allows "
        "with data as workloads have; see [sustained peaks](compute.md#sustained-peaks). Without the key: "
        "`peaks`.",
        unit="TFLOPS",
        choices=tuple(BITS),
    ),
    _DATATYPE,
    Key(
        "memory",
        Kind.OBJECTS,
        "Levels of memory, the largest first. The smallest that a kernel's tensors fit serves it.",
        choices=("name", "bandwidth", "capacity"),
        required=True,
    ),
    Key(
        "efficiency",
        Kind.NUMBER_OR_OBJECT,
        "Part of the peak rate that is reached; see [efficiencies](compute.md#efficiencies).",
        default=1.0,
    ),
    Key(
        "memory-efficiency",
        Kind.NUMBER_OR_OBJECT,
        "Part of a level's bandwidth that is reached, by bytes.",
        default=1.0,
    ),
    Key("launch-overhead", Kind.TIME, "What every kernel takes besides.", default=0.0, unit="ns"),
    Key(
        "processors",
        Kind.COUNT,
        "Processors (SMs, compute units) that the tiles of kernels are spread over.",
        minimum=1,
        maximum=1 << 20,
    ),
    Key(
        "tiles",
        Kind.TILES,
        "Tiles that products may be cut into; the one that takes the shortest time is taken. A fourth number "
        "is the part of the peak that is reached with it.",
        needs="processors",
    ),
    Key(
        "prologue",
        Kind.NUMBER,
        "Steps of K that every tile takes besides its own, to begin and to end.",
        needs="tiles",
        maximum=1 << 20,
    ),
    Key(
        "split-k",
        Kind.COUNT,
        "Parts into which K of a product may be split, at most; powers of two are tried.",
        needs="tiles",
        minimum=1,
        maximum=1 << 10,
    ),
    Key("split-time", Kind.TIME, "What a product takes besides that is split.", needs="split-k", unit="ns"),
    Key(
        "query-tile",
        Kind.COUNT,
        "Queries that a processor works on at a time, in attention. Without the key: attention is not cut.",
        needs="processors",
        minimum=1,
        maximum=1 << 20,
    ),
    Key(
        "query-prologue",
        Kind.NUMBER,
        "Keys that every tile of attention takes besides those that its queries see.",
        needs="query-tile",
        maximum=1 << 20,
    ),
)

LEVEL_OF_MEMORY_KEYS = (
    Key("name", Kind.TEXT, "What the timeline calls it: `HBM`.", required=True),
    Key(
        "bandwidth",
        Kind.RATE,
        "Bandwidth of the whole device.",
        unit="GB/s (10^9 bytes)",
        above_minimum=True,
        required=True,
        maximum=LARGEST_RATE,
    ),
    Key("capacity", Kind.SIZE, "Without the key: everything fits.", unit="bytes", above_minimum=True),
)

OPERATOR_TABLE_KEYS = (
    Key(
        "file",
        Kind.TEXT,
        "The table, CSV or Arrow; a path relative to the system file.",
        required=True,
    ),
    _DATATYPE,
    Key(
        "size",
        Kind.CHOICE,
        "What the column `size` counts of an operation.",
        default=Measure.OPERATIONS.value,
        choices=tuple(one.value for one in Measure),
    ),
    Key(
        "outside",
        Kind.CHOICE,
        "Kernels that the table has not: refused, left to the rules behind, or, of sizes beyond the table, "
        "in proportion to the largest above it, and the time of the smallest below it.",
        default=Outside.REFUSE.value,
        choices=tuple(one.value for one in Outside),
    ),
)

COMPUTE_KEY = Key(
    NAME,
    Kind.RULES,
    "What times kernels: a model, or [rules](compute.md) of which the first that a kernel matches holds; "
    "the rest is timed by the keys above.",
    "Not known there.",
)
