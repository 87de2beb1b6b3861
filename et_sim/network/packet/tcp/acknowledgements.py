"""Acknowledgements at the sender: bytes that have arrived or are missing, and round-trip times.

A packet counts as lost after three duplicate acknowledgements. With SACK, recovery follows RFC 6675, and the
window shrinks in proportion to the bytes that arrive (RFC 6937); without, it follows NewReno (RFC 6582).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE
from et_sim.network.packet.records import NEVER
from et_sim.network.packet.tcp import control
from et_sim.network.packet.tcp.connections import is_open, messages_arrive, timeout_of
from et_sim.network.packet.tcp.records import DISORDER, LOSS, OPENS, RECOVERY, SMOOTH
from et_sim.network.packet.tcp.sender import (
    bytes_below,
    next_lost,
    send_again,
    send_new_packet,
    send_pending,
    set_deadline,
    under_way,
    with_range,
    without_below,
)

DUPLICATES_TO_LOSS = 3
LEAST_RTT_PS = 1_000_000


@works_on_tables
def acknowledged(
    network: Any, row: int, position: int, sent_ps: int, is_marked: bool, begin: int, end: int
) -> None:
    """Process an acknowledgement of all bytes before a position, and of those from `begin` to `end`."""
    transport = network.transport
    connection, rules = transport.connections[row], transport.rules[0]
    _measure(network, connection, sent_ps)
    if position == OPENS:
        is_open(network, row)
        return
    connection.peer_window = rules.keeps
    if position < connection.acknowledged:
        return
    old, known = connection.acknowledged, connection.known
    is_duplicate = position == old and position < connection.sent
    if rules.sack:
        is_duplicate = _note_arrived(network, row, begin, end)
    was_again = connection.again > old and position > old and connection.state == RECOVERY
    connection.acknowledged = position
    connection.sent = max(connection.sent, position)
    if connection.ranges != NONE:
        connection.ranges = without_below(network, connection.ranges, position)
        connection.known = bytes_below(network, connection.ranges, NEVER)
    delivered = position + connection.known - old - known
    if is_marked and position > old:
        react_to_mark(network, row)
    _process(network, row, old, is_duplicate, delivered, was_again, is_marked)
    if rules.completion:
        messages_arrive(network, row, position)
    send_pending(network, row)


@works_on_tables
def _measure(network: Any, connection: Any, sent_ps: int) -> None:
    """Update the round-trip time, on a clock that may be coarse."""
    rules, now = network.transport.rules[0], network.state[0].now_ps
    time = now - sent_ps
    if rules.clock_ps > 0:
        time = max((now // rules.clock_ps - sent_ps // rules.clock_ps) * rules.clock_ps, LEAST_RTT_PS)
    if connection.rtt_ps == 0:
        connection.rtt_ps, connection.deviation_ps = time, time // 2
        return
    difference = time - connection.rtt_ps
    connection.deviation_ps += (abs(difference) - connection.deviation_ps) // 4
    connection.rtt_ps = max(connection.rtt_ps + difference // 8, 1)


@works_on_tables
def _note_arrived(network: Any, row: int, begin: int, end: int) -> bool:
    """Record a range beyond a hole; return whether it is new. Holes below three such packets are losses."""
    transport = network.transport
    connection, rules, ranges = transport.connections[row], transport.rules[0], transport.ranges
    if end <= begin or end <= connection.acknowledged:
        return False
    first, _at = with_range(network, connection.ranges, max(begin, connection.acknowledged), end)
    connection.ranges = first
    known = bytes_below(network, first, NEVER)
    if known == connection.known:
        return False
    connection.known = known
    packets, at = 0, first
    while at != NONE:
        packets += -(-(ranges[at].end - ranges[at].begin) // rules.payload)
        at = ranges[at].next
    at = first
    while at != NONE and packets >= DUPLICATES_TO_LOSS:
        connection.lost_to = max(connection.lost_to, ranges[at].begin)
        packets -= -(-(ranges[at].end - ranges[at].begin) // rules.payload)
        at = ranges[at].next
    return True


@works_on_tables
def react_to_mark(network: Any, row: int) -> None:
    """Shrink the window for congestion, once for all bytes in flight."""
    connection = network.transport.connections[row]
    if connection.acknowledged <= connection.reduced_to or connection.state > DISORDER:
        return
    connection.threshold = control.reduced(network, row, under_way(network, row))
    connection.window = connection.threshold
    connection.reduced_to = connection.highest


@works_on_tables
def _process(
    network: Any, row: int, old: int, is_duplicate: bool, delivered: int, was_again: bool, is_marked: bool
) -> None:
    """Process an acknowledgement according to the state of the sender."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    duplicates = connection.duplicates
    if is_duplicate:
        _count_duplicate(network, row, delivered, was_again)
    position = connection.acknowledged
    if position == old:
        if position < connection.highest:
            control.was_acknowledged(network, row, 1, is_marked)
        return
    count = position - old
    packets = count // rules.payload
    connection.rest += count % rules.payload
    if connection.rest >= rules.payload:
        packets += 1
        connection.rest -= rules.payload
    if not is_duplicate:
        connection.duplicates = 0
    if position < connection.recover and connection.state == RECOVERY:
        _continue_recovery(network, row, count, packets, delivered, was_again)
    elif position < connection.recover and connection.state == LOSS:
        control.was_acknowledged(network, row, packets, is_marked)
        control.grows(network, row, packets)
        _restart_timer(network, row, True)
    else:
        _go_on(network, row, old, duplicates, packets, is_duplicate, is_marked)


