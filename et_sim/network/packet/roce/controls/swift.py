"""Swift (SIGCOMM 2020): the window follows the difference of the round-trip time to a target.

The window counts packets, and may be less than one. Below the target, every acknowledgement raises it, by a
step in a round trip. Above the target, it falls by a part that grows with the excess, once in a round trip. A
window below one packet means that a packet leaves every round-trip time divided by the window.

The target is a base, a time for each switch of the way, and a time that grows as the window shrinks: more
flows share a queue of more packets. The rules are those of the paper. The defaults are those of csg-htsim's
Swift, as far as the paper gives none; the least window is that of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.documents.keys import Remarks, Section
from et_sim.documents.kinds import count, number, picoseconds
from et_sim.machine.transports import span
from et_sim.network.packet.controls import ControlTables
from et_sim.network.packet.records import NEGATIVE
from et_sim.network.packet.roce.control import set_rate
from et_sim.plan.records import record

window = partial(number, unit="packets", above_minimum=True, maximum=1 << 30)


class Keys(Struct, frozen=True):
    """Keys of Swift; windows in packets."""

    target_ns: float = span(
        "Target of the round-trip time, without switches (Swift).", 25_000.0, name="target-rtt"
    )
    hop_ns: float = picoseconds("More of the target for each switch (Swift).", 3817.0, name="target-per-hop")
    range_ns: float = picoseconds(
        "Most of the target that depends on the window (Swift).", 125_000.0, name="target-range"
    )
    target_range_from: float = window("Window at which all of it counts (Swift).", 0.1)
    target_range_to: float = window("Window from which none of it counts (Swift).", 100.0)
    window_step: float = window("Step by which the window rises in a round trip (Swift).", 1.0)
    excess_gain: float = number("Part of the excess by which the window falls (Swift).", 0.8, maximum=1)
    most_decrease: float = number("Largest part by which the window falls (Swift).", 0.5, maximum=1)
    least_window: float = window("Smallest window (Swift).", 0.001)
    most_window: float = window("Largest window (Swift).", 1000.0)
    timeouts_to_least: int = count("Timeouts in a row that set the smallest window (Swift).", 5, minimum=1)

    def check(self, given: Mapping[str, Any], section: Section, _: Remarks) -> None:
        """Refuse ranges that end before they begin."""
        for least, most in (("target-range-from", "target-range-to"), ("least-window", "most-window")):
            ends = [getattr(self, name.replace("-", "_")) for name in (least, most)]
            if ends[0] >= ends[1]:
                raise section.fault(
                    f"{least} is {ends[0]:g} packets, and {most} is not more, {ends[1]:g} packets",
                    f"give the larger window as {most}",
                    key=least if least in given else most,
                )


SENDER = record(
    ("window", "f8"),  # packets
    ("delay_ps", "i8"),  # the last round-trip time
    ("decreased_ps", "i8"),  # when the window fell
    ("timeouts", "i4"),  # in a row
)


class Senders(ControlTables, frozen=True):
    """Senders with Swift."""


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Begin with the window of the pair, or without one with the largest."""
    pair, sender, rules = network.transport.pairs[row], network.control.senders[row], network.control.rules[0]
    sender.window = rules.most_window
    if pair.window > 0:
        sender.window = pair.window / rules.payload
    sender.delay_ps, sender.decreased_ps, sender.timeouts = pair.base_ps, -pair.base_ps, 0
    pair.shrinks = 0
    _set_window(network, row, sender.window)


@works_on_tables
def acknowledged(network: Any, row: int, packet_row: int) -> None:
    """Raise or reduce the window after an acknowledgement; a report of missing bytes is a loss."""
    sender, rules, packet = (
        network.control.senders[row],
        network.control.rules[0],
        network.packets[packet_row],
    )
    if packet.kind == NEGATIVE:
        _reduce(network, row, 1 - rules.most_decrease)
        return
    sender.timeouts = 0
    sender.delay_ps = max(network.state[0].now_ps - packet.sent_ps, 1)
    excess = sender.delay_ps - target_ps(rules, sender.window, network.flows[row].back - 2)
    if excess < 0:
        _set_window(network, row, sender.window + rules.window_step / max(sender.window, 1.0))
    else:
        factor = 1 - rules.excess_gain * excess / sender.delay_ps
        _reduce(network, row, max(factor, 1 - rules.most_decrease))


@works_on_tables
def timed_out(network: Any, row: int) -> None:
    """Reduce the window after a timeout, to the smallest one after several."""
    sender, rules = network.control.senders[row], network.control.rules[0]
    sender.timeouts += 1
    if sender.timeouts >= rules.timeouts_to_least:
        _set_window(network, row, rules.least_window)
    else:
        _reduce(network, row, 1 - rules.most_decrease)


@works_on_tables
def target_ps(rules: Any, window: float, switches: int) -> float:
    """Return the target of the round-trip time of a window, on a way with some switches."""
    scale = rules.range_ps / (rules.target_range_from**-0.5 - rules.target_range_to**-0.5)
    more = scale * (window**-0.5 - rules.target_range_to**-0.5)
    return float(rules.target_ps + switches * rules.hop_ps + max(min(more, rules.range_ps), 0.0))


@works_on_tables
def _reduce(network: Any, row: int, factor: float) -> None:
    """Multiply the window, at most once in a round trip."""
    sender, now = network.control.senders[row], network.state[0].now_ps
    if now - sender.decreased_ps >= sender.delay_ps:
        sender.decreased_ps = now
        _set_window(network, row, sender.window * factor)


@works_on_tables
def _set_window(network: Any, row: int, window: float) -> None:
    """Set the window within its limits: whole packets at the line rate, or one packet at a lower rate."""
    pair, sender, rules = network.transport.pairs[row], network.control.senders[row], network.control.rules[0]
    sender.window = min(max(window, rules.least_window), rules.most_window)
    pair.window = max(int(sender.window), 1) * rules.payload
    rate = pair.line_rate
    if sender.window < 1:
        bits = (rules.payload + rules.header) * 8
        rate = min(max(int(sender.window * bits / (sender.delay_ps * 1e-12)), 1), rate)
    if rate != pair.rate:
        set_rate(network, row, rate)
