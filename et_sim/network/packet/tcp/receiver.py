"""Receivers: bytes are put in order, and acknowledged packet by packet or with a delay.

A packet that fills or leaves a hole is acknowledged at once, and so is one whose mark differs from the last.
The packet itself returns as its acknowledgement, unless acknowledgements take no time. Timers of a connection
serve retransmission, delayed acknowledgements, and messages that become due.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE
from et_sim.network.packet.closed import gives_up
from et_sim.network.packet.flows import packet_is_there
from et_sim.network.packet.kernel import send_next
from et_sim.network.packet.ports import is_set, new_packet, release_packet, ring_at, stop
from et_sim.network.packet.records import ACKNOWLEDGEMENT, DATA, NEVER
from et_sim.network.packet.tcp import control
from et_sim.network.packet.tcp.acknowledgements import acknowledged
from et_sim.network.packet.tcp.connections import (
    messages_are_due,
    messages_arrive,
    release_if_done,
    report_more,
    send_opening,
)
from et_sim.network.packet.tcp.records import (
    DELAYED,
    DUE,
    LOSS,
    OPEN,
    OPENED,
    OPENING,
    OPENS,
    RESEND,
    TELL,
    TIMERS,
)
from et_sim.network.packet.tcp.sender import (
    message_at,
    queue_packet,
    send_pending,
    set_deadline,
    under_way,
    with_range,
    without_below,
)

FIRST_BLOCK, FURTHER_BLOCK, MOST_BLOCKS = 12, 8, 3  # bytes of SACK's options


@works_on_tables
def received(network: Any, packet_row: int) -> None:
    """Handle a packet at its target."""
    packet = network.packets[packet_row]
    row = packet.flow
    if packet.kind != DATA:
        position, sent_ps, is_marked = packet.sequence, packet.sent_ps, packet.is_marked
        block = network.transport.blocks[packet_row]
        begin, end = block.begin, block.end
        release_packet(network, packet_row)
        acknowledged(network, row, position, sent_ps, is_marked, begin, end)
        send_next(network, network.flows[row].port)
    elif packet.sequence == OPENED:
        release_packet(network, packet_row)
    elif packet.sequence == OPENS:
        _answer(network, packet_row, OPENS, network.transport.rules[0].opening, 0, 0)
    else:
        _data_received(network, packet_row)
    release_if_done(network, row)


@works_on_tables
def _data_received(network: Any, packet_row: int) -> None:
    """Handle received bytes."""
    transport, packet = network.transport, network.packets[packet_row]
    row = packet.flow
    connection, rules = transport.connections[row], transport.rules[0]
    begin, end = packet.sequence, packet.sequence + packet.payload
    packet_is_there(network, message_at(network, row, begin), packet)
    block_begin = block_end = 0
    is_urgent = True
    if end > connection.expected:
        is_urgent = connection.held != NONE or packet.is_marked != connection.unanswered_mark
        if begin <= connection.expected:
            _put_in_order(network, row, end)
        else:
            is_urgent = True
            first, at = with_range(network, connection.held, begin, end)
            connection.held = first
            block_begin, block_end = transport.ranges[at].begin, transport.ranges[at].end
    connection.unanswered += 1
    connection.unanswered_ps, connection.unanswered_mark = packet.sent_ps, packet.is_marked
    if is_urgent or connection.unanswered >= rules.answers_after:
        size = rules.acknowledgement + _bytes_of_blocks(network, connection.held)
        _answer(network, packet_row, connection.expected, size, block_begin, block_end)
        return
    release_packet(network, packet_row)
    if not is_set(network, row * TIMERS + DELAYED):
        ring_at(network, row * TIMERS + DELAYED, network.state[0].now_ps + rules.delays_ps)


@works_on_tables
def _put_in_order(network: Any, row: int, end: int) -> None:
    """Put bytes in order up to `end`, with the ranges that follow."""
    transport = network.transport
    connection, ranges = transport.connections[row], transport.ranges
    connection.expected = end
    while connection.held != NONE and ranges[connection.held].begin <= connection.expected:
        connection.expected = max(connection.expected, ranges[connection.held].end)
        connection.held = without_below(network, connection.held, connection.expected)
    if transport.rules[0].completion == 0:
        messages_arrive(network, row, connection.expected)


@works_on_tables
def _bytes_of_blocks(network: Any, first: int) -> int:
    """Return the extra bytes of an acknowledgement with SACK blocks."""
    if network.transport.rules[0].sack == 0 or first == NONE:
        return 0
    size, row = FIRST_BLOCK, network.transport.ranges[first].next
    for _ in range(MOST_BLOCKS - 1):
        if row != NONE:
            size += FURTHER_BLOCK
            row = network.transport.ranges[row].next
    return size


@works_on_tables
def _answer(network: Any, packet_row: int, position: int, size: int, begin: int, end: int) -> None:
    """Send a packet back as an acknowledgement of all bytes so far."""
    transport, packet = network.transport, network.packets[packet_row]
    row = packet.flow
    connection, flow = transport.connections[row], network.flows[row]
    if connection.unanswered > 0:
        connection.unanswered = 0
        stop(network, row * TIMERS + DELAYED)
    network.state[0].returned += 1
    if transport.rules[0].bypass:
        sent_ps, is_marked = packet.sent_ps, packet.is_marked
        release_packet(network, packet_row)
        acknowledged(network, row, position, sent_ps, is_marked, begin, end)
        send_next(network, flow.port)
        return
    packet.kind, packet.sequence, packet.bytes, packet.payload = ACKNOWLEDGEMENT, position, size, 0
    packet.hop, packet.port = flow.back, NONE
    block = transport.blocks[packet_row]
    block.begin, block.end = begin, end
    queue_packet(network, flow.back_port, packet_row)
    send_next(network, flow.back_port)


@works_on_tables
def answer_late(network: Any, row: int) -> None:
    """Send a delayed acknowledgement."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    if connection.unanswered == 0:
        return
    packet_row = new_packet(network, DATA, row, rules.acknowledgement)
    packet = network.packets[packet_row]
    packet.sent_ps, packet.is_marked = connection.unanswered_ps, connection.unanswered_mark
    _answer(network, packet_row, connection.expected, rules.acknowledgement, 0, 0)


