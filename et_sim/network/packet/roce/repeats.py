"""What RoCE's hosts keep, for pictures of what repeats itself: messages that send at their full rate.

Not here: when pictures are taken, and what they are good for (`packet.repeats`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE
from et_sim.network.packet.records import NEVER
from et_sim.network.packet.repeats import describe_packets, pass_packets
from et_sim.network.packet.roce.nic import timer_of
from et_sim.network.packet.roce.records import DCQCN, NO_CONTROL

PER_NIC, PER_PAIR = 4, 14


@works_on_tables
def may_repeat(network: Any) -> bool:
    """Whether rates do not follow how long packets take; DCQCN's do not as long as nothing is marked."""
    control = network.transport.rules[0].algorithm
    return bool(control in (NO_CONTROL, DCQCN))


@works_on_tables
def position_of(network: Any, row: int) -> int:
    """The next byte of a message that is sent."""
    return int(network.transport.pairs[row].sent)


@works_on_tables
def advance_of(network: Any, row: int) -> int:
    """How many bytes of a message a period sends."""
    pair = network.transport.pairs[row]
    return int(pair.advance) if pair.is_listed else 0


@works_on_tables
def describe_host(network: Any, picture: Any, at: int, port_row: int) -> int:
    """What a host has to send over a port."""
    transport, nic = network.transport, network.transport.nics[port_row]
    if at + PER_NIC + PER_PAIR * nic.count > len(picture):
        return NONE
    picture[at], picture[at + 1], picture[at + 2] = nic.count, nic.last, nic.last_row
    at += PER_NIC - 1
    row = nic.head
    while row != NONE:
        if transport.pairs[row].has_begun:  # it reacts to marks
            return NONE
        _describe_pair(network, picture, at, row)
        at += PER_PAIR
        row = transport.pairs[row].next
    picture[at] = NONE
    return describe_packets(network, picture, at + 1, nic.answers.head)


@works_on_tables
def _describe_pair(network: Any, picture: Any, at: int, row: int) -> None:
    """How far the ends of a message are apart; what was in the past has no effect."""
    state, pair, flow = network.state[0], network.transport.pairs[row], network.flows[row]
    now, place = state.now_ps, network.calendar.place[len(network.ports) + timer_of(row)]
    picture[at], picture[at + 1] = row, pair.sent - pair.acknowledged
    picture[at + 2], picture[at + 3] = pair.highest - pair.sent, pair.expected - pair.sent
    picture[at + 4] = max(pair.next_ps - now, 0)
    picture[at + 5], picture[at + 6], picture[at + 7] = pair.window, pair.rate, pair.last_bytes
    picture[at + 8] = max(pair.refused_ps - now, 0) if pair.refused == pair.expected else 0
    picture[at + 9], picture[at + 10] = flow.packets, flow.retransmitted
    picture[at + 11] = 2 * (pair.sent < flow.size) + flow.told
    picture[at + 12] = network.calendar.entries[place].key - now if place != NONE else -1
    picture[at + 13] = network.calendar.entries[place].tie - state.order if place != NONE else 0


@works_on_tables
def note_host(network: Any, port_row: int) -> int:
    """Note how far the messages of a host are."""
    pairs, row = network.transport.pairs, network.transport.nics[port_row].head
    while row != NONE:
        pairs[row].pictured = pairs[row].sent
        row = pairs[row].next
    return 0


@works_on_tables
def periods_left(network: Any, port_row: int) -> int:
    """For how many periods all packets of a host are full, and none is the last of its message."""
    pairs, row, count = network.transport.pairs, network.transport.nics[port_row].head, NEVER
    while row != NONE:
        pair = pairs[row]
        pair.advance = pair.sent - pair.pictured
        if pair.advance > 0:
            count = min(count, (network.flows[row].size - 1 - pair.sent) // pair.advance)
        elif pair.advance < 0:
            count = 0
        row = pair.next
    return int(count)


@works_on_tables
def pass_host(network: Any, port_row: int, count: int, time: int, events: int) -> None:
    """Periods pass at a host."""
    nic, pairs = network.transport.nics[port_row], network.transport.pairs
    pass_packets(network, nic.answers.head, count, time, events)
    row = nic.head
    while row != NONE:
        pair = pairs[row]
        advance = count * pair.advance
        if pair.refused == pair.expected:
            pair.refused += advance
        pair.sent += advance
        pair.highest += advance
        pair.acknowledged += advance
        pair.expected += advance
        pair.next_ps += time
        pair.refused_ps += time
        row = pair.next
