"""Senders: new bytes as the windows allow, and retransmission of lost bytes.

Without selective acknowledgements (SACK), a sender sends all again from the first missing byte after a
timeout. With SACK, it sends the missing bytes as far as the estimate of bytes in flight allows (RFC 6675).
Ranges of bytes that arrived beyond a hole are kept as an ordered list.

A host sends packets in the order of arrival, or those of its connections in turn. Bytes that a connection
passes at once wait as one packet, which is cut when its turn comes.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE, give_row, join, leave, take_row
from et_sim.network.packet.calendar import is_planned, time_of
from et_sim.network.packet.flows import has_figures, window_held, window_is_full
from et_sim.network.packet.ports import new_packet, ring_at, sending_ps
from et_sim.network.packet.records import DATA, NEVER
from et_sim.network.packet.tcp.records import MORE, OPEN, RECOVERY, RESEND, TELL, TIMERS


@works_on_tables
def with_range(network: Any, first: int, begin: int, end: int) -> tuple[int, int]:
    """Return a list with a range added, and the row of the range that contains it."""
    ranges = network.transport.ranges
    before, row = NONE, first
    while row != NONE and ranges[row].end < begin:
        before, row = row, ranges[row].next
    if row == NONE or ranges[row].begin > end:
        new = _new_range(network, begin, end, row)
        if before == NONE:
            return new, new
        ranges[before].next = new
        return first, new
    merged = ranges[row]
    merged.begin, merged.end = min(merged.begin, begin), max(merged.end, end)
    after = merged.next
    while after != NONE and ranges[after].begin <= merged.end:
        merged.end = max(merged.end, ranges[after].end)
        merged.next = ranges[after].next
        give_row(ranges, network.transport.free_ranges[0], after)
        after = merged.next
    return first, row


@works_on_tables
def without_below(network: Any, first: int, position: int) -> int:
    """Return a list without the bytes below a position."""
    ranges = network.transport.ranges
    row = first
    while row != NONE and ranges[row].end <= position:
        after = ranges[row].next
        give_row(ranges, network.transport.free_ranges[0], row)
        row = after
    if row != NONE:
        ranges[row].begin = max(ranges[row].begin, position)
    return int(row)


@works_on_tables
def bytes_below(network: Any, first: int, position: int) -> int:
    """Return how many bytes of a list are below a position."""
    ranges = network.transport.ranges
    row, count = first, 0
    while row != NONE and ranges[row].begin < position:
        count += min(ranges[row].end, position) - ranges[row].begin
        row = ranges[row].next
    return int(count)


@works_on_tables
def _new_range(network: Any, begin: int, end: int, after: int) -> int:
    ranges = network.transport.ranges
    row = take_row(ranges, network.transport.free_ranges[0])
    ranges[row].begin, ranges[row].end, ranges[row].next = begin, end, after
    return int(row)


@works_on_tables
def wants_port(network: Any, port_row: int) -> bool:
    """Return whether something waits for a port."""
    nic = network.transport.nics[port_row]
    return bool(nic.head != NONE or nic.answers.head != NONE)


@works_on_tables
def queue_packet(network: Any, port_row: int, packet_row: int) -> None:
    """Queue a packet for a port."""
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
    """Queue a packet of a connection; connections take turns, and a new one comes last."""
    connections, row = network.transport.connections, network.packets[packet_row].flow
    nic, connection = network.transport.nics[port_row], connections[row]
    join(network.packets, connection, packet_row)
    if connection.is_queued == 0:
        connection.is_queued = 1
        join(connections, nic, row)


@works_on_tables
def next_packet(network: Any, port_row: int) -> int:
    """Return the next packet of a host for a free port, or NONE."""
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
    """Cut the first packet from bytes that wait together; return the same row if they fit in one."""
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
    """Return the message that a byte belongs to, or NONE if the connection has released it."""
    pieces, message = network.transport.pieces, network.transport.connections[row].first
    if message == NONE or position < network.transport.connections[row].first_begin:
        return NONE
    while message != NONE and pieces[message].end <= position:
        message = pieces[message].next
    return int(message)


@works_on_tables
def messages_leave(network: Any, row: int, position: int, time: int) -> None:
    """Report a message whose last byte is sent; one at a time."""
    transport, flows = network.transport, network.flows
    connection, pieces = transport.connections[row], transport.pieces
    connection.left_to = max(connection.left_to, position)
    message = connection.leaves
    if message == NONE or pieces[message].end > connection.left_to:
        return
    if flows[message].left_ps == NONE:
        flows[message].left_ps = time
    connection.leaves = pieces[message].next
    if transport.rules[0].completion == 0:
        if network.state[0].left != NONE:
            connection.leaves = message
            report_later(network, row)
            return
        network.state[0].left = message
    if connection.leaves != NONE and pieces[connection.leaves].end <= connection.left_to:
        flows[connection.leaves].left_ps = time
        report_later(network, row)


@works_on_tables
def report_later(network: Any, row: int) -> None:
    """Report further messages in an event of the same instant."""
    ring_at(network, row * TIMERS + TELL, network.state[0].now_ps)


MOST_AT_ONCE = 4  # retransmissions per event; the others follow in the same instant


@works_on_tables
def send_pending(network: Any, row: int) -> None:
    """Send all packets that the windows allow, and record delays."""
    _send_all(network, row)
    if has_figures(network):
        _note_window(network, row)


@works_on_tables
def _note_window(network: Any, row: int) -> None:
    """Record whether the window delays the remaining bytes."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    room = min(connection.window, connection.peer_window) - under_way(network, row)
    available = connection.end - connection.sent
    if connection.stage == OPEN and available > 0 and (room <= 0 or room < min(available, rules.payload)):
        message = message_at(network, row, connection.sent)
        window_is_full(network, row, message, network.state[0].now_ps)
    else:
        window_held(network, row, 0)


