"""Keys about single ranks and links: `stragglers` of the system file, `links` of the network file.

Not here: the other keys of these files (`tables`).
"""

from __future__ import annotations

from et_sim.machine.keys import Key, Kind

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
        unbounded=True,
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
