"""DCQCN as Mellanox's NICs do it, by timers alone.

The first mark sets three timers. At the first one, alpha, which says how congested the way is, is brought up
to date; at the second one, the rate is reduced by half of alpha if there were marks; at the third one it
rises half the way to where it was before, and that target rises, too, if it has done so for a while.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.network.packet.ports import ring_at, stop
from et_sim.network.packet.roce.records import ALPHA, DECREASE, INCREASE, TIMERS

ONE_NS = 1000  # rates are reduced after alpha was brought up to date


@works_on_tables
def congested(network: Any, row: int) -> None:
    """A pair hears of a mark."""
    pair, rules, state = network.transport.pairs[row], network.transport.rules[0], network.state[0]
    pair.heard_for_alpha = pair.heard_for_rate = 1
    if pair.has_begun or pair.acknowledged >= network.flows[row].size:
        return
    pair.has_begun = 1
    pair.alpha = 1.0
    pair.heard_for_alpha = 0
    pair.target_rate = pair.rate
    ring_at(network, row * TIMERS + ALPHA, state.now_ps + rules.alpha_ps)
    ring_at(network, row * TIMERS + DECREASE, state.now_ps + rules.decrease_ps + ONE_NS)


@works_on_tables
def stops(network: Any, row: int) -> None:
    """No timer rings any more."""
    for timer in (ALPHA, DECREASE, INCREASE):
        stop(network, row * TIMERS + timer)


@works_on_tables
def timer_rings(network: Any, timer: int) -> None:
    """One of the three; it is set again."""
    row, which = timer // TIMERS, timer % TIMERS
    if which == ALPHA:
        _measure(network, row)
    elif which == DECREASE:
        _reduce(network, row)
    else:
        _raise(network, row)


@works_on_tables
def _measure(network: Any, row: int) -> None:
    pair, rules = network.transport.pairs[row], network.transport.rules[0]
    alpha = (1 - rules.gain) * pair.alpha
    pair.alpha = alpha + rules.gain if pair.heard_for_alpha else alpha
    pair.heard_for_alpha = 0
    ring_at(network, row * TIMERS + ALPHA, network.state[0].now_ps + rules.alpha_ps)


@works_on_tables
def _reduce(network: Any, row: int) -> None:
    pair, rules, now = network.transport.pairs[row], network.transport.rules[0], network.state[0].now_ps
    ring_at(network, row * TIMERS + DECREASE, now + rules.decrease_ps)
    if pair.heard_for_rate == 0:
        return
    if rules.clamps_target or pair.stage > 0:
        pair.target_rate = pair.rate
    pair.rate = max(rules.least_rate, int(pair.rate * (1 - pair.alpha / 2)))
    pair.stage = pair.heard_for_rate = 0
    ring_at(network, row * TIMERS + INCREASE, now + rules.increase_ps)


@works_on_tables
def _raise(network: Any, row: int) -> None:
    pair, rules = network.transport.pairs[row], network.transport.rules[0]
    ring_at(network, row * TIMERS + INCREASE, network.state[0].now_ps + rules.increase_ps)
    if pair.stage >= rules.recoveries:
        step = rules.step if pair.stage == rules.recoveries else rules.large_step
        pair.target_rate = min(pair.target_rate + step, pair.line_rate)
    pair.rate = pair.rate // 2 + pair.target_rate // 2
    pair.stage += 1
