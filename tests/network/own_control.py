"""A congestion control as a user writes it: senders have a part of the line rate."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.documents.kinds import count
from et_sim.network.packet.controls import ControlTables
from et_sim.plan.records import record


class Keys(Struct, frozen=True):
    """Keys of the control."""

    divisor: int = count("Divisor of the line rate.", 4, minimum=1)


SENDER = record(("answers", "i8"))


class Senders(ControlTables, frozen=True):
    """Senders with the control."""


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Set the rate."""
    pair = network.transport.pairs[row]
    pair.rate = pair.line_rate // network.control.rules[0].divisor
    network.control.senders[row].answers = 0


@works_on_tables
def acknowledged(network: Any, row: int, _packet_row: int) -> None:
    """Count an acknowledgement."""
    network.control.senders[row].answers += 1
