"""What a connection may send: new bytes as its windows allow, and bytes again that are lost.

Without selective acknowledgements (SACK), a sender that has waited in vain sends all again from the first
byte that is missing. With them, it sends what is known to be missing, as far as what is thought to be under
way leaves room (RFC 6675). What has arrived beyond a hole is a list of ranges of bytes, in order.

A host sends packets in the order in which they came, or those of its connections in turn. Bytes that a
connection hands over at once wait as one packet, which is cut when its turn comes.

Not here: what acknowledgements say (`acknowledgements`), and how windows grow and shrink (`control`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE, give_row, join, leave, take_row
from et_sim.network.packet.flows import has_figures, window_held, window_is_full
from et_sim.network.packet.ports import new_packet, ring_at, sending_ps
from et_sim.network.packet.records import DATA, NEVER
from et_sim.network.packet.tcp.records import MORE, OPEN, RECOVERY, RESEND, TELL, TIMERS


@works_on_tables
def with_range(network: Any, first: int, begin: int, end: int) -> tuple[int, int]:
    """Return a list to which a range is added, and the row of the range that now has it."""
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
    """Return a list without what is below a position."""
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
    """How many bytes of a list are below a position."""
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
    """Return whether something is to be sent when a port is free."""
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
    """Return the packet that a host sends next over a port, which is free; NONE: none."""
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
    """Return the first packet's worth of bytes that wait together; the same row if it is all."""
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
    if transport.rules[0].completion == 0:
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


MOST_AT_ONCE = 4  # packets that are sent again at once; the others at the next event of the same instant


@works_on_tables
def send_pending(network: Any, row: int) -> None:
    """Send what may be sent."""
    _send_all(network, row)
    if has_figures(network):
        _note_window(network, row)


@works_on_tables
def _note_window(network: Any, row: int) -> None:
    """See whether the window holds back what is left."""
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
    """The same, and no more."""
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
    """Up to where bytes are there, and the receiver and the sender keep them."""
    rules = network.transport.rules[0]
    return min(connection.end, connection.acknowledged + min(rules.keeps, connection.peer_window))


@works_on_tables
def under_way(network: Any, row: int) -> int:
    """Return bytes that are thought to be in the network."""
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
    """Return the first byte that is lost, or of those that may be, and was not sent again; NONE: none is."""
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
    """One packet with bytes that were sent before; returns how many."""
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
    """So many packets are sent again."""
    network.state[0].resent += packets
    message = message_at(network, row, begin)
    if message != NONE:  # else it is there, and the acknowledgement is missing
        network.flows[message].retransmitted += packets


@works_on_tables
def _send_new(network: Any, row: int, begin: int, size: int) -> None:
    """Bytes that follow on those that were sent."""
    transport = network.transport
    connection = transport.connections[row]
    if begin < connection.highest:
        _count_again(network, row, begin, -(-size // transport.rules[0].payload))
    connection.sent = begin + size
    connection.highest = max(connection.highest, connection.sent)
    _queue(network, row, begin, size)


@works_on_tables
def send_new_packet(network: Any, row: int) -> bool:
    """One packet with bytes that were never sent, if the other end keeps it; whether there was one."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    size = min(_limit(network, connection) - connection.sent, rules.payload)
    if size > 0:
        _send_new(network, row, connection.sent, size)
    return bool(size > 0)


@works_on_tables
def _queue(network: Any, row: int, begin: int, size: int) -> None:
    """Bytes wait at the host, as one packet that is cut there."""
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
    """When bytes that are not acknowledged are sent again; a timer that rings earlier is set again then."""
    transport, state = network.transport, network.state[0]
    connection, rules = transport.connections[row], transport.rules[0]
    timer = row * TIMERS + RESEND
    at = network.calendar.place[len(network.ports) + timer]
    if at != NONE:
        state.moving += int(deadline != NEVER) - int(connection.deadline_ps != NEVER)
    connection.deadline_ps = deadline
    if deadline == NEVER:
        return
    rings = deadline
    if rules.scan_ps > 0:
        rings = _seen_ps(rules.scan_ps, deadline)
    if at == NONE or network.calendar.entries[at].key > rings:
        ring_at(network, timer, rings)


@works_on_tables
def _seen_ps(scan: int, deadline: int) -> int:
    """When a sender that looks at its clock now and then notices that it is late, and has sent again.

    As in htsim, it does so a little later: by a 200th of what is left of the interval.
    """
    seen = (deadline // scan + 1) * scan
    return seen + (scan - (seen - deadline)) // 200


@works_on_tables
def _send_more_later(network: Any, row: int) -> None:
    """There is more than may be sent at one event."""
    ring_at(network, row * TIMERS + MORE, network.state[0].now_ps)
