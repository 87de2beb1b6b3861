"""TIMELY: once per round, the rate follows the round-trip time and how fast it grows.

Below a low time the rate rises, above a high one it falls; in between, it follows the gradient. Without
`stamps`, packets do not say when they were sent, and the round-trip time counts from the beginning of the
run: this is what ASTRA-sim's snapshot of ns-3 does, and why rates collapse there.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables

STEPS_TO_LARGE = 5  # so often the rate rises by small steps


@works_on_tables
def acknowledged(network: Any, row: int, packet_row: int) -> None:
    """An acknowledgement is back: at the end of a round, the rate changes."""
    pair, packet = network.transport.pairs[row], network.packets[packet_row]
    if packet.sequence <= pair.update_at:
        return
    rtt = network.state[0].now_ps
    if network.transport.rules[0].stamps:
        rtt -= packet.sent_ps
    if pair.update_at != 0:
        _change(network, row, rtt)
    if pair.sent > pair.update_at:
        pair.update_at, pair.last_rtt_ps = pair.sent, rtt


@works_on_tables
def _change(network: Any, row: int, rtt: int) -> None:
    pair, rules = network.transport.pairs[row], network.transport.rules[0]
    difference = (rtt - pair.last_rtt_ps) / 1000  # ns, as all that follows
    difference = (1 - rules.timely_alpha) * pair.rtt_difference + rules.timely_alpha * difference
    gradient = difference / (rules.least_rtt_ps / 1000)
    pair.rtt_difference = difference
    factor = 1.0
    if rtt > rules.high_ps:
        factor = 1 - rules.timely_beta * (1 - rules.high_ps / rtt)
    elif rtt >= rules.low_ps and gradient > 0:
        factor = max(1 - rules.timely_beta * gradient, 0.0)
    rises = rtt < rules.low_ps or (rtt <= rules.high_ps and gradient <= 0)
    if rises:
        step = rules.step if pair.stage < STEPS_TO_LARGE else rules.large_step
        pair.rate = min(pair.target_rate + step, pair.line_rate)
        pair.stage += 1
    else:
        pair.rate = max(rules.least_rate, int(pair.target_rate * factor))
        pair.stage = 0
    pair.target_rate = pair.rate
