"""Repeats: periods of long messages on an undisturbed network are skipped.

While long messages are sent, the state is often periodic: after some time it is the same, but later by a
period, and each message has advanced by as many bytes. Every rule of the kernel depends on differences of
times, positions and numbers of events, never on their values. So the period repeats until a message reaches
its last packet, or another event comes. All these periods are skipped at once, with the results of single
packets to the picosecond. A lone message is the simplest case.

Sometimes a snapshot is taken of all state that determines what follows, relative to the present. At the next
event of the same port, the state is compared with it. Random numbers and losses end a period. Nothing is
skipped where links, ports or causes are recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.state.run import NONE
from et_sim.network.packet.flows import has_figures
from et_sim.network.packet.ports import is_sending
from et_sim.network.packet.records import NEVER

LEAST_ENTRIES, MOST_ENTRIES, ENTRIES_PER_PORT = 1 << 15, 1 << 17, 64  # of a snapshot
LEAST_EVENTS = 512  # before the first snapshot
PER_PORT, PER_PACKET = 16, 8
STATE_ENTRIES, COUNTED = 9, 6


@works_on_tables
def _never(_network: Any) -> bool:
    """Return false: the rates of senders depend on the times of packets."""
    return False


@works_on_tables
def _no_picture(_network: Any, _picture: Any, _at: int, _port_row: int) -> int:
    return NONE


@works_on_tables
def _nothing(_network: Any, _row: int) -> int:
    return 0


@works_on_tables
def _nothing_passes(_network: Any, _port_row: int, _count: int, _time: int, _events: int) -> None:
    return


# A function of congestion control. (network): whether its senders may repeat themselves.
may_repeat = chosen_by_tables("may_repeat", "control", _never)
# Functions of a transport.
# (network, picture, entry, port): describe a host; return the next entry, or NONE for no snapshot.
describe_host = chosen_by_tables("describe_host", "transport", _no_picture)
# (network, port): record the positions of the messages of a host.
note_host = chosen_by_tables("note_host", "transport", _nothing)
# (network, port): the number of periods until a message of a host ends.
periods_left = chosen_by_tables("periods_left", "transport", _nothing)
# (network, port, periods, time, events): advance a host by periods.
pass_host = chosen_by_tables("pass_host", "transport", _nothing_passes)
# (network, flow): the position of a message, and its advance in a period.
position_of = chosen_by_tables("position_of", "transport", _nothing)
advance_of = chosen_by_tables("advance_of", "transport", _nothing)


def pictures(ports: int) -> dict[str, Any]:
    """Return arrays for the last snapshot, the present one, and the counts."""
    entries = min(LEAST_ENTRIES + ENTRIES_PER_PORT * ports, MOST_ENTRIES)
    sizes = {"picture": entries, "present": entries, "counted": ports * COUNTED}
    return {name: np.zeros(size, np.int64) for name, size in sizes.items()}


@works_on_tables
def restart_search(network: Any) -> None:
    """Start to search for a period after a begin or an end."""
    state = network.state[0]
    state.anchor = NONE
    state.patience = max(LEAST_EVENTS, 8 * len(network.ports))
    state.until_picture = state.patience if may_repeat(network) and network.rules[0].skips_repeats else 0
    if state.logs or has_figures(network):
        state.until_picture = 0


@works_on_tables
def look(network: Any, source: int, until_ps: int) -> None:
    """Take a snapshot after an event, or compare with the last one and skip periods."""
    state = network.state[0]
    state.until_picture -= 1
    if state.until_picture == 0:
        live = 4 * (len(network.packets) - state.free_packets.rows)
        if state.patience < live:
            state.until_picture = state.patience = live
            return
        state.patience *= 2
        state.until_picture = state.patience
        state.anchor = NONE
        if source >= len(network.ports):
            state.until_picture = 1
        elif _describe(network, source, False):
            state.anchor = source
            _note_counted(network)
    elif source == state.anchor and state.picture_ps < state.now_ps and _describe(network, source, True):
        _pass_periods(network, until_ps)
        state.anchor = NONE


@works_on_tables
def _describe(network: Any, anchor: int, compares: bool) -> bool:
    """Take a snapshot, or return whether the state equals the last one."""
    picture, ports = network.present if compares else network.picture, len(network.ports)
    at = _describe_state(network, picture)
    if compares and _differs(network, 0, at):
        return False
    for number in range(ports):
        row = (anchor + number) % ports
        begin = at
        at = _describe_port(network, picture, at, row)
        if at == NONE or (compares and _differs(network, begin, at)):
            return False
        begin = at
        port = network.ports[row]
        at = _describe_flying(network, picture, at, port)
        for first in (port.flying.head, port.head, port.urgent.head):
            at = describe_packets(network, picture, at, first)
        if port.is_host and at != NONE:
            at = describe_host(network, picture, at, row)
        if at == NONE or (compares and _differs(network, begin, at)):
            return False
    return True


@works_on_tables
def _differs(network: Any, begin: int, end: int) -> bool:
    picture, present, at = network.picture, network.present, begin
    while at < end and picture[at] == present[at]:
        at += 1
    return bool(at < end)


@works_on_tables
def _describe_state(network: Any, picture: Any) -> int:
    state = network.state[0]
    picture[0], picture[1] = state.free_packets.rows, network.calendar.size[0]
    picture[2], picture[3] = state.moving, state.free_flows.rows
    picture[4], picture[5], picture[6] = state.random, state.lost, state.resent
    picture[7], picture[8] = state.head, state.current
    return STATE_ENTRIES


@works_on_tables
def _describe_port(network: Any, picture: Any, at: int, row: int) -> int:
    """Describe a port without its packets; return the next entry, or NONE if there is no space."""
    state, port = network.state[0], network.ports[row]
    if at + PER_PORT > len(picture):
        return NONE
    now = state.now_ps
    picture[at] = port.free_ps - now if is_sending(network, port) or port.is_armed else -1
    picture[at + 1] = port.free_order - state.order if picture[at] >= 0 else 0
    picture[at + 2] = port.wakes_ps - now if port.wakes else -1
    picture[at + 3] = port.wakes_order - state.order if port.wakes else 0
    picture[at + 4] = (
        port.is_armed + 2 * port.wakes + 4 * port.is_paused + 8 * port.has_turn + 16 * port.pauses
    )
    picture[at + 5] = port.paused_since_ps - now if port.is_paused else 0
    picture[at + 6], picture[at + 7], picture[at + 8] = port.queued, port.waiting, port.packets
    picture[at + 9], picture[at + 10], picture[at + 11] = port.sending, port.held, port.in_headroom
    picture[at + 12], picture[at + 13] = port.deepest, port.drops
    picture[at + 14], picture[at + 15] = network.devices[port.device].used, port.pauses
    return at + PER_PORT


@works_on_tables
def _describe_flying(network: Any, picture: Any, at: int, port: Any) -> int:
    """Describe when the packets on a link land; return the next entry, or NONE if there is no space."""
    state, row, time, order = network.state[0], port.flying.head, port.lands_ps, port.lands_order
    while row != NONE and at != NONE:
        if at + 2 >= len(picture):
            return NONE
        picture[at], picture[at + 1] = time - state.now_ps, order - state.order
        at += 2
        packet = network.packets[row]
        row, time, order = packet.next, packet.lands_ps, packet.order
    return at


@works_on_tables
def describe_packets(network: Any, picture: Any, at: int, first: int) -> int:
    """Describe a list of packets; return the next entry, or NONE if there is no space."""
    if at == NONE or at + 1 >= len(picture):
        return NONE
    row = first
    while row != NONE:
        if at + PER_PACKET >= len(picture):
            return NONE
        packet = network.packets[row]
        picture[at] = packet.flow
        picture[at + 1] = packet.sequence - position_of(network, packet.flow) if packet.flow != NONE else 0
        picture[at + 2], picture[at + 3] = packet.bytes, packet.port
        picture[at + 4], picture[at + 5], picture[at + 6] = packet.payload, packet.hop, packet.kind
        picture[at + 7] = packet.is_marked
        at += PER_PACKET
        row = packet.next
    picture[at] = NONE
    return at + 1


@works_on_tables
def _note_counted(network: Any) -> None:
    """Record the counts, from which the increase per period follows."""
    state = network.state[0]
    state.picture_ps, state.picture_order = state.now_ps, state.order
    state.picture_sent, state.picture_returned = state.sent, state.returned
    for row in range(len(network.ports)):
        port, counted, at = network.ports[row], network.counted, row * COUNTED
        counted[at], counted[at + 1], counted[at + 2] = port.bytes, port.busy_ps, port.carried_packets
        counted[at + 3], counted[at + 4], counted[at + 5] = port.marks, port.paused, port.paused_ps
        if port.is_host:
            note_host(network, row)


@works_on_tables
def _pass_periods(network: Any, until_ps: int) -> None:
    """Skip the periods before the next other event."""
    state = network.state[0]
    period, orders = state.now_ps - state.picture_ps, state.order - state.picture_order
    count = min((until_ps - state.now_ps) // period, (NEVER - state.now_ps) // period // 4)
    for row in range(len(network.ports)):
        if network.ports[row].is_host:
            count = min(count, periods_left(network, row))
    if count <= 0:
        return
    time, events = count * period, count * orders
    for row in range(len(network.ports)):
        _pass_port(network, row, count, time, events)
    for row in range(len(network.ports)):
        if network.ports[row].is_host:
            pass_host(network, row, count, time, events)
    for at in range(network.calendar.size[0]):
        network.calendar.entries[at].key += time
        network.calendar.entries[at].tie += events
    state.now_ps += time
    state.now_order += events
    state.order += events
    packets = count * (state.sent - state.picture_sent)
    state.sent += packets
    state.skipped += packets
    state.returned += count * (state.returned - state.picture_returned)


@works_on_tables
def _pass_port(network: Any, row: int, count: int, time: int, events: int) -> None:
    """Advance a port by periods."""
    port, counted, at = network.ports[row], network.counted, row * COUNTED
    if port.free_ps != NONE:
        port.free_ps += time
        port.free_order += events
    port.wakes_ps += time
    port.wakes_order += events
    port.lands_ps += time
    port.lands_order += events
    port.paused_since_ps += time
    port.bytes += count * (port.bytes - counted[at])
    port.busy_ps += count * (port.busy_ps - counted[at + 1])
    port.carried_packets += count * (port.carried_packets - counted[at + 2])
    port.marks += count * (port.marks - counted[at + 3])
    port.paused += count * (port.paused - counted[at + 4])
    port.paused_ps += count * (port.paused_ps - counted[at + 5])
    for first in (port.flying.head, port.head, port.urgent.head):
        pass_packets(network, first, count, time, events)


@works_on_tables
def pass_packets(network: Any, first: int, count: int, time: int, events: int) -> None:
    """Advance the times and positions of a list of packets."""
    row = first
    while row != NONE:
        packet = network.packets[row]
        packet.lands_ps += time
        packet.order += events
        packet.sent_ps += time
        if packet.flow != NONE:
            packet.sequence += count * advance_of(network, packet.flow)
        row = packet.next
