"""Keys of the objects `accuracy`, `costs` and `streams` of the system file, and of their entries.

Not here: reading them (`objects`), and what is known where a file says nothing (`accuracy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from et_sim.basics.uncertainty import BASES, WHOLE
from et_sim.machine.accuracy import COMMUNICATION, DEVICE, HOST, KERNELS, LIBRARY, MEMORY, RECORDED, TABLES
from et_sim.machine.keys import Key, Kind
from et_sim.machine.model import StreamWork

STREAMS = "streams"
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
    STREAMS,
    Kind.OBJECTS,
    "What runs side by side on an NPU; see [streams](streams.md). Of the entries, the first that fits a node "
    "takes it; what none takes runs as without the key.",
    "Not known there.",
    choices=tuple(key.name for key in STREAM_KEYS),
)


COSTS = "costs"
MOST_COST = 1_000_000_000

COSTS_KEYS = (
    Key(
        "busy-watts",
        Kind.NUMBER,
        "What an NPU draws while it computes: while a kernel or copy runs.",
        unit="watts",
        field="busy_watts",
        maximum=MOST_COST,
    ),
    Key(
        "idle-watts",
        Kind.NUMBER,
        "What it draws the rest of the time: while it communicates or waits, and until the last rank is "
        "done. Given together with `busy-watts`.",
        unit="watts",
        field="idle_watts",
        maximum=MOST_COST,
    ),
    Key(
        "network-watts",
        Kind.NUMBER,
        "What an NPU's links, and its share of switches, draw all the time, whether bytes move or not.",
        default=0,
        unit="watts",
        field="network_watts",
        maximum=MOST_COST,
    ),
    Key(
        "price-per-hour",
        Kind.NUMBER,
        "The price of an NPU for an hour, with all that is charged with it.",
        field="price_per_hour",
        maximum=MOST_COST,
    ),
    Key(
        "currency",
        Kind.TEXT,
        "What the price is in.",
        default="USD",
        field="currency",
    ),
)

COSTS_KEY = Key(
    COSTS,
    Kind.OBJECT,
    "What an NPU draws and what it is let for; then the summary says what the run takes of both "
    "([energy and price](machines.md#energy-and-price)).",
    "Not known there.",
    choices=tuple(key.name for key in COSTS_KEYS),
)


ACCURACY = "accuracy"
MOST = 3  # of a logarithm: a factor of twenty
_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        KERNELS: "Kernels that a model times; a kind of operation, such as `gemm`, may have its own entry. "
        "Of `gemm`, those with a side below 1,024 may have one apart, `small_gemm`; of `attention`, those of "
        "fewer than 2,048 queries, `short_attention`.",
        TABLES: "Kernels whose times stand in a table of measured times.",
        RECORDED: "Kernels, copies and communication that take the times of a recording.",
        COMMUNICATION: "Transfers that nothing hides; a kind, such as `all_reduce`, may have its own entry.",
        LIBRARY: "Collectives that the machine's collective library chooses; those of less than 64 MiB, "
        "and of groups on several nodes, may have entries apart: `small_library`, `library_between_nodes`.",
        HOST: "Time in which the device waits for its host.",
        MEMORY: "Time of remote memory that nothing hides.",
        WHOLE: "What all times share: other software, clocks (`common`), and what differs from one run to "
        "the next (`random`). `basis` says nothing here.",
    }
)

TERM_KEYS = (
    Key(
        "basis",
        Kind.CHOICE,
        "What times rest on: `measured`, `calibrated` (fitted to measurements of the device), `modelled`, or "
        "`assumed`.",
        choices=BASES,
    ),
    Key(
        "random",
        Kind.NUMBER,
        "The standard error that each kind and size has of its own, of the logarithm.",
        maximum=MOST,
    ),
    Key("common", Kind.NUMBER, "The standard error that all of the class share.", maximum=MOST),
    Key(
        "bias",
        Kind.NUMBER,
        "By how much true times exceed predicted ones on average, as a logarithm; below 0: they are shorter.",
        minimum=-MOST,
        maximum=MOST,
    ),
)

ACCURACY_KEYS = (
    Key(DEVICE, Kind.TEXT, "What errors are of: two runs have the same ones if they name the same."),
    *(
        Key(name, Kind.OBJECT, text, choices=tuple(key.name for key in TERM_KEYS))
        for name, text in _MEANINGS.items()
    ),
)

ACCURACY_KEY = Key(
    ACCURACY,
    Kind.OBJECT,
    "How far times may be off, of a machine that stands for a real one; then the summary has "
    "[a band](output.md#how-far-it-may-be-off).",
    "Not known there.",
    choices=tuple(key.name for key in ACCURACY_KEYS),
)
