"""Keys of the object `costs`, of the system file.

Not here: reading them (`costs_object`).
"""

from __future__ import annotations

from et_sim.machine.keys import Key, Kind

NAME = "costs"
MOST = 1_000_000_000

COSTS_KEYS = (
    Key(
        "busy-watts",
        Kind.NUMBER,
        "What an NPU draws while it computes: while a kernel or copy runs.",
        unit="watts",
        field="busy_watts",
        maximum=MOST,
    ),
    Key(
        "idle-watts",
        Kind.NUMBER,
        "What it draws the rest of the time: while it communicates or waits, and until the last rank is "
        "done. Given together with `busy-watts`.",
        unit="watts",
        field="idle_watts",
        maximum=MOST,
    ),
    Key(
        "network-watts",
        Kind.NUMBER,
        "What an NPU's links, and its share of switches, draw all the time, whether bytes move or not.",
        default=0,
        unit="watts",
        field="network_watts",
        maximum=MOST,
    ),
    Key(
        "price-per-hour",
        Kind.NUMBER,
        "The price of an NPU for an hour, with all that is charged with it.",
        field="price_per_hour",
        maximum=MOST,
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
    NAME,
    Kind.OBJECT,
    "What an NPU draws and what it is let for; then the summary says what the run takes of both "
    "([energy and price](machines.md#energy-and-price)).",
    "Not known there.",
    choices=tuple(key.name for key in COSTS_KEYS),
)
