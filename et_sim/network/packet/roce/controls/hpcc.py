"""HPCC (SIGCOMM 2019): each acknowledgement reports how full the links of the path were.

The rate follows the fullest link. The defaults are those of ns-3's RoCE, as ASTRA-sim uses it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.documents.kinds import count, flag, number
from et_sim.network.packet.roce.control import set_rate
from et_sim.network.packet.telemetry import (
    BYTES_UNIT,
    MOST_HOPS,
    QUEUE_UNIT,
    TelemetryTables,
    hops_of,
    keep_figures,
    link_of_hop,
    note_port,
    queue_of,
    time_between,
    units_between,
)
from et_sim.network.packet.telemetry import TELEMETRY as TELEMETRY
from et_sim.plan.records import record


class Keys(Struct, frozen=True):
    """Keys of HPCC."""

    wanted_use: float = number(
        "Target utilisation of links, as a part of 1 (HPCC).", 0.95, above_minimum=True, maximum=1
    )
    most_steps: int = count("Most increases in a row (HPCC).", 0)
    reacts_fast: bool = flag("Every acknowledgement counts (HPCC).", True, name="fast-reaction")
    samples: bool = flag("Between rounds, empty queues do not count (HPCC).", False, name="sampled")
    units: int = count(
        "Unit in which ports are described: multiple of 128 bytes sent and 80 queued (HPCC).",
        1,
        name="telemetry-units",
        minimum=1,
    )


SENDER = record(
    ("update_at", "i8"),  # the byte whose acknowledgement begins the next round
    ("stage", "i4"),  # increases in a row
    ("round_rate", "i8"),
    ("utilisation", "f8"),  # of the fullest link, smoothed
)


class Senders(TelemetryTables, frozen=True):
    """Senders with HPCC."""


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Initialise a pair."""
    sender = network.control.senders[row]
    sender.update_at, sender.stage, sender.utilisation = 0, 0, 1.0
    sender.round_rate = network.transport.pairs[row].line_rate


@works_on_tables
def passes(network: Any, packet_row: int, port: Any) -> None:
    """Record the state of a port in a packet that leaves its queue."""
    note_port(network, packet_row, port, network.control.rules[0].units)


@works_on_tables
def acknowledged(network: Any, row: int, packet_row: int) -> None:
    """Update the rate after an acknowledgement, and the rate of the round once per round."""
    pair, sender, packet = (
        network.transport.pairs[row],
        network.control.senders[row],
        network.packets[packet_row],
    )
    is_round = packet.sequence > sender.update_at
    if not is_round and network.control.rules[0].reacts_fast == 0:
        return
    hops = hops_of(network, row)
    if sender.update_at == 0:
        keep_figures(network, row, packet_row, hops)
        sender.update_at = pair.sent
        return
    if hops <= MOST_HOPS:
        _follow(network, row, packet_row, hops, is_round)
    if is_round:
        sender.update_at = max(sender.update_at, pair.sent)


@works_on_tables
def _follow(network: Any, row: int, packet_row: int, hops: int, is_round: bool) -> None:
    """Set the rate that fills the fullest link to the target."""
    pair, sender, rules = network.transport.pairs[row], network.control.senders[row], network.control.rules[0]
    fullest, of_ns, is_noted = 0.0, 0, False
    base = pair.base_ps // 1000
    for at in range(hops):
        noted = int(network.control.noted[packet_row * MOST_HOPS + at])
        known = int(network.control.known[row * MOST_HOPS + at])
        if rules.samples and not is_round and queue_of(noted) == 0:
            continue
        is_noted = True
        length = time_between(noted, known)
        use = _use(network, row, at, noted, known, max(length, 1))
        if use > fullest:
            fullest, of_ns = use, length
        network.control.known[row * MOST_HOPS + at] = noted
    if not is_noted:
        return
    of_ns = min(of_ns, base)
    sender.utilisation = (sender.utilisation * (base - of_ns) + fullest * of_ns) / base
    part, stage, rate = sender.utilisation / rules.wanted_use, sender.stage + 1, sender.round_rate
    if part >= 1 or sender.stage >= rules.most_steps:
        rate, stage = int(rate / part), 0
    rate = min(max(rate + rules.step, rules.least_rate), pair.line_rate)
    set_rate(network, row, rate)
    if is_round:
        sender.round_rate, sender.stage = rate, stage


@works_on_tables
def _use(network: Any, row: int, at: int, noted: int, known: int, length: int) -> float:
    """Return how full a link was: the bytes that it sent, and the queue."""
    pair, multiple = network.transport.pairs[row], network.control.rules[0].units
    port = network.ports[link_of_hop(network, row, at)]
    sent_rate = units_between(noted, known) * BYTES_UNIT * multiple * 8 / (length * 1e-9)
    queue = min(queue_of(noted), queue_of(known)) * QUEUE_UNIT * multiple
    return sent_rate / port.bits_per_s + queue * pair.line_rate / port.bits_per_s / max(pair.window, 1)
