"""DCTCP (RFC 8257): it grows like Reno, and shrinks by half of the fraction of marked packets."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.documents.kinds import number
from et_sim.network.packet.controls import ControlTables
from et_sim.network.packet.tcp.controls import reno
from et_sim.plan.records import record


class Keys(Struct, frozen=True):
    """Keys of DCTCP."""

    gain: float = number("Gain of alpha from marks (DCTCP).", 1 / 16, maximum=1)


SENDER = record(
    ("count", "i8"),  # as Reno's
    ("alpha", "f8"),  # the part of marked packets, smoothed
    ("packets", "i8"),  # of the round
    ("marked", "i8"),  # among them
    ("round_to", "i8"),
)


class Senders(ControlTables, frozen=True):
    """Senders with DCTCP."""


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Initialise a connection."""
    sender = network.control.senders[row]
    sender.count = sender.packets = sender.marked = sender.round_to = 0
    sender.alpha = 1.0


grows = reno.grows


@works_on_tables
def was_acknowledged(network: Any, row: int, packets: int, is_marked: bool) -> None:
    """Update alpha once per round."""
    connection, sender = network.transport.connections[row], network.control.senders[row]
    sender.packets += packets
    sender.marked += packets if is_marked else 0
    if sender.round_to == 0:
        sender.round_to = connection.sent
    if connection.acknowledged >= sender.round_to:
        gain, part = network.control.rules[0].gain, 0.0
        if sender.packets > 0:
            part = sender.marked / sender.packets
        sender.alpha = (1.0 - gain) * sender.alpha + gain * part
        sender.packets = sender.marked = 0
        sender.round_to = connection.sent


@works_on_tables
def reduced(network: Any, row: int, _flight: int) -> int:
    """Return the window less half of alpha."""
    connection, alpha = network.transport.connections[row], network.control.senders[row].alpha
    return max(network.control.rules[0].payload, int((1 - alpha / 2) * connection.window))
