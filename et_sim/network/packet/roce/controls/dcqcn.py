"""DCQCN (SIGCOMM 2015): rates fall after marks, and recover.

It uses timers only, as Mellanox's NICs do; the first mark starts them. The first timer updates alpha, the
estimate of congestion. The second reduces the rate by half of alpha if there were marks. The third raises the
rate half the way to its target, the rate before the reduction, and later the target as well.

The defaults are those of ns-3's RoCE, as ASTRA-sim uses it.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.documents.kinds import count, flag
from et_sim.machine.transports import span
from et_sim.network.packet.controls import ControlTables
from et_sim.network.packet.ports import ring_at, stop
from et_sim.network.packet.roce.records import TIMERS
from et_sim.plan.records import record


class Keys(Struct, frozen=True):
    """Keys of DCQCN."""

    alpha_ns: float = span("Interval of alpha's updates (DCQCN).", 1000.0, name="alpha-interval")
    decrease_ns: float = span(
        "Least time between decreases of the rate (DCQCN).", 4000.0, name="decrease-interval"
    )
    increase_ns: float = span(
        "Interval of increases of the rate (DCQCN).", 900_000.0, name="increase-interval"
    )
    recoveries: int = count("Increases before the target rises (DCQCN).", 1)
    clamps_target: bool = flag("The target falls at every decrease (DCQCN).", False, name="clamp-target")


SENDER = record(
    ("has_begun", "u1"),  # it has received a mark
    ("marked_for_alpha", "u1"),
    ("marked_for_rate", "u1"),
    ("stage", "i4"),  # increases since the last decrease
    ("target_rate", "i8"),
    ("alpha", "f8"),  # the estimate of congestion
)
ALPHA, DECREASE, INCREASE = range(3)  # timers
ONE_NS = 1000  # rates are reduced after alpha was updated


class Senders(ControlTables, frozen=True):
    """Senders with DCQCN."""


@works_on_tables
def begins(network: Any, row: int) -> None:
    """Initialise a pair."""
    sender = network.control.senders[row]
    sender.has_begun = sender.marked_for_alpha = sender.marked_for_rate = 0
    sender.stage, sender.alpha = 0, 1.0
    sender.target_rate = network.transport.pairs[row].line_rate


@works_on_tables
def acknowledged(network: Any, row: int, packet_row: int) -> None:
    """Record a mark of a pair, and start its timers at the first one."""
    if network.packets[packet_row].is_marked == 0:
        return
    pair, sender, rules = network.transport.pairs[row], network.control.senders[row], network.control.rules[0]
    sender.marked_for_alpha = sender.marked_for_rate = 1
    if sender.has_begun or pair.acknowledged >= network.flows[row].size:
        return
    sender.has_begun = 1
    sender.alpha = 1.0
    sender.marked_for_alpha = 0
    sender.target_rate = pair.rate
    now = network.state[0].now_ps
    ring_at(network, row * TIMERS + ALPHA, now + rules.alpha_ps)
    ring_at(network, row * TIMERS + DECREASE, now + rules.decrease_ps + ONE_NS)


@works_on_tables
def ends(network: Any, row: int) -> None:
    """Stop all timers of a pair."""
    for timer in (ALPHA, DECREASE, INCREASE):
        stop(network, row * TIMERS + timer)


@works_on_tables
def timer_rings(network: Any, timer: int) -> None:
    """Handle one of the three timers, and set it again."""
    row, which = timer // TIMERS, timer % TIMERS
    if which == ALPHA:
        _measure(network, row)
    elif which == DECREASE:
        _reduce(network, row)
    else:
        _raise(network, row)


@works_on_tables
def _measure(network: Any, row: int) -> None:
    sender, rules = network.control.senders[row], network.control.rules[0]
    alpha = (1 - rules.gain) * sender.alpha
    sender.alpha = alpha + rules.gain if sender.marked_for_alpha else alpha
    sender.marked_for_alpha = 0
    ring_at(network, row * TIMERS + ALPHA, network.state[0].now_ps + rules.alpha_ps)


@works_on_tables
def _reduce(network: Any, row: int) -> None:
    pair, sender, rules = network.transport.pairs[row], network.control.senders[row], network.control.rules[0]
    now = network.state[0].now_ps
    ring_at(network, row * TIMERS + DECREASE, now + rules.decrease_ps)
    if sender.marked_for_rate == 0:
        return
    if rules.clamps_target or sender.stage > 0:
        sender.target_rate = pair.rate
    pair.rate = max(rules.least_rate, int(pair.rate * (1 - sender.alpha / 2)))
    sender.stage = sender.marked_for_rate = 0
    ring_at(network, row * TIMERS + INCREASE, now + rules.increase_ps)


@works_on_tables
def _raise(network: Any, row: int) -> None:
    pair, sender, rules = network.transport.pairs[row], network.control.senders[row], network.control.rules[0]
    ring_at(network, row * TIMERS + INCREASE, network.state[0].now_ps + rules.increase_ps)
    if sender.stage >= rules.recoveries:
        step = rules.step if sender.stage == rules.recoveries else rules.large_step
        sender.target_rate = min(sender.target_rate + step, pair.line_rate)
    pair.rate = pair.rate // 2 + sender.target_rate // 2
    sender.stage += 1


@works_on_tables
def may_repeat(_network: Any) -> bool:
    """Return true: rates are independent of the times of packets until one is marked."""
    return True


@works_on_tables
def rate_stays(network: Any, row: int) -> bool:
    """Return whether no packet of a pair was marked."""
    return bool(network.control.senders[row].has_begun == 0)