@works_on_tables
def _send_all(network: Any, row: int) -> None:
    """Send all packets that the windows allow."""
    transport = network.transport
    connection, rules = transport.connections[row], transport.rules[0]
    if connection.stage != OPEN:
        return
    for _ in range(MOST_AT_ONCE):
        room = min(connection.window, connection.peer_window) - under_way(network, row)
        if room <= 0:
            return
        begin, end = connection.sent, _limit(network, connection)
        is_new = True
        if rules.sack:
            lost = next_lost(network, row, False)
            if lost != NONE:
                begin, is_new = lost, False
            elif begin >= connection.end and connection.state == RECOVERY:
                begin, is_new = next_lost(network, row, True), False
                if begin == NONE:
                    return
        if is_new and begin < connection.highest:  # all is sent again
            end = min(end, connection.highest)
        available = end - begin
        if available <= 0 or (room < rules.payload and available > room):
            return
        if is_new:
            full = min(room, available) // rules.payload * rules.payload
            size = available if available <= room and available - full < rules.payload else full
            _send_new(network, row, begin, size)
        else:
            send_again(network, row, begin, room)
    _send_more_later(network, row)


@works_on_tables
def _limit(network: Any, connection: Any) -> int:
    """Return the end of the bytes that are available and fit in the buffers of both ends."""
    rules = network.transport.rules[0]
    return min(connection.end, connection.acknowledged + min(rules.keeps, connection.peer_window))


@works_on_tables
def under_way(network: Any, row: int) -> int:
    """Return the estimate of bytes in flight."""
    connection = network.transport.connections[row]
    first = connection.acknowledged
    count = connection.sent - first
    if network.transport.rules[0].sack == 0:
        return int(count)
    if connection.lost_to <= first and connection.again <= first and connection.known == 0:
        return int(count)
    count -= connection.known
    if connection.lost_to > first:
        below = bytes_below(network, connection.ranges, connection.lost_to)
        count -= connection.lost_to - first - below
    if connection.again > first:
        below = bytes_below(network, connection.ranges, connection.again)
        count += connection.again - first - below
    return int(count)


