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
from et_sim.engine.repeats.description import not_described, put
from et_sim.engine.state.run import NONE
from et_sim.network.packet.calendar import delay_all, planned
from et_sim.network.packet.flows import has_figures
from et_sim.network.packet.ports import is_sending
from et_sim.network.packet.records import NEVER
from et_sim.plan.records import record, table

LEAST_ENTRIES, MOST_ENTRIES, ENTRIES_PER_PORT = 1 << 15, 1 << 17, 64  # of a snapshot
LEAST_EVENTS = 512  # before the first snapshot
COUNTED = 6
SEARCH = record(("entries", "i8"), ("compares", "i4"))  # of a comparison


# A function of congestion control. (network): whether its senders may repeat themselves.
may_repeat = chosen_by_tables("may_repeat", "control", not_described)
# Functions of a transport.
# (network, entry, port): describe a host; return the next entry, or NONE for no snapshot.
describe_host = chosen_by_tables("describe_host", "transport", not_described)
# (network, port): record the positions of the messages of a host.
note_host = chosen_by_tables("note_host", "transport", not_described)
# (network, port): the number of periods until a message of a host ends.
periods_left = chosen_by_tables("periods_left", "transport", not_described)
# (network, port, periods, time, events): advance a host by periods.
pass_host = chosen_by_tables("pass_host", "transport", not_described)
# (network, flow): the position of a message, and its advance in a period.
position_of = chosen_by_tables("position_of", "transport", not_described)
advance_of = chosen_by_tables("advance_of", "transport", not_described)


def pictures(ports: int) -> dict[str, Any]:
    """Return arrays for the last snapshot and the counts."""
    entries = min(LEAST_ENTRIES + ENTRIES_PER_PORT * ports, MOST_ENTRIES)
    sizes = {"picture": entries, "counted": ports * COUNTED}
    return {"repeats": table(SEARCH, 1)} | {name: np.zeros(size, np.int64) for name, size in sizes.items()}


@works_on_tables
def restart_search(network: Any) -> None:
    """Start to search for a period after a begin or an end."""
    state = network.state[0]
    state.anchor = NONE
    state.patience = max(LEAST_EVENTS, 8 * len(network.ports))
    state.until_picture = state.patience if may_repeat(network) and network.rules[0].skips_repeats else 0
    if state.logs or has_figures(network) or network.steady[0].known > 0:
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
    network.repeats[0].compares = compares
    state, ports = network.state[0], len(network.ports)
    at = put(network, 0, state.free_packets.rows, state.free_flows.rows, planned(network.calendar))
    at = put(network, at, state.moving, state.random, state.lost, state.resent, state.head, state.current)
    for number in range(ports):
        row = (anchor + number) % ports
        port = network.ports[row]
        at = _describe_flying(network, _describe_port(network, at, row), port)
        for first in (port.flying.head, port.head, port.urgent.head):
            at = describe_packets(network, at, first)
        if port.is_host and at != NONE:
            at = describe_host(network, at, row)
        if at == NONE:
            return False
    return True


@works_on_tables
def _describe_port(network: Any, at: int, row: int) -> int:
    """Describe a port without its packets."""
    state, port = network.state[0], network.ports[row]
    if at == NONE:
        return NONE
    if is_sending(network, port) or port.is_armed:
        at = put(network, at, port.free_ps - state.now_ps, port.free_order - state.order)
    else:
        at = put(network, at, NONE, NONE)
    at = put(network, at, port.is_armed, port.wakes, port.is_paused, port.has_turn, port.pauses)
    if port.wakes:
        at = put(network, at, port.wakes_ps - state.now_ps, port.wakes_order - state.order)
    at = put(network, at, port.paused_since_ps - state.now_ps if port.is_paused else 0)
    at = put(network, at, port.queued, port.waiting, port.packets, port.sending, port.held, port.in_headroom)
    return put(network, at, port.deepest, port.drops, network.devices[port.device].used)


@works_on_tables
def _describe_flying(network: Any, at: int, port: Any) -> int:
    """Describe when the packets on a link land."""
    state, row, time, order = network.state[0], port.flying.head, port.lands_ps, port.lands_order
    while row != NONE and at != NONE:
        at = put(network, at, time - state.now_ps, order - state.order)
        packet = network.packets[row]
        row, time, order = packet.next, packet.lands_ps, packet.order
    return at


@works_on_tables
def describe_packets(network: Any, at: int, first: int) -> int:
    """Describe a list of packets."""
    row = first
    while row != NONE and at != NONE:
        packet = network.packets[row]
        passed = position_of(network, packet.flow) if packet.flow != NONE else packet.sequence
        at = put(network, at, packet.flow, packet.sequence - passed, packet.bytes, packet.port)
        at = put(network, at, packet.payload, packet.hop, packet.kind, packet.is_marked)
        row = packet.next
    return put(network, at, NONE)


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
    delay_all(network.calendar, time, events)
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
