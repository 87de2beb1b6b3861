"""Ports: packets wait, are sent one after the other, and are under way.

That a port is free again is an event only if something waits for it: a packet then costs one event per link.
The number of such an event is taken when sending begins, so that it comes in its turn even if it is planned
later. Of one port, the calendar holds the first event only.

Not here: which packet a host sends next (the transports), and which packets a device keeps (`forwarding`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE
from et_sim.network.packet.heap import put, take_out
from et_sim.network.packet.records import NEVER


@works_on_tables
def new_packet(network: Any, kind: int, flow: int, size: int) -> int:
    """A packet that is nowhere yet."""
    state = network.state[0]
    row = state.free_packet
    packet = network.packets[row]
    state.free_packet = packet.next
    state.free_packets -= 1
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
    """A packet is gone."""
    state, packet = network.state[0], network.packets[row]
    if packet.flow != NONE:
        network.flows[packet.flow].packets -= 1
    packet.next = state.free_packet
    state.free_packet = row
    state.free_packets += 1


@works_on_tables
def is_sending(network: Any, port: Any) -> bool:
    """Whether a port is busy, and was when the event under way began."""
    state = network.state[0]
    return bool(
        port.free_ps > state.now_ps or (port.free_ps == state.now_ps and port.free_order > state.now_order)
    )


@works_on_tables
def sending_ps(network: Any, port: Any, size: int) -> int:
    """How long a port takes for so many bytes."""
    if network.rules[0].whole_ns:
        return int(size * 8e9 / port.bits_per_s + 0.5) * 1000
    return int(size * 8e12 / port.bits_per_s + 0.5)


@works_on_tables
def transmit(network: Any, port_row: int, packet_row: int) -> None:
    """A port, which is free, sends a packet."""
    state, port, packet = network.state[0], network.ports[port_row], network.packets[packet_row]
    length = sending_ps(network, port, packet.bytes)
    port.free_ps = state.now_ps + length
    port.free_order = state.order
    packet.arrives_ps = port.free_ps + port.delay_ps
    packet.order = state.order + 1
    state.order += 2
    packet.next = NONE
    if port.flying_tail == NONE:
        port.flying = packet_row
    else:
        network.packets[port.flying_tail].next = packet_row
    port.flying_tail = packet_row
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
    """Something waits for a port that is sending."""
    port = network.ports[port_row]
    if port.is_armed == 0:
        port.is_armed = 1
        plan_port(network, port_row)


@works_on_tables
def wake_at(network: Any, port_row: int, time: int) -> None:
    """A port looks at this time whether there is something to send."""
    state, port = network.state[0], network.ports[port_row]
    port.wakes = 1
    port.wakes_ps, port.wakes_order = time, state.order
    state.order += 1
    plan_port(network, port_row)


@works_on_tables
def plan_port(network: Any, port_row: int) -> None:
    """Put the first event of a port on the calendar; that of the source under way is put there later."""
    if network.state[0].current != port_row:
        set_plan(network, port_row)


@works_on_tables
def set_plan(network: Any, port_row: int) -> None:
    """The same, at once."""
    port = network.ports[port_row]
    time, order = NEVER, 0
    if port.flying != NONE:
        packet = network.packets[port.flying]
        time, order = packet.arrives_ps, packet.order
    if port.is_armed and (port.free_ps < time or (port.free_ps == time and port.free_order < order)):
        time, order = port.free_ps, port.free_order
    if port.wakes and (port.wakes_ps < time or (port.wakes_ps == time and port.wakes_order < order)):
        time, order = port.wakes_ps, port.wakes_order
    if time == NEVER:
        take_out(network, port_row)
    else:
        put(network, port_row, time, order)


@works_on_tables
def land(network: Any, port: Any) -> int:
    """The packet that has arrived at the far end of a link."""
    row = port.flying
    port.flying = network.packets[row].next
    if port.flying == NONE:
        port.flying_tail = NONE
    return row


@works_on_tables
def enqueue(network: Any, port: Any, packet_row: int) -> None:
    """A packet waits for a port."""
    packet = network.packets[packet_row]
    packet.next = NONE
    if port.tail == NONE:
        port.head = packet_row
    else:
        network.packets[port.tail].next = packet_row
    port.tail = packet_row
    port.packets += 1
    port.queued += packet.bytes
    port.waiting += packet.bytes
    if port.waiting > port.deepest:
        port.deepest, port.deepest_ps = port.waiting, network.state[0].now_ps


@works_on_tables
def dequeue(network: Any, port: Any) -> int:
    """The packet that waited longest."""
    row = port.head
    packet = network.packets[row]
    port.head = packet.next
    if port.head == NONE:
        port.tail = NONE
    port.packets -= 1
    port.queued -= packet.bytes
    port.waiting -= packet.bytes
    return row


@works_on_tables
def enqueue_urgent(network: Any, port: Any, packet_row: int) -> None:
    """A pause, or resumption, waits for a port."""
    packet = network.packets[packet_row]
    packet.next = NONE
    if port.urgent_tail == NONE:
        port.urgent = packet_row
    else:
        network.packets[port.urgent_tail].next = packet_row
    port.urgent_tail = packet_row
    port.queued += packet.bytes


@works_on_tables
def dequeue_urgent(network: Any, port: Any) -> int:
    """The one that waited longest."""
    row = port.urgent
    packet = network.packets[row]
    port.urgent = packet.next
    if port.urgent == NONE:
        port.urgent_tail = NONE
    port.queued -= packet.bytes
    return row
