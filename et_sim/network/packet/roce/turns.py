"""Turns of pairs at a port: the next one that may send, and those that are done.

A pair may send unless its window is full, its port is paused, or its rate delays it.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE, join, leave_from
from et_sim.network.packet.flows import has_figures, release_flow, window_is_full, window_may_open
from et_sim.network.packet.records import NEVER


@works_on_tables
def wants_port(network: Any, port_row: int) -> bool:
    """Return whether something may wait for a port."""
    nic = network.transport.nics[port_row]
    return bool(nic.count > 0 or nic.answers.head != NONE)


@works_on_tables
def join_pairs(network: Any, port_row: int, row: int) -> None:
    """Add a pair as the last one of its port."""
    transport = network.transport
    nic, pair = transport.nics[port_row], transport.pairs[row]
    pair.is_listed = 1
    join(transport.pairs, nic, row)
    nic.count += 1


@works_on_tables
def leave_pairs(network: Any, port_row: int, row: int) -> None:
    """Take a pair off a port."""
    nic, pairs = network.transport.nics[port_row], network.transport.pairs
    before, at = NONE, nic.head
    while at != row:
        before, at = at, pairs[at].next
    leave_from(pairs, nic, before, row)
    nic.count -= 1
    nic.last_row = NONE


@works_on_tables
def queue_answer(network: Any, port_row: int, packet_row: int) -> None:
    """Queue an acknowledgement at a port."""
    join(network.packets, network.transport.nics[port_row].answers, packet_row)


@works_on_tables
def pair_in_turn(network: Any, port_row: int) -> int:
    """Return the next pair that may send, and remove done pairs that were examined."""
    pairs, nic = network.transport.pairs, network.transport.nics[port_row]
    if nic.count == 0:
        return NONE
    is_paused, now = network.ports[port_row].is_paused, network.state[0].now_ps
    at, row = _after_last(network, nic)
    first_done, next_row, found_at = NEVER, NONE, NONE
    for _ in range(nic.count):
        pair, size = pairs[row], network.flows[row].size
        if is_paused == 0 and pair.sent < size and not is_window_full(pair):
            if pair.next_ps <= now:
                next_row, found_at = row, at
                break
        elif pair.acknowledged >= size:
            first_done = min(first_done, at)
        row = pair.next
        at += 1
        if row == NONE:
            row, at = nic.head, 0
    if next_row != NONE:
        nic.last, nic.last_row = found_at, next_row
    if first_done != NEVER:
        _forget_done(network, nic, first_done, next_row)
    return next_row


@works_on_tables
def _after_last(network: Any, nic: Any) -> tuple[int, int]:
    """Return the position and the row of the pair after the one that sent last."""
    pairs, at, row = network.transport.pairs, nic.last, nic.last_row
    if row == NONE:  # earlier pairs, perhaps itself, are gone; its position counts, modulo their number
        at, row = at % nic.count, nic.head
        for _ in range(at):
            row = pairs[row].next
    row = pairs[row].next
    if row == NONE:
        return 0, int(nic.head)
    return int(at + 1), int(row)


@works_on_tables
def _forget_done(network: Any, nic: Any, first_done: int, taken: int) -> None:
    """Remove the done pairs from a position on; the pair that was found keeps its turn."""
    pairs = network.transport.pairs
    before, row, kept = NONE, nic.head, 0
    for _ in range(first_done):
        before, row = row, pairs[row].next
        kept += 1
    nic.last_row = taken
    while row != NONE:
        pair = pairs[row]
        after = pair.next
        if pair.acknowledged >= network.flows[row].size:
            pair.is_listed = 0
            leave_from(pairs, nic, before, row)
            nic.count -= 1
            release_if_done(network, row)
        else:
            if row == taken:
                nic.last = kept
            before = row
            kept += 1
        row = after


@works_on_tables
def release_if_done(network: Any, row: int) -> None:
    """Release a flow that is done."""
    pair, flow = network.transport.pairs[row], network.flows[row]
    if flow.is_reported and pair.is_listed == 0 and flow.packets == 0 and pair.acknowledged >= flow.size:
        release_flow(network, row)


@works_on_tables
def is_window_full(pair: Any) -> bool:
    return bool(pair.window > 0 and pair.sent - pair.acknowledged >= current_window(pair))


@works_on_tables
def current_window(pair: Any) -> int:
    """Return the window, which shrinks with the rate if the protocol requires it."""
    if pair.shrinks == 0 or pair.rate == pair.line_rate:
        return int(pair.window)
    if pair.window < 9 * 10**18 // pair.line_rate:
        return max(int(pair.window * pair.rate // pair.line_rate), 1)
    return max(int(pair.window * (pair.rate / pair.line_rate)), 1)


@works_on_tables
def note_window(network: Any, row: int) -> None:
    """Record whether the window is full after an acknowledgement; it may have shrunk."""
    if has_figures(network):
        pair, now = network.transport.pairs[row], network.state[0].now_ps
        is_full = is_window_full(pair)
        window_may_open(network, row, not is_full)
        if is_full and pair.sent < network.flows[row].size:
            window_is_full(network, row, row, now)
