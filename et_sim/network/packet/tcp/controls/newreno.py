"""NewReno (RFC 5681): a packet per acknowledgement in slow start, then one per window; a loss halves it."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.network.packet.controls import ControlTables


class Senders(ControlTables, frozen=True):
    """Senders without a state of their own."""


@works_on_tables
def grows(network: Any, row: int, packets: int) -> None:
    """Grow the window after acknowledged packets."""
    connection, payload = network.transport.connections[row], network.control.rules[0].payload
    if connection.window < connection.threshold:
        connection.window += payload
        packets -= 1
    if connection.window >= connection.threshold and packets > 0:
        connection.window += max(payload * payload // connection.window, 1)


@works_on_tables
def reduced(network: Any, _row: int, flight: int) -> int:
    """Return half of the bytes in flight, at least two packets."""
    return max(2 * network.control.rules[0].payload, flight // 2)
