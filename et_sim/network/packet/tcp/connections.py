"""Connections, found by the ranks at their ends and opened with or without a handshake, and their messages.

A message may be sent once its host has copied it.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE, take_row
from et_sim.network.packet.flows import clear_figures, message_arrives, release_flow
from et_sim.network.packet.kernel import send_next
from et_sim.network.packet.ports import new_packet, ring_at, sending_ps, stop
from et_sim.network.packet.records import DATA, NEVER
from et_sim.network.packet.tcp import control
from et_sim.network.packet.tcp.records import CLOSED, DUE, OPEN, OPENED, OPENING, OPENS, SMOOTH, TIMERS
from et_sim.network.packet.tcp.sender import (
    messages_leave,
    queue_packet,
    report_later,
    send_pending,
    set_deadline,
)

FIRST_PEER_WINDOW = 65535  # the largest window in a handshake
MULTIPLIER = 0x9E3779B1


@works_on_tables
def joins(network: Any, row: int) -> None:
    """Assign a message to its connection: its own, or that of its ranks."""
    transport, flow = network.transport, network.flows[row]
    piece = transport.pieces[row]
    piece.next = NONE
    if transport.rules[0].per_message:
        piece.connection = row
        _new_connection(network, row)
        transport.connections[row].is_owned = 1
        return
    bucket = bucket_of(transport, flow.source, flow.target)
    connection_row = transport.buckets[bucket]
    while connection_row != NONE and (
        network.flows[connection_row].source != flow.source
        or network.flows[connection_row].target != flow.target
    ):
        connection_row = transport.connections[connection_row].chain
    if connection_row == NONE:
        connection_row = _flow_of_connection(network, row)
        transport.connections[connection_row].chain = transport.buckets[bucket]
        transport.buckets[bucket] = connection_row
    piece.connection = connection_row


@works_on_tables
def flows_left(network: Any) -> int:
    """Return the number of messages that fit in the free flows; 0 if there are too few ranges."""
    if network.transport.free_ranges[0].rows < network.spare[0]:
        return 0
    return int(network.state[0].free_flows.rows // 2)


@works_on_tables
def bucket_of(transport: Any, source: int, target: int) -> int:
    """Return the bucket of the connection of two ranks."""
    return (source * MULTIPLIER + target) & (len(transport.buckets) - 1)


@works_on_tables
def _flow_of_connection(network: Any, like: int) -> int:
    """Return a flow without a message on the path of another one."""
    flows, ways, stride = network.flows, network.ways, network.stride[0]
    row = take_row(flows, network.state[0].free_flows)
    flow, other = flows[row], flows[like]
    flow.source, flow.target, flow.message = other.source, other.target, NONE
    flow.size = flow.padding = flow.packets = flow.is_reported = 0
    clear_figures(flow)
    flow.port, flow.back_port, flow.back = other.port, other.back_port, other.back
    flow.next = NONE
    for at in range(stride):
        ways[row * stride + at] = ways[like * stride + at]
    _new_connection(network, row)
    transport = network.transport
    if transport.rules[0].handshake == 0:
        connection = transport.connections[row]
        connection.stage = OPEN
        connection.rtt_ps = _idle_rtt_ps(network, row)
        connection.deviation_ps = connection.rtt_ps // 2
        connection.timeout_ps = timeout_of(transport.rules[0], connection)
    return int(row)


@works_on_tables
def _new_connection(network: Any, row: int) -> None:
    """Initialise a connection."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    connection.stage, connection.state = CLOSED, SMOOTH
    connection.is_owned = connection.is_queued = connection.recovers = connection.unanswered_mark = 0
    connection.is_partial = 1
    for_lists(connection)
    connection.end = connection.promised = connection.acknowledged = connection.sent = connection.highest = 0
    connection.rest = connection.recover = connection.lost_to = connection.again = connection.known = 0
    connection.delivered = connection.mended = connection.flight = connection.reduced_to = 0
    connection.duplicates = connection.held_count = connection.unanswered = 0
    connection.peer_window = min(rules.keeps, FIRST_PEER_WINDOW)
    connection.rtt_ps = connection.deviation_ps = connection.unanswered_ps = 0
    connection.timeout_ps, connection.deadline_ps = rules.first_timeout_ps, NEVER
    connection.expected = connection.left_to = connection.first_begin = 0
    connection.tried = NONE
    control.begins(network, row)


@works_on_tables
def for_lists(connection: Any) -> None:
    """Empty all lists of a connection."""
    connection.next = connection.chain = connection.first = connection.last = NONE
    connection.leaves = connection.waits = connection.ranges = connection.held = NONE
    connection.head = connection.tail = NONE


@works_on_tables
def _idle_rtt_ps(network: Any, row: int) -> int:
    """Return the round-trip time of a handshake on an idle path."""
    ways, rules = network.ways, network.transport.rules[0]
    at, time, ends = row * network.stride[0], 0, 0
    while ends < 2:
        if ways[at] == NONE:
            ends += 1
        else:
            port = network.ports[ways[at]]
            time += port.delay_ps + sending_ps(network, port, rules.opening)
        at += 1
    return int(time)


