"""DCTCP (SIGCOMM 2010) with rates: once per round, alpha follows the fraction of marked packets.

A mark reduces the rate by half of alpha, once per round; a round without reduction raises it by a step. The
defaults are those of ns-3's RoCE, as ASTRA-sim uses it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.machine.transports import rate
from et_sim.network.packet.controls import ControlTables
from et_sim.plan.records import record


class Keys(Struct, frozen=True):
    """Keys of DCTCP."""

    dctcp_step: int = rate("Step by which DCTCP's rates rise.", 1_000_000_000)


SENDER = record(
    ("update_at", "i8"),  # the byte whose acknowledgement begins the next round
    ("packets", "i8"),  # of the round
    ("marks", "i8"),  # among them
    ("alpha", "f8"),  # the part of marked packets, smoothed
    ("is_reducing", "u1"),  # until the byte that follows is acknowledged
    ("reduced_until", "i8"),
)


class Senders(ControlTables, frozen=True):
    """Senders with DCTCP."""


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Initialise a pair."""
    sender = network.control.senders[row]
    sender.update_at = sender.packets = sender.marks = sender.is_reducing = sender.reduced_until = 0
    sender.alpha = 1.0


@works_on_tables
def acknowledged(network: Any, row: int, packet_row: int) -> None:
    """Update alpha and the rate after an acknowledgement."""
    pair, sender, rules, packet = (
        network.transport.pairs[row],
        network.control.senders[row],
        network.control.rules[0],
        network.packets[packet_row],
    )
    sender.marks += packet.is_marked
    is_round = packet.sequence > sender.update_at
    if is_round:
        in_flight = pair.sent - packet.sequence
        if sender.update_at == 0:
            in_flight = pair.sent
        else:
            part = min(1.0, sender.marks / sender.packets)
            sender.alpha = (1 - rules.gain) * sender.alpha + rules.gain * part
            sender.marks = 0
        sender.update_at = pair.sent
        sender.packets = in_flight // rules.payload + 1
    if sender.is_reducing and packet.sequence > sender.reduced_until:
        sender.is_reducing = 0
    if packet.is_marked and sender.is_reducing == 0:
        pair.rate = max(rules.least_rate, int(pair.rate * (1 - sender.alpha / 2)))
        sender.is_reducing = 1
        sender.reduced_until = pair.sent
    if is_round and sender.is_reducing == 0:
        pair.rate = min(pair.line_rate, pair.rate + rules.dctcp_step)
