"""Pairs: the next packet of a host for a port, and packets that are received in order.

Acknowledgements, one per packet, go first, then one packet of each pair in turn (`roce.turns`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE, leave
from et_sim.machine.transports import Window
from et_sim.network.packet.broken import finds_way, gets_through, try_ps
from et_sim.network.packet.closed import gives_up
from et_sim.network.packet.flows import (
    message_arrives,
    message_leaves,
    packet_is_there,
    rate_held,
    window_held,
    window_is_full,
)
from et_sim.network.packet.kernel import send_next
from et_sim.network.packet.ports import (
    is_set,
    new_packet,
    rate_ps,
    release_packet,
    ring_at,
    sending_ps,
    stop,
    wake_at,
)
from et_sim.network.packet.records import ACKNOWLEDGEMENT, DATA, NEGATIVE, NEVER
from et_sim.network.packet.roce import control
from et_sim.network.packet.roce.known import (
    answered,
    arrives,
    crosses,
    is_on,
    leaves,
    needs_packets,
    next_to_go_on,
    note_progress,
    passes_time,
)
from et_sim.network.packet.roce.records import AGAIN, TIMERS
from et_sim.network.packet.roce.turns import (
    is_window_full,
    join_pairs,
    leave_pairs,
    note_window,
    pair_in_turn,
    queue_answer,
    release_if_done,
)

OF_PAIR, LARGEST = (list(Window).index(window) for window in (Window.PAIR, Window.LARGEST))


@works_on_tables
def next_packet(network: Any, port_row: int) -> int:
    """Return the next packet of a host for a free port, or NONE."""
    transport, port = network.transport, network.ports[port_row]
    nic, rules = transport.nics[port_row], transport.rules[0]
    if nic.answers.head != NONE and (port.is_paused == 0 or rules.answers_pass):
        return leave(network.packets, nic.answers)
    row = pair_in_turn(network, port_row)
    if row == NONE:
        _wake_later(network, port_row)
        return NONE
    return _packet_of(network, port_row, row)


@works_on_tables
def _wake_later(network: Any, port_row: int) -> None:
    """Wake the port later, when a rate lets a pair send.

    As in ns-3 (`wakes_any`), no wake is planned if any pair could send at its rate, even with a full window.
    Otherwise only pairs count that have something to send and may send it.
    """
    transport, port = network.transport, network.ports[port_row]
    nic, now = transport.nics[port_row], network.state[0].now_ps
    if port.wakes:
        return
    first, row, any_pair = NEVER, nic.head, transport.rules[0].as_ns3
    while row != NONE:
        pair = transport.pairs[row]
        if any_pair or (pair.sent < network.flows[row].size and not is_window_full(pair)):
            first = min(first, pair.next_ps)
        row = pair.next
    if now < first < NEVER:
        wake_at(network, port_row, first)


@works_on_tables
def _packet_of(network: Any, port_row: int, row: int) -> int:
    """Return the next packet of a pair; the pair then waits according to its rate."""
    transport, flow = network.transport, network.flows[row]
    pair, rules, state = transport.pairs[row], transport.rules[0], network.state[0]
    window_held(network, row, pair.next_ps)
    rate_held(network, row, pair.free_ps, pair.next_ps)
    payload = min(flow.size - pair.sent, rules.payload)
    packet_row = new_packet(network, DATA, row, payload - flow.padding + rules.header)
    packet = network.packets[packet_row]
    packet.sequence, packet.payload = pair.sent, payload
    pair.sent += payload
    state.sent += 1
    if pair.sent <= pair.highest:
        flow.retransmitted += 1
        state.resent += 1
    else:
        pair.highest = pair.sent
    rate = pair.rate if rules.paced else pair.line_rate
    pair.last_bytes = packet.bytes
    pair.next_ps = state.now_ps + rate_ps(network, rate, packet.bytes)
    pair.free_ps = state.now_ps + sending_ps(network, network.ports[port_row], packet.bytes)
    if pair.sent < flow.size and is_window_full(pair):
        window_is_full(network, row, row, pair.free_ps)
    if rules.timeout_ps > 0 and not is_set(network, timer_of(row)):
        wait_again(network, row)
    if pair.sent == flow.size:
        message_leaves(network, row, pair.free_ps, rules.completion == 0)
        if network.steady[0].measures:
            leaves(network, row, pair.free_ps)
    return packet_row


@works_on_tables
def timer_of(row: int) -> int:
    """Return the retransmission timer of a pair."""
    return row * TIMERS + AGAIN


@works_on_tables
def wait_again(network: Any, row: int) -> None:
    """Restart the retransmission timer of a pair."""
    ring_at(network, timer_of(row), network.state[0].now_ps + network.transport.rules[0].timeout_ps)


NOTHING = 0


@works_on_tables
def begin_flow(network: Any, row: int) -> None:
    """Begin the pair of a message."""
    transport, flow = network.transport, network.flows[row]
    pair, rules = transport.pairs[row], transport.rules[0]
    pair.sent = pair.highest = pair.acknowledged = pair.expected = 0
    pair.refused_ps, pair.refused, pair.tries, pair.tried = 0, 0, 0, NONE
    pair.next_ps = pair.free_ps = network.state[0].now_ps
    pair.error_ps = 0.0
    pair.line_rate = network.ports[flow.port].bits_per_s
    pair.rate = pair.line_rate
    pair.last_bytes = 0
    _set_window(network, row)
    pair.shrinks = rules.window_shrinks
    control.begins(network, row)
    if _takes_packets(network, row):
        join_pairs(network, flow.port, row)
        send_next(network, flow.port)


@works_on_tables
def _takes_packets(network: Any, row: int) -> bool:
    """Return whether a message that begins is not known; known ones that it would meet go on with packets."""
    steady = network.steady[0]
    steady.measures = int(is_on(network))
    if steady.measures == 0:
        return True
    crosses(network, row)
    other = next_to_go_on(network)
    while other != NONE:
        if network.transport.pairs[other].is_listed == 0:
            join_pairs(network, network.flows[other].port, other)
        send_next(network, network.flows[other].port)
        other = next_to_go_on(network)
    return needs_packets(network, row)


@works_on_tables
def _set_window(network: Any, row: int) -> None:
    """Set the window to the bytes of a round trip: delays, and a packet's payload on each link."""
    transport, ways = network.transport, network.ways
    pair, rules = transport.pairs[row], transport.rules[0]
    delay, stored, slowest = 0, 0, NEVER
    at = row * network.stride[0]
    while ways[at] != NONE:
        port = network.ports[ways[at]]
        delay += port.delay_ps
        stored += rate_ps_floor(network, port.bits_per_s, rules.payload)
        slowest = min(slowest, port.bits_per_s)
        at += 1
    pair.base_ps = 2 * delay + stored
    pair.window = 0
    if rules.window == OF_PAIR:
        pair.window = (pair.base_ps // 1000) * (slowest // 1000) // 8000000
    elif rules.window == LARGEST:
        pair.base_ps, pair.window = rules.longest_ps, rules.most_bytes


@works_on_tables
def rate_ps_floor(network: Any, rate: int, size: int) -> int:
    """Return how long bytes take at a rate, rounded down to whole nanoseconds if times are whole."""
    if network.rules[0].whole_ns:
        return size * 8000000000 // rate * 1000
    return rate_ps(network, rate, size)


@works_on_tables
def received(network: Any, packet_row: int) -> None:
    """Handle a packet at its target."""
    packet = network.packets[packet_row]
    if packet.kind == DATA:
        _data_received(network, packet_row)
    else:
        _answer_received(network, packet_row)


@works_on_tables
def _data_received(network: Any, packet_row: int) -> None:
    """Answer with the next expected byte, or report missing bytes unless that was done lately."""
    transport, packet = network.transport, network.packets[packet_row]
    row = packet.flow
    flow, pair, now = network.flows[row], transport.pairs[row], network.state[0].now_ps
    packet_is_there(network, row, packet)
    kind = NOTHING
    if packet.sequence == pair.expected:
        pair.expected += packet.payload
        kind = ACKNOWLEDGEMENT
        if network.steady[0].measures:
            _measure_arrival(network, row)
        if pair.expected == flow.size and transport.rules[0].completion == 0:
            message_arrives(network, row)
    elif packet.sequence > pair.expected:
        if now >= pair.refused_ps or pair.refused != pair.expected:
            pair.refused_ps, pair.refused = now + transport.rules[0].refuses_ps, pair.expected
            kind = NEGATIVE
    elif transport.rules[0].timeout_ps > 0:
        kind = ACKNOWLEDGEMENT
    if kind == NOTHING:
        release_packet(network, packet_row)
        release_if_done(network, row)
        return
    network.state[0].returned += 1
    packet.kind = kind  # the packet returns as its answer, with the figures it has collected
    packet.sequence = pair.expected
    packet.bytes = transport.rules[0].acknowledgement
    packet.payload = 0
    packet.hop = flow.back
    packet.port = NONE
    queue_answer(network, flow.back_port, packet_row)
    send_next(network, flow.back_port)


@works_on_tables
def _measure_arrival(network: Any, row: int) -> None:
    """Measure a message of which another packet is there."""
    pair = network.transport.pairs[row]
    if network.transport.rules[0].completion == 0:
        note_progress(network, row, pair.expected)
    if pair.expected == network.flows[row].size:
        arrives(network, row)


@works_on_tables
def _measure_answer(network: Any, row: int) -> None:
    """Measure a message of which another packet is acknowledged."""
    pair = network.transport.pairs[row]
    if network.steady[0].measures:
        if network.transport.rules[0].completion:
            note_progress(network, row, pair.acknowledged)
        if pair.acknowledged >= network.flows[row].size:
            answered(network, row)


@works_on_tables
def _answer_received(network: Any, packet_row: int) -> None:
    """Process an answer at the sender."""
    transport, packet = network.transport, network.packets[packet_row]
    row = packet.flow
    pair, flow = transport.pairs[row], network.flows[row]
    if pair.acknowledged >= flow.size:  # the message is complete
        release_packet(network, packet_row)
        release_if_done(network, row)
        return
    if packet.sequence > pair.acknowledged:
        pair.acknowledged = packet.sequence
        _measure_answer(network, row)
        pair.sent = max(pair.sent, pair.acknowledged)
        if len(network.fails) > 0:
            gets_through(network, row)
            pair.tries = 0
        if transport.rules[0].timeout_ps > 0 and transport.watched[row].is_known == 0:
            wait_again(network, row)
    if pair.acknowledged >= flow.size:
        control.ends(network, row)
        stop(network, timer_of(row))
        if transport.rules[0].completion:
            message_arrives(network, row)
    if packet.kind == NEGATIVE:
        pair.sent = pair.acknowledged
    control.acknowledged(network, row, packet_row)
    note_window(network, row)
    port_row = flow.port
    release_packet(network, packet_row)
    send_next(network, port_row)


@works_on_tables
def sends_nothing(_network: Any, timer: int) -> bool:
    """Return whether a timer only sets rates."""
    return bool(timer % TIMERS != AGAIN)


@works_on_tables
def timer_rings(network: Any, timer: int) -> None:
    """Send a pair's bytes again after its timeout, or handle a timer of congestion control.

    At a paused port, the pair sends when the pause ends, and waits from then on. It gives up if its packets
    or acknowledgements meet ports that stay paused, so that the run ends.
    """
    row = timer // TIMERS
    if timer % TIMERS != AGAIN:
        control.timer_rings(network, timer)
        return
    pair = network.transport.pairs[row]
    if network.transport.watched[row].is_known:
        _known_passes(network, row)
        return
    network.state[0].timeouts += 1
    network.flows[row].timeouts += 1
    stop(network, timer_of(row))
    if gives_up(network, row, pair):
        return
    if len(network.fails) > 0 and network.state[0].has_died == 1 and not _tries_again(network, row):
        return
    pair.sent = pair.acknowledged
    pair.next_ps = network.state[0].now_ps
    control.timed_out(network, row)
    if network.ports[network.flows[row].port].is_paused == 0:
        wait_again(network, row)
    send_next(network, network.flows[row].port)


@works_on_tables
def _known_passes(network: Any, row: int) -> None:
    """Let a known message leave or arrive."""
    if not passes_time(network, row):
        return
    control.ends(network, row)
    if network.transport.pairs[row].is_listed:
        send_next(network, network.flows[row].port)
    else:
        release_if_done(network, row)


@works_on_tables
def _tries_again(network: Any, row: int) -> bool:
    """Return whether a pair sends again after a timeout; else it waits for another port, or gives up."""
    pair, flow = network.transport.pairs[row], network.flows[row]
    pair.tries += 1
    wait_ps = try_ps(network, pair.tries)
    if wait_ps == 0 or pair.tries == network.recovery[0].tries + 1:
        before = flow.port
        if finds_way(network, row):
            leave_pairs(network, before, row)
            join_pairs(network, flow.port, row)
        return wait_ps == 0 or network.recovery[0].probe_ns != NONE
    pair.sent = flow.size  # nothing is sent until then
    if wait_ps != NONE:
        ring_at(network, timer_of(row), network.state[0].now_ps + wait_ps)
    return False
