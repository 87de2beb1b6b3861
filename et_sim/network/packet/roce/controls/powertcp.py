"""PowerTCP (NSDI 2022): the rate follows the power of the path, current times voltage.

The current of a link is the rate at which bytes come: those that leave, and the growth of its queue. The
voltage is the bytes in its queue and in a round trip. Their product, divided by that of a full link without
queue, is 1 if the link is just full. Each acknowledgement divides the rate of a round trip before by the
power of the most loaded link, and adds the line rate divided by the expected flows of a host. So the queue of
a link settles at the sum of these additions over a round trip.

The paper sets windows, and the rate as window by round-trip time; here the window follows the rate. The
weight 0.9 is the paper's, and packets carry the figures of HPCC's headers. The paper leaves the expected
flows to the operator.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.documents.kinds import count, number
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
    """Keys of PowerTCP."""

    power_weight: float = number("Weight of the newest rate (PowerTCP).", 0.9, above_minimum=True, maximum=1)
    expected_flows: int = count(
        "Flows of a host, by which the line rate is divided to give the step of rates (PowerTCP).",
        10,
        minimum=1,
    )


SENDER = record(
    ("update_at", "i8"),  # the byte whose acknowledgement begins the next round
    ("round_rate", "i8"),  # when the bytes that are acknowledged were sent
    ("power", "f8"),  # smoothed over a round trip
)


class Senders(TelemetryTables, frozen=True):
    """Senders with PowerTCP."""


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Initialise a pair."""
    sender = network.control.senders[row]
    sender.update_at, sender.power = 0, 1.0
    sender.round_rate = network.transport.pairs[row].line_rate


@works_on_tables
def passes(network: Any, packet_row: int, port: Any) -> None:
    """Record the state of a port in a packet that leaves its queue."""
    note_port(network, packet_row, port, 1)


@works_on_tables
def acknowledged(network: Any, row: int, packet_row: int) -> None:
    """Update the rate after an acknowledgement, and the rate of the round once per round."""
    pair, sender, rules, packet = (
        network.transport.pairs[row],
        network.control.senders[row],
        network.control.rules[0],
        network.packets[packet_row],
    )
    hops = hops_of(network, row)
    if sender.update_at > 0 and 0 < hops <= MOST_HOPS:
        _measure(network, row, packet_row, hops)
        step = pair.line_rate / rules.expected_flows
        newest = sender.round_rate / max(sender.power, 1e-6) + step
        rate = int(rules.power_weight * newest + (1 - rules.power_weight) * pair.rate)
        set_rate(network, row, min(max(rate, rules.least_rate), pair.line_rate))
    keep_figures(network, row, packet_row, hops)
    if packet.sequence > sender.update_at:
        sender.round_rate, sender.update_at = pair.rate, pair.sent


@works_on_tables
def _measure(network: Any, row: int, packet_row: int, hops: int) -> None:
    """Update the power by that of the most loaded link."""
    pair, sender = network.transport.pairs[row], network.control.senders[row]
    most, of_ns, base = 0.0, 0, max(pair.base_ps // 1000, 1)
    for at in range(hops):
        noted = int(network.control.noted[packet_row * MOST_HOPS + at])
        known = int(network.control.known[row * MOST_HOPS + at])
        power = _power(network, row, at, noted, known, base)
        if power > most:
            most, of_ns = power, min(max(time_between(noted, known), 1), base)
    sender.power = (sender.power * (base - of_ns) + most * of_ns) / base


@works_on_tables
def _power(network: Any, row: int, at: int, noted: int, known: int, base: int) -> float:
    """Return current times voltage of a link, divided by that of a full link without queue."""
    bytes_per_ns = network.ports[link_of_hop(network, row, at)].bits_per_s / 8e9
    length = max(time_between(noted, known), 1)
    came = units_between(noted, known) * BYTES_UNIT + (queue_of(noted) - queue_of(known)) * QUEUE_UNIT
    return came / length / bytes_per_ns * (1 + queue_of(noted) * QUEUE_UNIT / (bytes_per_ns * base))
