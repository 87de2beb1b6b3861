"""Kernel of the packet model: events of packets in the order of time and of planning.

The kernel is independent of the engine: it runs until a time, or until a message has arrived or left. Devices
forward packets, and pause the devices before them. Pauses overtake all packets, and hold until they are
withdrawn.

With priority flow control, a device counts the bytes that arrived over each of its links. They use a reserve
of the link, then a part of the shared buffer, and then headroom for the bytes in flight until the sender has
received the pause. A packet is lost only if no headroom is left. Without it, a packet is lost if the queue of
its port is full, or takes more than its part of the shared buffer.

The transports decide what hosts send.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.decorators import prefetch
from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.containers import NONE, leave
from et_sim.engine.observe import facade as observe
from et_sim.network.packet.broken import lose
from et_sim.network.packet.calendar import first_source, order_of, time_of
from et_sim.network.packet.ports import (
    arm,
    dequeue,
    dequeue_urgent,
    enqueue,
    enqueue_urgent,
    is_sending,
    new_packet,
    release_packet,
    set_plan,
    transmit,
)
from et_sim.network.packet.randomness import drawn
from et_sim.network.packet.records import DATA, PAUSE, RESUME
from et_sim.network.packet.repeats import look, restart_search


@works_on_tables
def admits(network: Any, packet: Any, port: Any) -> bool:
    """Return whether a device has space for a packet that leaves over a port, and count the packet if so."""
    rules = network.rules[0]
    device = network.devices[port.device]
    if rules.pauses == 0:
        return _fits(network, packet, port, device)
    came = network.ports[packet.port]
    size = packet.bytes
    threshold = _threshold(device, came)
    if size + came.in_headroom > came.headroom and size + _shared(rules, came) > threshold:
        return False
    held = came.held + size
    if held <= rules.reserve:
        came.held = held
    elif held - rules.reserve > threshold:
        came.in_headroom += size
    else:
        came.held = held
        device.used += min(size, held - rules.reserve)
    return True


@works_on_tables
def _fits(network: Any, packet: Any, port: Any, device: Any) -> bool:
    rules, size = network.rules[0], packet.bytes
    held = port.waiting + size
    if rules.counts_sending and is_sending(network, port):
        held += port.sending
    if port.packets >= rules.queue_packets or held > rules.queue_bytes:
        return False
    if held > rules.random_from and drawn(network) < rules.random_drop:
        return False
    if port.waiting + size > rules.share * (device.shared - device.used):
        return False
    device.used += size
    return True


@works_on_tables
def releases(network: Any, packet: Any, port: Any) -> None:
    """Release the buffer of a packet that leaves a device over a port."""
    rules = network.rules[0]
    device = network.devices[port.device]
    if rules.pauses == 0:
        device.used -= packet.bytes
        return
    came = network.ports[packet.port]
    from_headroom = min(came.in_headroom, packet.bytes)
    from_shared = min(packet.bytes - from_headroom, _shared(rules, came))
    came.in_headroom -= from_headroom
    came.held -= packet.bytes - from_headroom
    device.used -= from_shared


@works_on_tables
def must_pause(network: Any, came: Any) -> bool:
    """Return whether the sending end of a link has to pause."""
    if came.pauses:
        return False
    if came.in_headroom > 0:
        return True
    return bool(_shared(network.rules[0], came) >= _threshold(network.devices[came.to], came))


@works_on_tables
def may_resume(network: Any, came: Any) -> bool:
    """Return whether the sending end of a link may resume."""
    rules = network.rules[0]
    if came.pauses == 0 or came.in_headroom > 0:
        return False
    shared = _shared(rules, came)
    return bool(shared == 0 or shared + rules.resume_below <= _threshold(network.devices[came.to], came))


@works_on_tables
def _threshold(device: Any, came: Any) -> int:
    """Return how much of the shared buffer the bytes that came over one link may use."""
    return max(device.shared - device.used, 0) >> came.shift


@works_on_tables
def _shared(rules: Any, came: Any) -> int:
    return max(came.held - rules.reserve, 0)


@works_on_tables
def is_marked(network: Any, port: Any) -> bool:
    """Return whether a packet that leaves a queue is marked, depending on the bytes left in the queue."""
    if port.waiting > port.all_marked:
        return True
    if port.waiting <= port.least_marked:
        return False
    part = (port.waiting - port.least_marked) / (port.all_marked - port.least_marked)
    return drawn(network) < port.marked_at_most * part


PAUSE_BYTES = 31

# Functions of transports, in the module of their tables (`PacketTables.transport`).
next_packet = chosen_by_tables("next_packet", "transport")
# (network, port): whether a host may have a packet when the port is free.
wants_port = chosen_by_tables("wants_port", "transport")
# (network, packet): handle a packet at its target.
received = chosen_by_tables("received", "transport")


@works_on_tables
def _notes_nothing(_network: Any, _packet_row: int, _port: Any) -> None:
    """Record nothing."""


# (network, packet, port): record the state of a port in a data packet that leaves it, for congestion control.
passes = chosen_by_tables("passes", "control", _notes_nothing)


@works_on_tables
def packet_lands(network: Any, port_row: int) -> None:
    """Handle a packet at the far end of a link."""
    port = network.ports[port_row]
    row = leave(network.packets, port.flying)
    packet = network.packets[row]
    port.lands_ps, port.lands_order = packet.lands_ps, packet.order
    if len(network.fails) > 0 and network.dead[port_row]:
        lose(network, port_row, row)
        return
    if packet.kind >= PAUSE:
        _apply_pause(network, port.back, int(packet.kind == PAUSE))
        release_packet(network, row)
        return
    packet.hop += 1
    packet.port = port_row
    out = network.ways[packet.flow * network.stride[0] + packet.hop]
    if out == NONE:
        received(network, row)
    else:
        _forward(network, row, out)


@works_on_tables
def _apply_pause(network: Any, port_row: int, is_pause: int) -> None:
    """Pause a port, or end a pause."""
    port, now = network.ports[port_row], network.state[0].now_ps
    if is_pause:
        port.paused += 1
        if port.is_paused == 0:
            port.paused_since_ps = now
            observe.pause_begins(network, port_row, now)
        port.is_paused = 1
        return
    if port.is_paused:
        port.paused_ps += now - port.paused_since_ps
        observe.pause_ends(network, port_row, now)
    port.is_paused = 0
    send_next(network, port_row)


@works_on_tables
def _forward(network: Any, packet_row: int, out: int) -> None:
    """Queue a packet for the next port if the device has space for it, else drop it."""
    packet, port = network.packets[packet_row], network.ports[out]
    if not admits(network, packet, port):
        port.drops += 1
        network.state[0].lost += 1
        observe.packet_lost(network, out, network.state[0].now_ps)
        release_packet(network, packet_row)
        return
    observe.bytes_wait(network, packet.port, out, packet.bytes, network.state[0].now_ps)
    if network.rules[0].pauses:
        came = network.ports[packet.port]
        if must_pause(network, came):
            came.pauses = 1
            observe.pause_requested(network, packet.port, came.to, network.state[0].now_ps)
            _send_pause(network, came.back, PAUSE)
    enqueue(network, port, packet_row)
    send_next(network, out)


@works_on_tables
def _send_pause(network: Any, port_row: int, kind: int) -> None:
    """Send a pause, or its end, back over a link."""
    port = network.ports[port_row]
    row = new_packet(network, kind, NONE, PAUSE_BYTES)
    if network.rules[0].as_ns3:
        drawn(network)  # for an identification
    if is_sending(network, port):
        enqueue_urgent(network, port, row)
        arm(network, port_row)
    else:  # nothing urgent waits for a port that is free
        transmit(network, port_row, row)
        _arm_if_wanted(network, port_row)


@works_on_tables
def send_next(network: Any, port_row: int) -> None:
    """Send the next packet of a port if the port is free."""
    port = network.ports[port_row]
    if is_sending(network, port):
        if port.is_armed == 0 and _is_wanted(network, port_row):
            arm(network, port_row)
        return
    if port.urgent.head != NONE:
        row = dequeue_urgent(network, port)
    elif port.is_host == 0:
        row = _next_in_queue(network, port_row)
    else:
        row = _next_of_host(network, port_row)
    if row != NONE:
        transmit(network, port_row, row)
        _arm_if_wanted(network, port_row)


@works_on_tables
def _arm_if_wanted(network: Any, port_row: int) -> None:
    if _is_wanted(network, port_row):
        arm(network, port_row)


@works_on_tables
def _is_wanted(network: Any, port_row: int) -> bool:
    """Return whether something waits for a port."""
    port = network.ports[port_row]
    if port.urgent.head != NONE or port.head != NONE:
        return True
    return bool(port.is_host and wants_port(network, port_row))


@works_on_tables
def _next_in_queue(network: Any, port_row: int) -> int:
    """Take the first packet of a port's queue out of the queue and the buffer."""
    port = network.ports[port_row]
    if port.head == NONE or port.is_paused:
        return NONE
    row = dequeue(network, port)
    packet, rules = network.packets[row], network.rules[0]
    releases(network, packet, port)
    observe.bytes_go_on(network, packet.port, port_row, packet.bytes, network.state[0].now_ps)
    if rules.marks and is_marked(network, port) and packet.kind == DATA:
        packet.is_marked = 1
        port.marks += 1
        observe.packet_marked(network, port_row, network.state[0].now_ps)
    if rules.pauses:
        came = network.ports[packet.port]
        if may_resume(network, came):
            came.pauses = 0
            _send_pause(network, came.back, RESUME)
    if packet.kind == DATA:
        passes(network, row, port)
    return row


