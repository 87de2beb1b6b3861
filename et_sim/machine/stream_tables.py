"""Keys of the entries of `streams`, of the system file.

Not here: reading them (`streams`).
"""

from __future__ import annotations

from et_sim.machine.keys import Key, Kind
from et_sim.machine.model import StreamWork

NAME = "streams"
MOST_STREAMS = 64
MOST_AT_A_TIME = 1_000_000

STREAM_KEYS = (
    Key("name", Kind.TEXT, "What the stream is called.", required=True),
    Key(
        "takes",
        Kind.CHOICES,
        "Which work it takes: `kernels` and `copies` of the device, `host` work, `sends`, `collectives`, "
        "`loads` from and `stores` to remote memory.",
        choices=tuple(work.value for work in StreamWork),
        required=True,
    ),
    Key(
        "at-a-time",
        Kind.COUNT,
        "How much of it is under way at a time.",
        default=1,
        minimum=1,
        minimum_reason="nothing on the stream would ever start",
        maximum=MOST_AT_A_TIME,
    ),
    Key("nodes", Kind.TEXT, 'Only nodes with this name; `*` stands for any text: `"*gemm*"`.'),
    Key("group", Kind.TEXT, "Only collectives of this communicator group; `all` is every rank."),
    Key("stream", Kind.COUNT, "Only nodes whose trace records this number in the attribute `stream`."),
)

OVERLAP = "overlap"
MOST_SLOWED = 10
OVERLAP_KEYS = tuple(
    Key(
        work.value,
        Kind.NUMBER,
        f"How many times longer {what} take while a send or collective of the same NPU is under way, and as "
        "long as it is; at most three decimals. Without the key: no longer.",
        minimum=1,
        maximum=MOST_SLOWED,
    )
    for work, what in (
        (StreamWork.KERNELS, "kernels"),
        (StreamWork.COPIES, "copies to, from and between devices"),
    )
)

OVERLAP_KEY = Key(
    OVERLAP,
    Kind.OBJECT,
    "What computing loses to communication of the same NPU, with which it shares memory and cores; see "
    "[streams](streams.md#what-runs-side-by-side-slows-down).",
    "Not known there.",
    choices=tuple(key.name for key in OVERLAP_KEYS),
)

STREAMS_KEY = Key(
    NAME,
    Kind.OBJECTS,
    "What runs side by side on an NPU; see [streams](streams.md). Of the entries, the first that fits a node "
    "takes it; what none takes runs as without the key.",
    "Not known there.",
    choices=tuple(key.name for key in STREAM_KEYS),
)