@works_on_tables
def _go_on(
    network: Any, row: int, old: int, duplicates: int, packets: int, is_duplicate: bool, is_marked: bool
) -> None:
    """Update the state where all lost bytes have been acknowledged."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    position, state = connection.acknowledged, connection.state
    if state == DISORDER:
        if packets >= duplicates:
            control.was_acknowledged(network, row, packets - duplicates, is_marked)
        if is_duplicate:
            if position >= connection.recover:
                connection.recovers = 0
            return
    else:
        if state == RECOVERY:
            packets = (position - old) // rules.payload
        elif state == LOSS:
            packets = (position - connection.recover) // rules.payload
        control.was_acknowledged(network, row, packets, is_marked)
    connection.state = SMOOTH
    if position >= connection.recover:
        connection.recovers = 0
    if state >= RECOVERY:
        connection.is_partial = 1
    if state == RECOVERY:
        connection.duplicates = 0
        connection.window = connection.threshold
        if rules.sack == 0:
            flight = connection.sent - position
            connection.window = min(connection.threshold, flight + rules.payload)
    if not (is_marked and connection.reduced_to == connection.highest):
        control.grows(network, row, packets)
    _restart_timer(network, row, True)


@works_on_tables
def _count_duplicate(network: Any, row: int, delivered: int, was_again: bool) -> None:
    """Count a duplicate acknowledgement, and begin recovery after three."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    if connection.state == LOSS:
        return
    if connection.state == RECOVERY:
        if rules.sack:
            _reduce_in_proportion(network, row, delivered, was_again)
        else:
            connection.window += rules.payload
        return
    connection.duplicates += 1
    connection.state = DISORDER
    may = connection.acknowledged >= connection.recover or connection.recovers == 0
    if (connection.duplicates == DUPLICATES_TO_LOSS and may) or (
        rules.sack and connection.lost_to > connection.acknowledged + rules.payload
    ):
        _begin_recovery(network, row, delivered)


@works_on_tables
def _begin_recovery(network: Any, row: int, delivered: int) -> None:
    """Enter recovery: send the first unacknowledged packet again at once."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    first = connection.acknowledged
    if rules.sack and connection.lost_to <= first:
        connection.lost_to = min(first + rules.payload, connection.highest)
        connection.again = min(connection.again, first)
    connection.recover = connection.highest
    connection.recovers = 1
    connection.state = RECOVERY
    connection.threshold = control.reduced(network, row, under_way(network, row))
    if rules.sack:
        connection.delivered = connection.mended = 0
        connection.flight = connection.highest - first
        _reduce_in_proportion(network, row, delivered, False)
    else:
        connection.window = connection.threshold + DUPLICATES_TO_LOSS * rules.payload
    _send_missing(network, row)


@works_on_tables
def _reduce_in_proportion(network: Any, row: int, delivered: int, was_again: bool) -> None:
    """Reduce the window in proportion to the bytes that arrived, down to the threshold."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    connection.delivered += delivered
    flight = under_way(network, row)
    if flight > connection.threshold:
        part = -(-connection.delivered * connection.threshold // connection.flight)
        count = part - connection.mended
    else:
        limit = delivered
        if was_again:
            limit = max(connection.delivered - connection.mended, delivered) + rules.payload
        count = min(limit, connection.threshold - flight)
    connection.window = flight + max(count, 0 if connection.mended > 0 else rules.payload)


@works_on_tables
def _continue_recovery(
    network: Any, row: int, count: int, packets: int, delivered: int, was_again: bool
) -> None:
    """Continue recovery where more than the first packet was lost."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    if rules.sack == 0:
        connection.window = max(connection.window - count, 0) + (rules.payload if packets > 0 else 0)
        send_again(network, row, connection.acknowledged, rules.payload)
    else:
        if packets > 0:
            _reduce_in_proportion(network, row, delivered, was_again)
        if connection.again <= connection.acknowledged:
            _send_missing(network, row)
    control.was_acknowledged(network, row, 1, False)
    _restart_timer(network, row, bool(connection.is_partial))
    connection.is_partial = 0


@works_on_tables
def _send_missing(network: Any, row: int) -> None:
    """Send the first lost packet regardless of the window; else a new one, else the first one again."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    lost = next_lost(network, row, False) if rules.sack else connection.acknowledged
    if lost != NONE:
        send_again(network, row, lost, rules.payload)
    elif not send_new_packet(network, row):
        send_again(network, row, connection.acknowledged, rules.payload)


@works_on_tables
def _restart_timer(network: Any, row: int, is_wanted: bool) -> None:
    """Restart the retransmission timer."""
    connection, rules = network.transport.connections[row], network.transport.rules[0]
    if connection.acknowledged >= connection.highest:
        connection.timeout_ps = timeout_of(rules, connection)
        set_deadline(network, row, NEVER)
    elif is_wanted:
        connection.timeout_ps = timeout_of(rules, connection)
        set_deadline(network, row, network.state[0].now_ps + connection.timeout_ps)
