"""Telemetry in the headers of packets (INT), as HPCC's authors chose it.

Every queue that a packet leaves records the time, and the bytes that its port has sent and that wait, in the
units of HPCC's header: nanoseconds (24 bits), 128 bytes (20 bits), 80 bytes (17 bits). The acknowledgement
returns these figures to the sender.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.containers import longer

MOST_HOPS = 5  # for which headers have space
TELEMETRY = (42, 28)  # bytes of these headers in packets and acknowledgements
TIME_BITS, BYTES_BITS, QUEUE_BITS = 24, 20, 17
BYTES_UNIT, QUEUE_UNIT = 128, 80


def _nothing() -> Any:
    return np.zeros(0, np.int64)


class TelemetryTables(Tables, Struct, frozen=True):
    """Tables of a congestion control whose packets carry telemetry."""

    rules: Any
    senders: Any
    noted: Any = field(default_factory=_nothing)  # by packet and hop: figures in the header
    known: Any = field(default_factory=_nothing)  # by flow and hop: the last of these figures

    def grown(self, packets: Any, flows: Any) -> Self:
        """Return the tables with space for these packets and flows."""
        return replace(
            self,
            senders=longer(self.senders, len(flows)),
            noted=longer(self.noted, len(packets) * MOST_HOPS),
            known=longer(self.known, len(flows) * MOST_HOPS),
        )


@works_on_tables
def note_port(network: Any, packet_row: int, port: Any, multiple: int) -> None:
    """Record the state of a port in a packet that leaves its queue."""
    at = network.packets[packet_row].hop - 1
    if at < MOST_HOPS:
        time = (network.state[0].now_ps // 1000) & ((1 << TIME_BITS) - 1)
        sent = (port.bytes // (BYTES_UNIT * multiple)) & ((1 << BYTES_BITS) - 1)
        queue = (port.queued // (QUEUE_UNIT * multiple)) & ((1 << QUEUE_BITS) - 1)
        noted = time | (sent << TIME_BITS) | (queue << (TIME_BITS + BYTES_BITS))
        network.control.noted[packet_row * MOST_HOPS + at] = noted


@works_on_tables
def keep_figures(network: Any, row: int, packet_row: int, hops: int) -> None:
    """Store the recorded figures for the next acknowledgement."""
    control = network.control
    for at in range(min(hops, MOST_HOPS)):
        control.known[row * MOST_HOPS + at] = control.noted[packet_row * MOST_HOPS + at]


@works_on_tables
def hops_of(network: Any, row: int) -> int:
    """Return how many queues a packet of a flow leaves on its way."""
    return int(network.flows[row].back - 2)


@works_on_tables
def link_of_hop(network: Any, row: int, at: int) -> int:
    """Return the link after a queue on the way of a flow."""
    return int(network.ways[row * network.stride[0] + 1 + at])


@works_on_tables
def time_between(noted: int, known: int) -> int:
    """Return the nanoseconds between two figures."""
    return (noted - known) & ((1 << TIME_BITS) - 1)


@works_on_tables
def units_between(noted: int, known: int) -> int:
    """Return the units of bytes that a port sent between two figures."""
    return ((noted >> TIME_BITS) - (known >> TIME_BITS)) & ((1 << BYTES_BITS) - 1)


@works_on_tables
def queue_of(noted: int) -> int:
    """Return the units of bytes that waited."""
    return noted >> (TIME_BITS + BYTES_BITS)