LONGEST_PS = 60_000_000_000_000


@works_on_tables
def timer_rings(network: Any, timer: int) -> None:
    """Handle one of a connection's timers."""
    row, which = timer // TIMERS, timer % TIMERS
    stop(network, timer)
    if which == DUE:
        messages_are_due(network, row)
    elif which == DELAYED:
        answer_late(network, row)
    elif which == TELL:
        report_more(network, row)
        release_if_done(network, row)
    else:
        if which == RESEND:
            _check_deadline(network, row)
        else:
            send_pending(network, row)
        send_next(network, network.flows[row].port)


@works_on_tables
def sends_nothing(network: Any, timer: int) -> bool:
    """Return whether a timer waits for acknowledgements that have come since it was set."""
    connection = network.transport.connections[timer // TIMERS]
    return bool(timer % TIMERS == RESEND and connection.deadline_ps == NEVER)


@works_on_tables
def _check_deadline(network: Any, row: int) -> None:
    """Send again if the deadline has passed."""
    connection = network.transport.connections[row]
    if connection.deadline_ps == NEVER:
        return
    if connection.deadline_ps > network.state[0].now_ps:
        set_deadline(network, row, connection.deadline_ps)
        return
    connection.timeout_ps = min(2 * connection.timeout_ps, LONGEST_PS)
    connection.deadline_ps = NEVER
    if gives_up(network, row, connection):
        return
    if connection.stage == OPENING:
        send_opening(network, row)
    elif connection.stage == OPEN:
        _send_all_again(network, row)


@works_on_tables
def _send_all_again(network: Any, row: int) -> None:
    """Treat all bytes that were not reported as arrived as lost."""
    transport = network.transport
    connection, rules = transport.connections[row], transport.rules[0]
    flight = under_way(network, row)
    network.state[0].timeouts += 1
    message = message_at(network, row, connection.acknowledged)
    if message != NONE:
        network.flows[message].timeouts += 1
    connection.duplicates = 0
    connection.is_partial = 1
    if rules.sack:
        connection.lost_to = connection.highest
        connection.again = connection.acknowledged
    else:
        connection.sent = connection.acknowledged
    connection.recover, connection.recovers = connection.highest, 1
    connection.threshold = control.reduced(network, row, flight)
    control.timed_out(network, row)
    connection.state = LOSS
    connection.window = rules.payload
    send_pending(network, row)
