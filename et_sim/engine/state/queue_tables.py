"""The tables of packets at ports over time (`observe.queues`): slices of time, and pauses.

They are empty in a run that does not record them. There are as many slices of every port for runs of any
length: when a run outlasts them, neighbours are merged, so that each becomes twice as wide.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import MachineError
from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.state.traffic_tables import FEWEST_SLICES, MOST_SLICES, SLICES_IN_ALL
from et_sim.plan.records import record, table

WIDTH, PER_PORT, WAY = range(3)  # of `Queues.grid`
PAUSES_LOGGED, FLOWS_LOGGED = range(2)  # of `Queues.logged`
ROWS_AT_ONCE = 1 << 12
MOST_CROSSINGS = 1 << 25  # 256 MiB
NONE = -1

QUEUE_SLICE = record(
    ("filled", "i8"),  # bytes that waited, times ns
    ("deepest", "i8"),  # bytes, at most at a time
    ("messages", "i8"),  # on their way over the port, at most at a time
    ("lost", "i8"),  # packets
    ("marked", "i8"),
    ("pauses", "i8"),  # that began
    ("paused_ns", "i8"),
)
QUEUE = record(
    ("since_ns", "i8"),  # when the next three values began
    ("bytes", "i8"),
    ("messages", "i8"),
    ("is_paused", "u1"),
    # The pause that was requested last
    ("asked_ns", "i8"),
    ("begin_ns", "i8"),
    ("egress", "i4"),
    ("egress_bytes", "i8"),
    ("egress_depth", "i8"),
)
PAUSE = record(
    ("port", "i4"),  # that is paused
    ("egress", "i4"),  # of the device that requested it: where most bytes from the port waited
    ("asked_ns", "i8"),
    ("begin_ns", "i8"),  # when the port received it
    ("end_ns", "i8"),  # NONE: never
    ("egress_bytes", "i8"),  # bytes from the port that waited there at the request
    ("egress_depth", "i8"),  # all bytes that waited there
)
FLOW = record(
    ("source", "i4"),  # ranks
    ("target", "i4"),
    ("bytes", "i8"),
    ("begin_ns", "i8"),
    ("left_ns", "i8"),  # when its last byte had left for the first time
    ("arrived_ns", "i8"),
    ("packets", "i4"),  # with data that came
    ("sent_again", "i4"),  # packets
    ("timeouts", "i4"),
    ("window_ns", "i8"),  # how long a full window delayed it
    ("rate_ns", "i8"),  # and its rate
    ("paused_ns", "i8"),  # how long its first port was paused while it was under way
    ("queued_ns", "i8"),  # waits of its packets on their way, summed
    ("last_queued_ns", "i8"),  # and the last that came
)


class Queues(Tables, Struct, frozen=True):
    """The records of ports."""

    on: Any  # empty, or one: recording is on
    ports: Any  # QUEUE
    slices: Any  # of every port
    grid: Any  # [binary logarithm of a slice's width in ns, slices per port, most links of a way]
    # With pauses: bytes in devices, by the link over which they came and the port that they wait for.
    crossings: Any
    first_crossing: Any  # by link
    place: Any  # of a port among those of its device
    first_port: Any  # by device, among the next
    device_ports: Any
    pauses: Any  # a buffer that is emptied between events
    flows: Any  # another one: messages that have arrived
    ways: Any  # their links, one after the other; NONE ends each
    logged: Any  # rows in the two buffers


def no_queues() -> Queues:
    """Return empty tables."""
    none = np.zeros(0, np.int64)
    return Queues(
        on=np.zeros(0, np.int8),
        ports=table(QUEUE, 0),
        slices=table(QUEUE_SLICE, 0),
        grid=none,
        crossings=none,
        first_crossing=none,
        place=none,
        first_port=none,
        device_ports=none,
        pauses=table(PAUSE, 0),
        flows=table(FLOW, 0),
        ways=none,
        logged=none,
    )


def new_queues(sources: Any, targets: Any, *, pauses: bool, way: int = 0) -> Queues:
    """Return tables for ports from these devices to those; `pauses`: other devices may pause some.

    Messages are recorded if the most links of a way (`way`) are given.
    """
    count = len(sources)
    per_port = max(FEWEST_SLICES, min(MOST_SLICES, 1 << (SLICES_IN_ALL // max(count, 1)).bit_length() >> 1))
    device_ports = np.argsort(sources, kind="stable")
    devices = int(max(sources.max(initial=0), targets.max(initial=0))) + 1
    first_port = np.searchsorted(sources[device_ports], np.arange(devices + 1))
    place = np.empty(count, np.int64)
    place[device_ports] = np.arange(count) - first_port[sources[device_ports]]
    leaving = np.diff(first_port)[targets] if pauses else np.zeros(count, np.int64)
    crossings = int(leaving.sum())
    if crossings > MOST_CROSSINGS:
        raise MachineError(
            f"a device with {int(leaving.max()):,} links has too many ways through it to record its pauses",
            place="network configuration",
            remedy="leave ports out of --detail, or give switches fewer links",
        )
    return Queues(
        on=np.ones(1, np.int8),
        ports=table(QUEUE, count),
        slices=table(QUEUE_SLICE, count * per_port),
        grid=np.array([0, per_port, way], np.int64),
        crossings=np.zeros(crossings, np.int64),
        first_crossing=np.cumsum(leaving) - leaving,
        place=place,
        first_port=first_port.astype(np.int64),
        device_ports=device_ports.astype(np.int64),
        pauses=table(PAUSE, ROWS_AT_ONCE),
        flows=table(FLOW, ROWS_AT_ONCE if way else 0),
        ways=np.full(ROWS_AT_ONCE * way, NONE, np.int64),
        logged=np.zeros(2, np.int64),
    )
