"""Keys of the memory file about a hierarchical pool: those of the file, and those of its stages.

Not here: what they must be together (`memory_file`).
"""

from __future__ import annotations

from et_sim.machine.keys import Key, Kind

MOST_UNITS, MOST_STAGES = 2**24, 64
_GB = "GB/s (10^9 bytes)"

STAGE_KEYS = (
    Key("name", Kind.TEXT, "What the stage is called, in tiers and in results.", required=True),
    Key(
        "count",
        Kind.COUNT,
        "How many units it has, such as switches. Consecutive NPUs share one; if there are more units than "
        "NPUs, each NPU has several of its own, which share its transfers evenly.",
        minimum=1,
        maximum=MOST_UNITS,
        required=True,
    ),
    Key("bandwidth", Kind.NUMBER, "Of each unit.", unit=_GB, above_minimum=True),
    Key(
        "load",
        Kind.NUMBER,
        "Of each unit when NPUs read, if that differs from `bandwidth`.",
        unit=_GB,
        above_minimum=True,
    ),
    Key(
        "store",
        Kind.NUMBER,
        "Of each unit when NPUs write, if that differs from `bandwidth`.",
        unit=_GB,
        above_minimum=True,
    ),
    Key("latency", Kind.TIME, "From a unit to the next stage; none if it is not given.", unit="ns"),
    Key(
        "duplex",
        Kind.FLAG,
        "Whether loads and stores do not wait for each other in a unit; default: they do.",
    ),
    Key(
        "latency-occupies",
        Kind.FLAG,
        "Whether a unit is busy during its latency, too, as the remote memory of the reference is; "
        "default: it is not.",
    ),
)
POOL_KEYS = (
    Key(
        "chunk",
        Kind.SIZE,
        "Transfers are cut into equal pieces of at most so many bytes, which pass the stages one behind the "
        "other; required by HIERARCHICAL_POOL.",
        "Not known.",
        field="chunk_bytes",
        minimum=1,
    ),
    Key(
        "stages",
        Kind.OBJECTS,
        "What transfers pass, from the NPUs to the memory; required by HIERARCHICAL_POOL.",
        "Not known.",
        choices=tuple(key.name for key in STAGE_KEYS),
    ),
    Key(
        "tiers",
        Kind.PATHS,
        "Memories that requests choose between by their attribute `memory_tier`, and the stages on the way "
        "to each; without it there is one, behind all stages.",
        "Not known.",
    ),
    Key(
        "sharing",
        Kind.CHOICE,
        "Whether transfers that meet in a unit are served one after the other, or all at once, max-min "
        "fairly; default: in turn.",
        "Not known.",
        choices=("in-turn", "fair"),
    ),
    Key(
        "default-tier",
        Kind.TEXT,
        "The tier of requests that name none; without it the first one.",
        "Not known.",
    ),
)