@works_on_tables
def timeout_of(rules: Any, connection: Any) -> int:
    """Return the retransmission timeout (RFC 6298)."""
    return max(rules.least_timeout_ps, connection.rtt_ps + 4 * connection.deviation_ps)


@works_on_tables
def begin_flow(network: Any, row: int) -> None:
    """Queue a message on its connection; its bytes are due when its host has copied them."""
    transport, flow = network.transport, network.flows[row]
    rules, piece, now = transport.rules[0], transport.pieces[row], network.state[0].now_ps
    connection = transport.connections[piece.connection]
    connection.promised += flow.size
    if rules.pads:  # in full packets, one more than is needed
        whole = -(-(flow.size + rules.payload - 1) // rules.payload) * rules.payload
        connection.promised += whole - flow.size
    piece.end = connection.promised
    piece.due_ps = now + rules.injection_ps
    if rules.copying > 0.0:
        host = transport.hosts[flow.source]
        host.copied_ps = max(host.copied_ps, now) + int(flow.size * rules.copying)
        piece.due_ps = host.copied_ps + rules.injection_ps
    if connection.last == NONE:
        connection.first = row
    else:
        transport.pieces[connection.last].next = row
    connection.last = row
    if connection.leaves == NONE:
        connection.leaves = row
    if connection.waits == NONE:
        connection.waits = row
        _wait(network, piece.connection, piece.due_ps)


@works_on_tables
def _wait(network: Any, row: int, time: int) -> None:
    ring_at(network, row * TIMERS + DUE, time)


@works_on_tables
def messages_are_due(network: Any, row: int) -> None:
    """Make the bytes of due messages available to the sender."""
    transport, now = network.transport, network.state[0].now_ps
    connection, pieces = transport.connections[row], transport.pieces
    while connection.waits != NONE and pieces[connection.waits].due_ps <= now:
        connection.end = pieces[connection.waits].end
        connection.waits = pieces[connection.waits].next
    if connection.waits != NONE:
        _wait(network, row, pieces[connection.waits].due_ps)
    if connection.stage == CLOSED:
        connection.stage = OPENING
        send_opening(network, row)
    else:
        send_pending(network, row)
    send_next(network, network.flows[row].port)


@works_on_tables
def send_opening(network: Any, row: int) -> None:
    """Send the packet that opens a connection."""
    transport, now = network.transport, network.state[0].now_ps
    packet_row = new_packet(network, DATA, row, transport.rules[0].opening)
    network.packets[packet_row].sequence = OPENS
    set_deadline(network, row, now + transport.connections[row].timeout_ps)
    queue_packet(network, network.flows[row].port, packet_row)


@works_on_tables
def is_open(network: Any, row: int) -> None:
    """Open a connection after the answer, and acknowledge that answer if acknowledgements are sent."""
    transport = network.transport
    connection, rules = transport.connections[row], transport.rules[0]
    if connection.stage != OPENING:
        return
    connection.stage = OPEN
    set_deadline(network, row, NEVER)
    connection.timeout_ps = timeout_of(rules, connection)
    if rules.bypass == 0:
        packet_row = new_packet(network, DATA, row, rules.acknowledgement)
        network.packets[packet_row].sequence = OPENED
        queue_packet(network, network.flows[row].port, packet_row)
    send_pending(network, row)


@works_on_tables
def messages_arrive(network: Any, row: int, position: int) -> None:
    """Report a message whose bytes have all arrived or been acknowledged.

    The engine receives one message at a time; the next one follows in an event of the same instant.
    """
    transport = network.transport
    connection, pieces, rules = transport.connections[row], transport.pieces, transport.rules[0]
    message = connection.first
    if message == NONE or pieces[message].end > position:
        return
    if network.state[0].arrived != NONE:
        report_later(network, row)
        return
    connection.first, connection.first_begin = pieces[message].next, pieces[message].end
    message_arrives(network, message)
    if rules.copying > 0.0:
        _copy_received(network, message)
    if connection.is_owned == 0:
        release_flow(network, message)
    if connection.first == NONE:
        connection.last = NONE
    elif pieces[connection.first].end <= position:
        report_later(network, row)


@works_on_tables
def report_more(network: Any, row: int) -> None:
    """Report further messages of a connection to the engine."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    messages_leave(network, row, connection.left_to, network.state[0].now_ps)
    position = connection.acknowledged if rules.completion else connection.expected
    messages_arrive(network, row, position)


@works_on_tables
def _copy_received(network: Any, message: int) -> None:
    """Add the time in which the receiving host copies a message."""
    flow, rules, now = network.flows[message], network.transport.rules[0], network.state[0].now_ps
    host = network.transport.hosts[flow.target]
    host.received_ps = max(host.received_ps, now) + int(flow.size * rules.copying)
    flow.arrived_ps = host.received_ps


@works_on_tables
def release_if_done(network: Any, row: int) -> None:
    """Release the connection of a single message when it is done."""
    connection, flow = network.transport.connections[row], network.flows[row]
    if connection.is_owned == 0 or flow.is_reported == 0 or flow.packets > 0:
        return
    if connection.acknowledged < connection.end:
        return
    for timer in range(TIMERS):
        stop(network, row * TIMERS + timer)
    connection.is_owned = 0
    release_flow(network, row)