@works_on_tables
def next_lost(network: Any, row: int, is_any: bool) -> int:
    """Return the first byte that is lost (`is_any`: or may be) and was not sent again, or NONE."""
    transport = network.transport
    connection, ranges = transport.connections[row], transport.ranges
    position = max(connection.acknowledged, connection.again)
    limit = connection.highest if is_any else connection.lost_to
    if position >= limit:
        return NONE
    at = connection.ranges
    while at != NONE and ranges[at].end <= position:
        at = ranges[at].next
    if at != NONE and ranges[at].begin <= position:
        position = ranges[at].end
    return position if position < limit else NONE


@works_on_tables
def send_again(network: Any, row: int, begin: int, room: int) -> int:
    """Send one packet of old bytes again; return their number."""
    transport = network.transport
    connection, rules, ranges = transport.connections[row], transport.rules[0], transport.ranges
    end = min(begin + rules.payload, connection.highest)
    at = connection.ranges
    while at != NONE and ranges[at].end <= begin:
        at = ranges[at].next
    if at != NONE:
        end = min(end, ranges[at].begin)
    end = min(end, begin + max(room, 1))
    connection.again = max(connection.again, end)
    _count_again(network, row, begin, 1)
    _queue(network, row, begin, end - begin)
    return int(end - begin)


@works_on_tables
def _count_again(network: Any, row: int, begin: int, packets: int) -> None:
    """Count retransmitted packets."""
    network.state[0].resent += packets
    message = message_at(network, row, begin)
    if message != NONE:  # else the message has arrived, but not its acknowledgement
        network.flows[message].retransmitted += packets


@works_on_tables
def _send_new(network: Any, row: int, begin: int, size: int) -> None:
    """Send bytes from the sender's position on."""
    transport = network.transport
    connection = transport.connections[row]
    if begin < connection.highest:
        _count_again(network, row, begin, -(-size // transport.rules[0].payload))
    connection.sent = begin + size
    connection.highest = max(connection.highest, connection.sent)
    _queue(network, row, begin, size)


@works_on_tables
def send_new_packet(network: Any, row: int) -> bool:
    """Send one packet of new bytes if the receiver has space; return whether there was one."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    size = min(_limit(network, connection) - connection.sent, rules.payload)
    if size > 0:
        _send_new(network, row, connection.sent, size)
    return bool(size > 0)


@works_on_tables
def _queue(network: Any, row: int, begin: int, size: int) -> None:
    """Queue bytes at the host as one packet, which is cut there."""
    transport = network.transport
    connection, rules = transport.connections[row], transport.rules[0]
    packet_row = new_packet(network, DATA, row, rules.header + size)
    packet = network.packets[packet_row]
    packet.sequence, packet.payload = begin, size
    if connection.state == RECOVERY:
        connection.mended += size
    if connection.deadline_ps == NEVER:
        set_deadline(network, row, network.state[0].now_ps + connection.timeout_ps)
    queue_packet(network, network.flows[row].port, packet_row)


@works_on_tables
def set_deadline(network: Any, row: int, deadline: int) -> None:
    """Set when unacknowledged bytes are sent again; a timer that expires earlier is set again."""
    transport, state = network.transport, network.state[0]
    connection, rules = transport.connections[row], transport.rules[0]
    timer = row * TIMERS + RESEND
    source = len(network.ports) + timer
    if is_planned(network.calendar, source):
        state.moving += int(deadline != NEVER) - int(connection.deadline_ps != NEVER)
    connection.deadline_ps = deadline
    if deadline == NEVER:
        return
    rings = deadline
    if rules.scan_ps > 0:
        rings = _seen_ps(rules.scan_ps, deadline)
    if not is_planned(network.calendar, source) or time_of(network.calendar, source) > rings:
        ring_at(network, timer, rings)


@works_on_tables
def _seen_ps(scan: int, deadline: int) -> int:
    """Return when a sender that polls its clock sees a deadline, and has sent again.

    As in htsim, it does so a little later: by a 200th of the rest of the interval.
    """
    seen = (deadline // scan + 1) * scan
    return seen + (scan - (seen - deadline)) // 200


@works_on_tables
def _send_more_later(network: Any, row: int) -> None:
    """Schedule the packets that exceed the limit per event."""
    ring_at(network, row * TIMERS + MORE, network.state[0].now_ps)
