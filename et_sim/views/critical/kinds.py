"""The kinds of causal events that the views know, as codes.

Not here: what time of each kind counts as (`path`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

NONE = -1
# The words of the column `kind` that the views know; those in which time passes come first.
TIMES = ("late_start", "node", "contention", "latency", "serialisation", "endpoint", "reduction", "bus")
LIBRARY = "library"  # and there: what a collective library takes beside the wires
PACKETS = ("window", "packet_queue", "resending")  # and there, of messages as packets
SWITCHES = ("switch", "switch_rate")  # time passes there, too
QUEUES = ("link_queue", "server_queue", "bus_queue")
MEETINGS = (
    "begin",
    "node_start",
    "node_end",
    "chunk_queued",
    "chunk_start",
    "parents",
    "lane",
    "queue_slot",
    "link",
)
OTHERS = (
    "server",
    "bus_side",
    "receive",
    "request",
    "endpoint_transfers",
    "half",
    "chunks",
    "barrier",
    "bound",
)
SETS_DURATIONS = (*TIMES, LIBRARY, *PACKETS, *SWITCHES)
KINDS = (*SETS_DURATIONS, *QUEUES, *MEETINGS, *OTHERS)


def is_kind(kind: Any, *names: str) -> Any:
    """Which events are of these kinds, by their codes."""
    return np.array([name in names for name in KINDS])[kind]


def narrow(count: int) -> type:
    """The integers that so many events are numbered with: their columns are long."""
    return np.int32 if count < np.iinfo(np.int32).max else np.int64
