"""Reno as in Linux: the window grows by acknowledged packets up to the threshold, then by one per window."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.network.packet.controls import ControlTables
from et_sim.plan.records import record

SENDER = record(("count", "i8"))  # packets acknowledged since the window grew


class Senders(ControlTables, frozen=True):
    """Senders with Reno."""


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Initialise a connection."""
    network.control.senders[row].count = 0


@works_on_tables
def grows(network: Any, row: int, packets: int) -> None:
    """Grow the window after acknowledged packets."""
    connection, payload = network.transport.connections[row], network.control.rules[0].payload
    sender = network.control.senders[row]
    if connection.window < connection.threshold:
        connection.window = min(connection.window + packets * payload, connection.threshold)
        return
    size = max(connection.window // payload, 1)
    if sender.count >= size:
        sender.count = 0
        connection.window += payload
    sender.count += packets
    if sender.count >= size:
        steps = sender.count // size
        sender.count -= steps * size
        connection.window += steps * payload


@works_on_tables
def reduced(network: Any, row: int, _flight: int) -> int:
    """Return half of the window, at least two packets."""
    window = network.transport.connections[row].window
    return max(2 * network.control.rules[0].payload, window // 2)
