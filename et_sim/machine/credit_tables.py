"""Keys of the network file's `credits`.

Not here: how they are read (`topology.credits`).
"""

from __future__ import annotations

from et_sim.machine.keys import Key, Kind
from et_sim.machine.transports import Credits

MOST_BYTES = 1 << 20  # of a packet
MOST_CHANNELS = 1 << 12
PACKET, FLIT = "packet", "flit"
_DEFAULT = Credits()

CREDIT_KEYS = (
    Key(
        "flit",
        Kind.COUNT,
        f"Bytes that move at a time; {_DEFAULT.flit} unless given.",
        unit="bytes",
        minimum=1,
        maximum=MOST_BYTES,
    ),
    Key(
        "packet",
        Kind.COUNT,
        f"Bytes of a message in a packet, which takes one channel of each link; {_DEFAULT.packet} unless "
        "given.",
        unit="bytes",
        minimum=1,
        maximum=MOST_BYTES,
    ),
    Key(
        "channels",
        Kind.COUNT,
        "Virtual channels of each class of a link; a packet holds one until it is known at the link's "
        "beginning that it has left it. Unless given, as many as keep the longest link busy.",
        minimum=1,
        maximum=MOST_CHANNELS,
    ),
    Key(
        "buffer",
        Kind.COUNT,
        "Flits for which a channel has places; those of a packet unless given.",
        unit="flits",
        minimum=1,
        maximum=MOST_BYTES,
    ),
    Key(
        "router-cycles",
        Kind.COUNT,
        f"Cycles of a router's pipeline; {_DEFAULT.router_cycles} unless given.",
        unit="cycles",
        minimum=1,
        maximum=MOST_BYTES,
    ),
    Key(
        "cycle",
        Kind.TIME,
        "How long a cycle takes, in whole picoseconds; unless given, at most 1 ns, so that a flit takes "
        "whole cycles on the fastest link.",
        unit="ns",
        above_minimum=True,
        maximum=MOST_BYTES,
    ),
    Key(
        "padding",
        Kind.FLAG,
        "The last packet of a message is as long as the others; unless given, it is as long as what is left.",
    ),
    Key(
        "turns",
        Kind.CHOICE,
        "When a port turns to another packet that waits for it: after each `packet` (unless given), or after "
        "each `flit`.",
        choices=(PACKET, FLIT),
    ),
)
CREDITS_KEY = Key(
    "credits",
    Kind.OBJECT,
    "Links carry flits for which there is a place at the other end, on the packet model; see "
    "[networks](networks.md#credits).",
    "In files of Garnet.",
    choices=tuple(key.name for key in CREDIT_KEYS),
)
