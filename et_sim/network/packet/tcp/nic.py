"""What a host sends next over a port: packets in the order in which they came, or connections in turn.

Bytes that a connection hands over at once wait as one packet, which is cut when its turn comes.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE, join, leave
from et_sim.network.packet.ports import new_packet, ring_at, sending_ps
from et_sim.network.packet.records import DATA
from et_sim.network.packet.tcp.records import TELL, TIMERS


@works_on_tables
def wants_port(network: Any, port_row: int) -> bool:
    """Whether something is to be sent when a port is free."""
    nic = network.transport.nics[port_row]
    return bool(nic.head != NONE or nic.answers.head != NONE)


@works_on_tables
def queue_packet(network: Any, port_row: int, packet_row: int) -> None:
    """A packet waits for a port."""
    transport, packet = network.transport, network.packets[packet_row]
    nic = transport.nics[port_row]
    if transport.rules[0].takes_turns == 0:
        join(network.packets, nic, packet_row)
    elif packet.kind == DATA:
        _queue_in_turn(network, port_row, packet_row)
    else:
        join(network.packets, nic.answers, packet_row)


@works_on_tables
def _queue_in_turn(network: Any, port_row: int, packet_row: int) -> None:
    """Behind the other packets of its connection, which comes last if it was not in the round."""
    connections, row = network.transport.connections, network.packets[packet_row].flow
    nic, connection = network.transport.nics[port_row], connections[row]
    join(network.packets, connection, packet_row)
    if connection.is_queued == 0:
        connection.is_queued = 1
        join(connections, nic, row)


@works_on_tables
def next_packet(network: Any, port_row: int) -> int:
    """The packet that a host sends next over a port, which is free; NONE: none."""
    transport, port = network.transport, network.ports[port_row]
    nic = transport.nics[port_row]
    if port.is_paused:
        return NONE
    if nic.answers.head != NONE:
        return leave(network.packets, nic.answers)
    if nic.head == NONE:
        return NONE
    if transport.rules[0].takes_turns == 0:
        return _first_of_queue(network, port_row, nic)
    connection_row = leave(transport.connections, nic)
    connection = transport.connections[connection_row]
    cut = _first_of_queue(network, port_row, connection)
    if connection.head == NONE:
        connection.is_queued = 0
    else:
        join(transport.connections, nic, connection_row)
    return cut


@works_on_tables
def _first_of_queue(network: Any, port_row: int, queue: Any) -> int:
    cut = _cut(network, port_row, queue.head)
    if cut == queue.head:
        leave(network.packets, queue)
    return cut


@works_on_tables
def _cut(network: Any, port_row: int, row: int) -> int:
    """The first packet's worth of bytes that wait together; the same row if it is all."""
    packet, rules = network.packets[row], network.transport.rules[0]
    if packet.kind != DATA or packet.payload == 0:
        return row
    if packet.payload > rules.payload:
        cut = new_packet(network, DATA, packet.flow, rules.header + rules.payload)
        piece = network.packets[cut]
        piece.sequence, piece.payload, piece.sent_ps = packet.sequence, rules.payload, packet.sent_ps
        packet.sequence += rules.payload
        packet.payload -= rules.payload
        packet.bytes -= rules.payload
    else:
        cut = row
    piece = network.packets[cut]
    time = network.state[0].now_ps + sending_ps(network, network.ports[port_row], piece.bytes)
    messages_leave(network, piece.flow, piece.sequence + piece.payload, time)
    network.state[0].sent += 1
    return cut


@works_on_tables
def message_at(network: Any, row: int, position: int) -> int:
    """Which message on a connection a byte belongs to; NONE: to one that is not on it any more."""
    pieces, message = network.transport.pieces, network.transport.connections[row].first
    if message == NONE or position < network.transport.connections[row].first_begin:
        return NONE
    while message != NONE and pieces[message].end <= position:
        message = pieces[message].next
    return int(message)


@works_on_tables
def messages_leave(network: Any, row: int, position: int, time: int) -> None:
    """A message leaves whose last byte is sent; the engine hears of one at a time."""
    transport, flows = network.transport, network.flows
    connection, pieces = transport.connections[row], transport.pieces
    connection.left_to = max(connection.left_to, position)
    message = connection.leaves
    if message == NONE or pieces[message].end > connection.left_to:
        return
    if flows[message].left_ps == NONE:
        flows[message].left_ps = time
    connection.leaves = pieces[message].next
    if transport.rules[0].ends_acknowledged == 0:
        if network.state[0].left != NONE:
            connection.leaves = message
            tell_later(network, row)
            return
        network.state[0].left = message
    if connection.leaves != NONE and pieces[connection.leaves].end <= connection.left_to:
        flows[connection.leaves].left_ps = time
        tell_later(network, row)


@works_on_tables
def tell_later(network: Any, row: int) -> None:
    """The engine hears more in an event of the same instant."""
    ring_at(network, row * TIMERS + TELL, network.state[0].now_ps)
