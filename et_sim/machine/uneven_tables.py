"""Keys about single ranks, kinds of work and links: `stragglers` and `time-factors` of the system file,
`links` and `in-network` of the network file.

Not here: the other keys of these files (`tables`).
"""

from __future__ import annotations

from et_sim.machine.keys import Key, Kind
from et_sim.machine.model import WorkKind

STRAGGLER_KEYS = (
    Key(
        "ranks",
        Kind.TEXT,
        'Which ranks: `"3,8-11"`, `"0-14/2"` for every second one, or `"all"`.',
        required=True,
    ),
    Key(
        "compute",
        Kind.NUMBER,
        "Multiplies the durations of compute nodes, replayed or modelled.",
        above_minimum=True,
    ),
    Key(
        "delay",
        Kind.TIME,
        "By how much the ranks start late; with `node`, by how much that node takes longer.",
        unit="ns",
    ),
    Key("node", Kind.COUNT, "The id of the node that `delay` is for.", needs="delay"),
    Key(
        "jitter",
        Kind.NUMBER,
        "Multiplies the duration of every compute node by a factor of its own, drawn uniformly from 1 minus "
        "this to 1 plus this.",
        below=1,
    ),
    Key("seed", Kind.COUNT, "Another seed draws other factors. Without the key: 0.", needs="jitter"),
)

STRAGGLERS_KEY = Key(
    "stragglers",
    Kind.OBJECTS,
    "Ranks that are slower than the others; see [uneven machines](uneven-machines.md).",
    "Not known there.",
    choices=tuple(key.name for key in STRAGGLER_KEYS),
)

_FACTORS = (
    (WorkKind.KERNELS, "kernels of devices, recorded or modelled"),
    (WorkKind.COPIES, "copies to, from and between devices, and fills of their memory"),
    (WorkKind.OPERATORS, "what the host does, but for launches: operators, and what is left of them"),
    (WorkKind.LAUNCHES, "calls of the device's runtime that launch work or wait for it"),
    (WorkKind.GAPS, "time between two things of a thread or stream that a recording does not explain"),
    (
        WorkKind.COMMUNICATION,
        "sends, receives and collectives that take their recorded time, as with `replay-only`; what is "
        "simulated takes what the network takes",
    ),
)

TIME_FACTOR_KEYS = (
    Key(
        "ranks",
        Kind.TEXT,
        'Which ranks: `"3,8-11"`, `"0-14/2"` for every second one, or `"all"`. Without the key: all.',
    ),
    Key(
        "name",
        Kind.TEXT,
        'Only nodes with this name; `*` stands for any text: `"*gemm*"`. Without the key: any name.',
    ),
    *(Key(kind.value, Kind.NUMBER, f"Multiplies the time of {what}.") for kind, what in _FACTORS),
)

TIME_FACTORS_KEY = Key(
    "time-factors",
    Kind.OBJECTS,
    "How much longer or shorter kinds of work take than recorded or modelled; see [what if](what-if.md).",
    "Not known there.",
    choices=tuple(key.name for key in TIME_FACTOR_KEYS),
)

LINK_KEYS = (
    Key("dimension", Kind.COUNT, "The dimension that the link is in, counted from 0.", required=True),
    Key(
        "from",
        Kind.LINK_END,
        "Where it begins: an NPU; in a Switch dimension, at one of the ends, `switch`.",
        required=True,
    ),
    Key("to", Kind.LINK_END, "Where it ends; in a Ring, a neighbour.", required=True),
    Key(
        "bandwidth",
        Kind.BANDWIDTH,
        "Its bandwidth, as in the list. Without the key: as the dimension's.",
        unit="GiB/s (2^30 bytes)",
        above_minimum=True,
    ),
    Key("latency", Kind.TIME, "Its latency, as in the list. Without the key: as the dimension's.", unit="ns"),
)

LINKS_KEY = Key(
    "links",
    Kind.OBJECTS,
    "Links that differ from the others of their dimension; see [uneven machines](uneven-machines.md).",
    "Not known there.",
    choices=tuple(key.name for key in LINK_KEYS),
)

IN_NETWORK_KEYS = (
    Key("dimension", Kind.COUNT, "A Switch dimension, counted from 0, whose switches reduce.", required=True),
    Key(
        "rate",
        Kind.BANDWIDTH,
        "What a switch passes on of reduced or copied data in a time. Without the key: as much as comes.",
        unit="GiB/s (2^30 bytes)",
        above_minimum=True,
    ),
    Key(
        "latency", Kind.TIME, "What a switch takes for a chunk besides. Without the key: nothing.", unit="ns"
    ),
)

IN_NETWORK_KEY = Key(
    "in-network",
    Kind.OBJECTS,
    "Dimensions whose [switches reduce](networks.md#switches-that-reduce), for the algorithm `inNetwork`.",
    "Not known there.",
    choices=tuple(key.name for key in IN_NETWORK_KEYS),
)
