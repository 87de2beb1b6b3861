"""Both ends of a pair: packets are received in order, and acknowledged one by one."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE
from et_sim.network.packet.figures import packet_is_there
from et_sim.network.packet.flows import message_arrives
from et_sim.network.packet.forwarding import send_next
from et_sim.network.packet.ports import release_packet, stop
from et_sim.network.packet.records import ACKNOWLEDGEMENT, DATA, NEGATIVE
from et_sim.network.packet.roce import dcqcn
from et_sim.network.packet.roce.control import acknowledged, begins, ends
from et_sim.network.packet.roce.nic import (
    join_pairs,
    note_window,
    queue_answer,
    rate_ps,
    release_if_done,
    timer_of,
    wait_again,
)
from et_sim.network.packet.roce.records import AGAIN, TIMERS

NOTHING = 0


@works_on_tables
def begin_flow(network: Any, row: int) -> None:
    """A pair sends from now on."""
    transport, flow = network.transport, network.flows[row]
    pair, rules = transport.pairs[row], transport.rules[0]
    pair.sent = pair.highest = pair.acknowledged = pair.expected = 0
    pair.refused_ps, pair.refused = 0, 0
    pair.next_ps = pair.free_ps = network.state[0].now_ps
    pair.line_rate = network.ports[flow.port].bits_per_s
    pair.rate = pair.line_rate
    pair.last_bytes = 0
    _set_window(network, row)
    pair.shrinks = rules.window_shrinks
    begins(network, row)
    join_pairs(network, flow.port, row)
    send_next(network, flow.port)


@works_on_tables
def _set_window(network: Any, row: int) -> None:
    """What fits on the way there and back: delays, and a packet's payload on each link."""
    transport, ways = network.transport, network.ways
    pair, rules = transport.pairs[row], transport.rules[0]
    delay, stored, slowest = 0, 0, 1 << 62
    at = row * network.stride[0]
    while ways[at] != NONE:
        port = network.ports[ways[at]]
        delay += port.delay_ps
        stored += rate_ps_floor(network, port.bits_per_s, rules.payload)
        slowest = min(slowest, port.bits_per_s)
        at += 1
    pair.base_ps = 2 * delay + stored
    pair.window = 0
    if rules.window == 1:
        pair.window = (pair.base_ps // 1000) * (slowest // 1000) // 8000000
    elif rules.window > 1:
        pair.base_ps, pair.window = rules.longest_ps, rules.most_bytes


@works_on_tables
def rate_ps_floor(network: Any, rate: int, size: int) -> int:
    """How long so many bytes take at a rate, cut to whole nanoseconds if times are whole."""
    if network.rules[0].whole_ns:
        return size * 8000000000 // rate * 1000
    return rate_ps(network, rate, size)


@works_on_tables
def received(network: Any, packet_row: int) -> None:
    """A packet is at the end of its way."""
    packet = network.packets[packet_row]
    if packet.kind == DATA:
        _data_received(network, packet_row)
    else:
        _answer_received(network, packet_row)


@works_on_tables
def _data_received(network: Any, packet_row: int) -> None:
    """The receiver says what it expects next, unless it has said that bytes are missing."""
    transport, packet = network.transport, network.packets[packet_row]
    row = packet.flow
    flow, pair, now = network.flows[row], transport.pairs[row], network.state[0].now_ps
    packet_is_there(network, row, packet)
    kind = NOTHING
    if packet.sequence == pair.expected:
        pair.expected += packet.payload
        kind = ACKNOWLEDGEMENT
        if pair.expected == flow.size and transport.rules[0].ends_acknowledged == 0:
            message_arrives(network, row)
    elif packet.sequence > pair.expected:
        if now >= pair.refused_ps or pair.refused != pair.expected:
            pair.refused_ps, pair.refused = now + transport.rules[0].refuses_ps, pair.expected
            kind = NEGATIVE
    elif transport.rules[0].answers_again:
        kind = ACKNOWLEDGEMENT
    if kind == NOTHING:
        release_packet(network, packet_row)
        release_if_done(network, row)
        return
    network.state[0].returned += 1
    packet.kind = kind  # the packet goes back as its answer, with the figures it has collected
    packet.sequence = pair.expected
    packet.bytes = transport.rules[0].answer
    packet.payload = 0
    packet.hop = flow.back
    packet.port = NONE
    queue_answer(network, flow.back_port, packet_row)
    send_next(network, flow.back_port)


@works_on_tables
def _answer_received(network: Any, packet_row: int) -> None:
    """The sender hears what the receiver expects."""
    transport, packet = network.transport, network.packets[packet_row]
    row = packet.flow
    pair, flow = transport.pairs[row], network.flows[row]
    if pair.acknowledged >= flow.size:  # nobody listens any more
        release_packet(network, packet_row)
        release_if_done(network, row)
        return
    if packet.sequence > pair.acknowledged:
        pair.acknowledged = packet.sequence
        pair.sent = max(pair.sent, pair.acknowledged)
        if transport.rules[0].timeout_ps > 0:
            wait_again(network, row)
    if pair.acknowledged >= flow.size:
        ends(network, row)
        stop(network, timer_of(row))
        if transport.rules[0].ends_acknowledged:
            message_arrives(network, row)
    if packet.kind == NEGATIVE:
        pair.sent = pair.acknowledged
    acknowledged(network, row, packet_row)
    note_window(network, row)
    port_row = flow.port
    release_packet(network, packet_row)
    send_next(network, port_row)


@works_on_tables
def sends_nothing(_network: Any, timer: int) -> bool:
    """Whether a timer only sets rates."""
    return bool(timer % TIMERS != AGAIN)


@works_on_tables
def timer_rings(network: Any, timer: int) -> None:
    """A pair has heard nothing for too long, and sends again; or a timer of congestion control.

    At a port that pauses, the pair sends when it may, and waits from then on: if that is never, the run ends.
    """
    row = timer // TIMERS
    if timer % TIMERS != AGAIN:
        dcqcn.timer_rings(network, timer)
        return
    pair = network.transport.pairs[row]
    network.state[0].timeouts += 1
    network.flows[row].timeouts += 1
    stop(network, timer_of(row))
    pair.sent = pair.acknowledged
    pair.next_ps = network.state[0].now_ps
    if network.ports[network.flows[row].port].is_paused == 0:
        wait_again(network, row)
    send_next(network, network.flows[row].port)
