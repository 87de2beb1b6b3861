"""TIMELY (SIGCOMM 2015): the rate follows the round-trip time, once per round.

It rises below a low time, falls above a high one, and in between follows the gradient of that time. As in
ASTRA-sim's snapshot of ns-3, packets do not carry their send time with `as-ns3`, so the time counts from the
beginning of the run, and rates collapse. The defaults are those of that snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.documents.keys import Remarks, Section
from et_sim.machine.transports import span
from et_sim.network.packet.controls import ControlTables
from et_sim.plan.records import record

TELEMETRY = (8, 0)


class Keys(Struct, frozen=True):
    """Keys of TIMELY."""

    timely_alpha: float = 0.875
    timely_beta: float = 0.8
    low_ns: float = span("Round-trip time below which rates rise (TIMELY).", 50_000.0, name="low-rtt")
    high_ns: float = span("Round-trip time above which rates fall (TIMELY).", 500_000.0, name="high-rtt")
    least_rtt_ns: float = span("Round-trip time that gradients are divided by (TIMELY).", 20_000.0)

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse a low time above the high one."""
        if self.low_ns > self.high_ns:
            raise section.fault(
                f"low-rtt is {self.low_ns:g} ns, and high-rtt is less, {self.high_ns:g} ns",
                "give the longer time as high-rtt",
                key="low-rtt" if "low-rtt" in given else "high-rtt",
            )


SENDER = record(
    ("update_at", "i8"),  # the byte whose acknowledgement begins the next round
    ("stage", "i4"),  # increases in a row
    ("round_rate", "i8"),
    ("last_rtt_ps", "i8"),
    ("rtt_difference", "f8"),  # ns, smoothed
)
STEPS_TO_LARGE = 5  # rises by small steps before larger ones


class Senders(ControlTables, frozen=True):
    """Senders with TIMELY."""


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Initialise a pair."""
    sender = network.control.senders[row]
    sender.update_at = sender.stage = sender.last_rtt_ps = 0
    sender.rtt_difference = 0.0
    sender.round_rate = network.transport.pairs[row].line_rate


@works_on_tables
def acknowledged(network: Any, row: int, packet_row: int) -> None:
    """Update the rate at the end of a round."""
    pair, sender, packet = (
        network.transport.pairs[row],
        network.control.senders[row],
        network.packets[packet_row],
    )
    if packet.sequence <= sender.update_at:
        return
    rtt = network.state[0].now_ps
    if network.transport.rules[0].as_ns3 == 0:
        rtt -= packet.sent_ps
    if sender.update_at != 0:
        _change(network, row, rtt)
    if pair.sent > sender.update_at:
        sender.update_at, sender.last_rtt_ps = pair.sent, rtt


@works_on_tables
def _change(network: Any, row: int, rtt: int) -> None:
    pair, sender, rules = network.transport.pairs[row], network.control.senders[row], network.control.rules[0]
    difference = (rtt - sender.last_rtt_ps) / 1000  # ns, like all times below
    difference = (1 - rules.timely_alpha) * sender.rtt_difference + rules.timely_alpha * difference
    gradient = difference / (rules.least_rtt_ps / 1000)
    sender.rtt_difference = difference
    factor = 1.0
    if rtt > rules.high_ps:
        factor = 1 - rules.timely_beta * (1 - rules.high_ps / rtt)
    elif rtt >= rules.low_ps and gradient > 0:
        factor = max(1 - rules.timely_beta * gradient, 0.0)
    rises = rtt < rules.low_ps or (rtt <= rules.high_ps and gradient <= 0)
    if rises:
        step = rules.step if sender.stage < STEPS_TO_LARGE else rules.large_step
        pair.rate = min(sender.round_rate + step, pair.line_rate)
        sender.stage += 1
    else:
        pair.rate = max(rules.least_rate, int(sender.round_rate * factor))
        sender.stage = 0
    sender.round_rate = pair.rate