@works_on_tables
def _next_of_host(network: Any, port_row: int) -> int:
    """Return the next packet of a host, which alternates between forwarded and own packets."""
    port = network.ports[port_row]
    if port.head == NONE:
        return next_packet(network, port_row)
    row = NONE
    if port.has_turn:
        row = next_packet(network, port_row)
        port.has_turn = 0
    if row == NONE:
        row = _next_in_queue(network, port_row)
        port.has_turn = 1
    if row == NONE:
        row = next_packet(network, port_row)
    return row


EVENTS_AT_ONCE = 256
PREFETCHED = 6  # next ports of the calendar that are prefetched
PACKETS_PER_EVENT = 8  # limit of packets that an event makes or sends

# (network, timer): handle a timer of a transport.
timer_rings = chosen_by_tables("timer_rings", "transport")


@works_on_tables
def go_on(network: Any, until_ps: int) -> None:
    """Process events until a time, or a part of them."""
    state = network.state[0]
    ports = len(network.ports)
    for _ in range(EVENTS_AT_ONCE):
        if state.moving == 0 or state.free_packets.rows < network.spare[0]:
            return
        if observe.queue_rows_left(network) == 0:
            return
        source = first_source(network.calendar)
        first_ps = time_of(network.calendar, source)
        if first_ps > until_ps:
            return
        state.now_ps, state.now_order = first_ps, order_of(network.calendar, source)
        _prefetch(network)
        if source < ports:
            state.current = source
            _port_event(network, source)
            state.current = NONE
            set_plan(network, source)
        else:
            timer_rings(network, source - ports)
        if state.arrived != NONE or state.left != NONE:
            restart_search(network)
            return
        if state.until_picture > 0:
            look(network, source, until_ps)


@works_on_tables
def _prefetch(network: Any) -> None:
    """Load the ports of the next events, and the packets that land, into the cache."""
    heap = network.calendar.ports
    if heap.size[0] <= PREFETCHED:
        return
    for at in range(1, PREFETCHED + 1):
        source = heap.entries[at].row
        if at <= 2:
            port = network.ports[source]
            prefetch(network.packets, port.flying.head)
            if port.is_armed:
                prefetch(network.packets, port.head)
        else:
            prefetch(network.ports, source)


@works_on_tables
def _port_event(network: Any, port_row: int) -> None:
    """Handle a packet that lands, a free port, or a port that wakes."""
    state, port = network.state[0], network.ports[port_row]
    if port.is_armed and port.free_order == state.now_order:
        port.is_armed = 0
        send_next(network, port_row)
    elif port.wakes and port.wakes_order == state.now_order:
        port.wakes = 0
        send_next(network, port_row)
    else:
        packet_lands(network, port_row)


@works_on_tables
def next_ps(network: Any) -> int:
    """Return the time of the next event, or NONE."""
    if network.state[0].moving == 0:
        return NONE
    return time_of(network.calendar, first_source(network.calendar))
