"""Congestion control: which algorithm hears of what.

Rates are whole bits per second. Not here: the algorithms (`dcqcn`, `hpcc`, `timely`, `dctcp`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.network.packet.roce import dcqcn, dctcp, hpcc, timely
from et_sim.network.packet.roce.records import DCQCN, DCTCP, HPCC, TIMELY


@works_on_tables
def begins(network: Any, row: int) -> None:
    """A pair has heard of nothing."""
    pair = network.transport.pairs[row]
    pair.has_begun = pair.heard_for_alpha = pair.heard_for_rate = pair.is_reducing = 0
    pair.stage, pair.marks, pair.batch = 0, 0, 0
    pair.update_at = pair.reduced_until = pair.last_rtt_ps = 0
    pair.alpha, pair.rtt_difference = 1.0, 0.0
    pair.target_rate = pair.line_rate


@works_on_tables
def ends(network: Any, row: int) -> None:
    """All of a pair's bytes are acknowledged."""
    if network.transport.rules[0].algorithm == DCQCN:
        dcqcn.stops(network, row)


@works_on_tables
def acknowledged(network: Any, row: int, packet_row: int) -> None:
    """An acknowledgement is back."""
    control = network.transport.rules[0].algorithm
    if control == DCQCN:
        if network.packets[packet_row].is_marked:
            dcqcn.congested(network, row)
    elif control == HPCC:
        hpcc.acknowledged(network, row, packet_row)
    elif control == TIMELY:
        timely.acknowledged(network, row, packet_row)
    elif control == DCTCP:
        dctcp.acknowledged(network, row, packet_row)


@works_on_tables
def passes(network: Any, packet_row: int, port: Any) -> None:
    """A packet with data leaves a queue."""
    if network.transport.rules[0].algorithm == HPCC:
        hpcc.notes_port(network, packet_row, port)
