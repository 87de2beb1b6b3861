"""DCTCP with rates: once per round, alpha follows the part of packets that were marked.

A mark reduces the rate by half of alpha, once per round; a round without reduction raises it by a step.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables


@works_on_tables
def acknowledged(network: Any, row: int, packet_row: int) -> None:
    """An acknowledgement is back."""
    pair, rules, packet = (
        network.transport.pairs[row],
        network.transport.rules[0],
        network.packets[packet_row],
    )
    pair.marks += packet.is_marked
    is_round = packet.sequence > pair.update_at
    if is_round:
        in_flight = pair.sent - packet.sequence
        if pair.update_at == 0:
            in_flight = pair.sent
        else:
            part = min(1.0, pair.marks / pair.batch)
            pair.alpha = (1 - rules.gain) * pair.alpha + rules.gain * part
            pair.marks = 0
        pair.update_at = pair.sent
        pair.batch = in_flight // rules.payload + 1
    if pair.is_reducing and packet.sequence > pair.reduced_until:
        pair.is_reducing = 0
    if packet.is_marked and pair.is_reducing == 0:
        pair.rate = max(rules.least_rate, int(pair.rate * (1 - pair.alpha / 2)))
        pair.is_reducing = 1
        pair.reduced_until = pair.sent
    if is_round and pair.is_reducing == 0:
        pair.rate = min(pair.line_rate, pair.rate + rules.dctcp_step)
