"""Ports: packets wait, are sent one after the other, and travel over the link.

A port that becomes free is an event only if something waits for it, so a packet costs one event per link. The
number of that event is taken when sending begins, which keeps its order even if it is planned later. The
calendar holds only the first event of a port. The port holds when the first packet on its link lands, and
each packet holds when the next one does, so no packet has to be read before it lands.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.containers import NONE, give_row, join, leave, take_row
from et_sim.network.packet.calendar import drop, is_planned, set_event
from et_sim.network.packet.records import NEVER


@works_on_tables
def _never(_network: Any, _timer: int) -> bool:
    return False


# (network, timer): whether a timer sends no packet. While a timer is set, its transport adjusts `moving` when
# that changes.
sends_nothing = chosen_by_tables("sends_nothing", "transport", _never)


@works_on_tables
def _moves(network: Any, source: int) -> int:
    """Return whether an event may move packets: an event of a port, or of a timer that may send."""
    ports = len(network.ports)
    return int(source < ports or not sends_nothing(network, source - ports))


@works_on_tables
def plan_event(network: Any, source: int, time: int, order: int) -> None:
    """Set the next event of a source."""
    state = network.state[0]
    if not is_planned(network.calendar, source):
        state.moving += _moves(network, source)
    set_event(network.calendar, source, time, order, state.now_ps)


@works_on_tables
def drop_event(network: Any, source: int) -> None:
    """Remove the next event of a source, if it has one."""
    if is_planned(network.calendar, source):
        drop(network.calendar, source)
        network.state[0].moving -= _moves(network, source)


@works_on_tables
def ring_at(network: Any, timer: int, time: int) -> None:
    """Set a timer of a transport to this time."""
    state = network.state[0]
    plan_event(network, len(network.ports) + timer, time, state.order)
    state.order += 1


@works_on_tables
def stop(network: Any, timer: int) -> None:
    """Stop a timer if it is set."""
    drop_event(network, len(network.ports) + timer)


@works_on_tables
def is_set(network: Any, timer: int) -> bool:
    """Return whether a timer is set."""
    return is_planned(network.calendar, len(network.ports) + timer)


@works_on_tables
def new_packet(network: Any, kind: int, flow: int, size: int) -> int:
    """Return a new packet."""
    state = network.state[0]
    row = take_row(network.packets, state.free_packets)
    packet = network.packets[row]
    packet.kind, packet.flow, packet.bytes = kind, flow, size
    packet.is_marked = packet.payload = packet.hop = 0
    packet.sequence = 0
    packet.port = NONE
    packet.sent_ps = state.now_ps
    if flow != NONE:
        network.flows[flow].packets += 1
    return row


@works_on_tables
def release_packet(network: Any, row: int) -> None:
    """Release a packet."""
    flow = network.packets[row].flow
    if flow != NONE:
        network.flows[flow].packets -= 1
    give_row(network.packets, network.state[0].free_packets, row)


@works_on_tables
def is_sending(network: Any, port: Any) -> bool:
    """Return whether a port is busy, and was when the present event began."""
    state = network.state[0]
    return bool(
        port.free_ps > state.now_ps or (port.free_ps == state.now_ps and port.free_order > state.now_order)
    )


@works_on_tables
def sending_ps(network: Any, port: Any, size: int) -> int:
    """Return how long a port takes to send these bytes."""
    return rate_ps(network, port.bits_per_s, size)


@works_on_tables
def rate_ps(network: Any, rate: int, size: int) -> int:
    """Return how long these bytes take at a rate."""
    if network.rules[0].whole_ns:
        return int(size * 8e9 / rate + 0.5) * 1000
    return int(size * 8e12 / rate + 0.5)


@works_on_tables
def transmit(network: Any, port_row: int, packet_row: int) -> None:
    """Send a packet over a free port."""
    state, port, packet = network.state[0], network.ports[port_row], network.packets[packet_row]
    length = sending_ps(network, port, packet.bytes)
    port.free_ps = state.now_ps + length
    port.free_order = state.order
    lands_ps, order = port.free_ps + port.delay_ps, state.order + 1
    if port.flying.head == NONE:
        port.lands_ps, port.lands_order = lands_ps, order
    else:
        last = network.packets[port.flying.tail]
        last.lands_ps, last.order = lands_ps, order
    state.order += 2
    join(network.packets, port.flying, packet_row)
    port.sending = packet.bytes
    port.bytes += packet.bytes
    port.busy_ps += length
    port.carried_packets += 1
    if state.logs:
        sending = network.log[state.logged]
        state.logged += 1
        sending.begin_ps, sending.end_ps = state.now_ps, port.free_ps
        sending.port, sending.bytes = port_row, packet.bytes
    plan_port(network, port_row)


@works_on_tables
def arm(network: Any, port_row: int) -> None:
    """Plan an event for when a busy port is free."""
    port = network.ports[port_row]
    if port.is_armed == 0:
        port.is_armed = 1
        plan_port(network, port_row)


@works_on_tables
def wake_at(network: Any, port_row: int, time: int) -> None:
    """Make a port check at this time whether there is something to send."""
    state, port = network.state[0], network.ports[port_row]
    port.wakes = 1
    port.wakes_ps, port.wakes_order = time, state.order
    state.order += 1
    plan_port(network, port_row)


@works_on_tables
def plan_port(network: Any, port_row: int) -> None:
    """Put the first event of a port on the calendar, unless its event is being processed, which does so
    later.
    """
    if network.state[0].current != port_row:
        set_plan(network, port_row)


@works_on_tables
def set_plan(network: Any, port_row: int) -> None:
    """Put the first event of a port on the calendar at once."""
    port = network.ports[port_row]
    time, order = NEVER, 0
    if port.flying.head != NONE:
        time, order = port.lands_ps, port.lands_order
    if port.is_armed and (port.free_ps < time or (port.free_ps == time and port.free_order < order)):
        time, order = port.free_ps, port.free_order
    if port.wakes and (port.wakes_ps < time or (port.wakes_ps == time and port.wakes_order < order)):
        time, order = port.wakes_ps, port.wakes_order
    if time == NEVER:
        drop_event(network, port_row)
    else:
        plan_event(network, port_row, time, order)


@works_on_tables
def enqueue(network: Any, port: Any, packet_row: int) -> None:
    """Put a packet in the queue of a port."""
    packet = network.packets[packet_row]
    join(network.packets, port, packet_row)
    port.packets += 1
    port.queued += packet.bytes
    port.waiting += packet.bytes
    if port.waiting > port.deepest:
        port.deepest, port.deepest_ps = port.waiting, network.state[0].now_ps


@works_on_tables
def dequeue(network: Any, port: Any) -> int:
    """Remove and return the first packet of a queue."""
    row = leave(network.packets, port)
    packet = network.packets[row]
    port.packets -= 1
    port.queued -= packet.bytes
    port.waiting -= packet.bytes
    return row


@works_on_tables
def enqueue_urgent(network: Any, port: Any, packet_row: int) -> None:
    """Queue a pause, or its end, at a port."""
    join(network.packets, port.urgent, packet_row)
    port.queued += network.packets[packet_row].bytes


@works_on_tables
def dequeue_urgent(network: Any, port: Any) -> int:
    """Remove and return the first queued pause."""
    row = leave(network.packets, port.urgent)
    port.queued -= network.packets[row].bytes
    return row
