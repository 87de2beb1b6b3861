"""What a connection may send: new bytes as its windows allow, and bytes again that are lost.

Without selective acknowledgements (SACK), a sender that has waited in vain sends all again from the first
byte that is missing. With them, it sends what is known to be missing, as far as what is thought to be under
way leaves room (RFC 6675).

Not here: what acknowledgements say (`acknowledgements`), and how windows grow and shrink (`control`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE
from et_sim.network.packet.figures import has_figures, window_held, window_is_full
from et_sim.network.packet.ports import new_packet, ring_at
from et_sim.network.packet.records import DATA, NEVER
from et_sim.network.packet.tcp.nic import message_at, queue_packet
from et_sim.network.packet.tcp.ranges import bytes_below
from et_sim.network.packet.tcp.records import MORE, OPEN, RECOVERY, RESEND, TIMERS

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
    """Bytes that are thought to be in the network."""
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
    """The first byte that is lost, or of those that may be, and was not sent again; NONE: none is."""
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
