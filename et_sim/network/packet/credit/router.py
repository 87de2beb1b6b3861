"""What a router does in a cycle: which flits go on, over which ports.

A flit may go on when it has been in the router for its pipeline, the port it goes to is free, and a channel
at that port's end has a place for it; the first one of a packet needs a channel of its own there. Of the
channels of each port that comes in, the one whose turn was longest ago proposes its flit; of the proposals
for a port that goes out, the next after the one that had it last is taken. A turn lasts for a packet as long
as that does not have to wait, or for a flit. What a router sends, and the credit that it gives back, is
noticed by others in a later cycle, so that the order in which routers are looked at does not matter.

Messages are cut into packets at their source, put into channels there, and counted at their target. Not here:
when routers are looked at (`model`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.containers import give_row, join, leave, leave_from, put, take_row
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.run import NONE, Run
from et_sim.network.routes import FIRST_PORTS, next_link, next_stop

WORK, LEFT, ARRIVAL = range(3)  # kinds of events: routers work; a message has left; one is at its target
PS_PER_NS = 1000
NEVER = 1 << 60


@works_on_tables
def time_of(run: Run, cycle: int) -> int:
    """When a cycle begins, on the calendar, which counts whole ns or parts of them."""
    settings = run.network.settings[0]
    return (cycle * settings.cycle_ps * settings.units + PS_PER_NS - 1) // PS_PER_NS


@works_on_tables
def now_ps(network: Any, cycle: int) -> int:
    """Return the same in picoseconds."""
    return int(cycle * network.settings[0].cycle_ps)


@works_on_tables
def cycle_length(run: Run) -> float:
    """How much of the calendar's time a cycle takes."""
    settings = run.network.settings[0]
    return settings.cycle_ps * settings.units / PS_PER_NS


@works_on_tables
def cycle_of(run: Run, time: int) -> int:
    """Return the first cycle that does not begin before a time."""
    settings = run.network.settings[0]
    length = settings.cycle_ps * settings.units
    return (time * PS_PER_NS + length - 1) // length


@works_on_tables
def cut(run: Run, message_row: int) -> int:
    """Cut a message into packets, which wait for the first link of their way; returns the row of that."""
    network, message = run.network, run.messages[message_row]
    size = network.settings[0].packet
    message.packets = max((message.bytes + size - 1) // size, 1)
    message.to_start = message.to_leave = message.to_arrive = message.packets
    routes = network.hops.fabric.graph.routes
    stop = next_stop(routes, message.source, message.target)
    device = routes.device_of[message.source]
    message.link = next_link(routes, device, stop, message.source, message.target, FIRST_PORTS)
    join(run.messages, network.waiting[message.link], message_row)
    return int(message.link)


@works_on_tables
def start_packet(run: Run, link_row: int, cycle: int) -> int:
    """Put the next packet that waits for a link into a channel at its source, if there is one of each.

    Returns when it may go on there, or NEVER.
    """
    network = run.network
    waiting, port_row = network.waiting[link_row], len(network.waiting) + link_row
    free = network.free_channels[link_row + len(network.waiting) * network.settings[0].classes]
    if waiting.head == NONE or free.head == NONE:
        return NEVER
    message_row = waiting.head
    message, row = run.messages[message_row], leave(network.channels, free)
    channel, source = network.channels[row], message.source
    _hold(run, row, message_row, _flits_of_next(network, message))
    channel.begins_at = cycle + network.settings[0].router_cycles
    channel.datelines, channel.out = 0, link_row
    channel.stop = next_stop(network.hops.fabric.graph.routes, source, message.target)
    join(network.channels, network.ports[port_row], row)
    message.to_start -= 1
    if message.to_start == 0:
        leave(run.messages, waiting)
    return int(channel.begins_at)


@works_on_tables
def _flits_of_next(network: Any, message: Any) -> int:
    """Of the next packet of a message."""
    settings = network.settings[0]
    size = settings.packet
    if message.to_start == 1 and settings.pads == 0:
        size = max(message.bytes - (message.packets - 1) * size, 1)
    return int((size + settings.flit - 1) // settings.flit)


@works_on_tables
def _hold(run: Run, row: int, message_row: int, flits: int) -> None:
    """A channel is a packet's from now on."""
    channel = run.network.channels[row]
    channel.message, channel.flits, channel.sent, channel.out_channel = message_row, flits, 0, NONE


@works_on_tables
def take_channel(run: Run, before_row: int) -> int:
    """A packet gets the first free channel at the end of the port it goes to; returns that channel."""
    network = run.network
    before = network.channels[before_row]
    port = network.ports[before.out]
    datelines = before.datelines + (port.order < network.ports[before.port].order)
    row = leave(network.channels, network.free_channels[before.out * network.settings[0].classes + datelines])
    _hold(run, row, before.message, before.flits)
    channel, message = network.channels[row], run.messages[before.message]
    channel.datelines, channel.begins_at, channel.stop = datelines, NONE, before.stop
    routes = network.hops.fabric.graph.routes
    if port.target == routes.device_of[message.target]:
        channel.out = 2 * len(network.waiting) + message.target
    else:
        if routes.rank_of[port.target] == channel.stop:
            channel.stop = next_stop(routes, channel.stop, message.target)
        channel.out = next_link(
            routes, port.target, channel.stop, message.source, message.target, FIRST_PORTS
        )
    join(network.channels, port, row)
    return int(row)


@works_on_tables
def packet_left(run: Run, message_row: int, cycle: int) -> bool:
    """A packet has left its source; returns whether it was the last of its message."""
    message = run.messages[message_row]
    message.to_leave -= 1
    if message.to_leave > 0:
        return False
    time = time_of(run, cycle)
    observe.next_event_follows(run, 0, time)
    schedule(run, time, NETWORK + LEFT, message_row, 0, 0)
    return True


@works_on_tables
def packet_arrived(run: Run, message_row: int, cycle: int) -> bool:
    """A packet is at its target; returns whether it was the last of its message."""
    message = run.messages[message_row]
    message.to_arrive -= 1
    run.network.settings[0].arrived += 1
    if message.to_arrive > 0:
        return False
    observe.next_event_flies(run, message.through, message.left_ns, NONE)
    schedule(run, time_of(run, cycle), NETWORK + ARRIVAL, message_row, 0, 0)
    return True


@works_on_tables
def wake(run: Run, device: int, cycle: int) -> None:
    """Look at a router in a cycle, or earlier."""
    if cycle < run.network.wakes_at[device]:
        run.network.wakes_at[device] = cycle
        put(run.network.routers, device, float(cycle), device)


@works_on_tables
def route(run: Run, device: int, cycle: int) -> bool:
    """Let a router work for one cycle; returns whether that put anything on the calendar."""
    network, settings = run.network, run.network.settings[0]
    settings.asked = NONE
    later = NEVER
    for at in range(network.first_port[device], network.first_port[device + 1]):
        later = min(later, _propose(run, network.ports_in[at], at, cycle))
    if settings.asked != NONE:
        later = cycle + 1
    is_news = False
    port_row = settings.asked
    while port_row != NONE:
        after = network.ports[port_row].next_asked
        is_news |= _send(run, port_row, cycle)
        network.ports[port_row].asked_channel = NONE
        port_row = after
    if later < NEVER:
        wake(run, device, later)
    return is_news


@works_on_tables
def _propose(run: Run, port_row: int, at: int, cycle: int) -> int:
    """Find the channel of an incoming port that has its turn; returns when to look again."""
    network = run.network
    later, before, row = NEVER, NONE, network.ports[port_row].head
    while row != NONE:
        channel = network.channels[row]
        can = _can_go_on(run, row, cycle)
        if can <= cycle:
            _ask(network, channel.out, row, before, at)
            return cycle
        later = min(later, can)
        before, row = row, channel.next
    return later


@works_on_tables
def _can_go_on(run: Run, row: int, cycle: int) -> int:
    """Return the cycle in which the next flit of a channel may go on, as far as that is known."""
    network = run.network
    channel = network.channels[row]
    here = channel.begins_at
    if here == NONE:
        flit_row = network.flits_here[row].head
        if flit_row == NONE:
            return NEVER
        here = network.flits[flit_row].at
    if here > cycle:
        return here
    out = network.ports[channel.out]
    if out.free_at > cycle or out.target == NONE:  # no channel is needed to leave the network
        return out.free_at
    if channel.out_channel == NONE:
        datelines = channel.datelines + (out.order < network.ports[channel.port].order)
        free = network.free_channels[channel.out * network.settings[0].classes + datelines].head
        if free != NONE:
            return network.channels[free].free_at
    else:
        _take_credit(network, channel.out_channel, cycle)
        if network.channels[channel.out_channel].credits > 0:
            return cycle
        back = network.credits_back[channel.out_channel].head
        if back != NONE:
            return network.flits[back].at
    out.is_starved = 1
    return NEVER


@works_on_tables
def _take_credit(network: Any, row: int, cycle: int) -> None:
    """Count the places that are known to be free by now."""
    channel, back = network.channels[row], network.credits_back[row]
    while back.head != NONE and network.flits[back.head].at <= cycle:
        _free_first(network, back)
        channel.credits += 1


@works_on_tables
def _ask(network: Any, port_row: int, row: int, before: int, at: int) -> None:
    """A channel proposes its flit for a port."""
    settings, port = network.settings[0], network.ports[port_row]
    if port.asked_channel == NONE:
        port.next_asked = settings.asked
        settings.asked = port_row
    elif not _is_sooner(port.turn, at, port.asked_port):
        return
    port.asked_channel, port.asked_before, port.asked_port = row, before, at


@works_on_tables
def _is_sooner(turn: int, first: int, second: int) -> bool:
    """Return whether one incoming port comes before another, counted from the one after the last turn."""
    if (first > turn) != (second > turn):
        return first > turn
    return first < second


@works_on_tables
def _send(run: Run, port_row: int, cycle: int) -> bool:
    """Move the flit that was chosen for a port; returns whether that put anything on the calendar."""
    network, port = run.network, run.network.ports[port_row]
    row, is_news = port.asked_channel, False
    channel = network.channels[row]
    _give_credit(run, row, cycle)
    channel.sent += 1
    is_last = channel.sent == channel.flits
    is_turn_over = is_last or network.settings[0].turns_of_flits
    port.turn = port.asked_port if is_turn_over else port.asked_port - 1
    port.free_at = cycle + port.cycles
    if port.target != NONE:
        if channel.out_channel == NONE:
            channel.out_channel = take_channel(run, row)
        _put_flit(run, port, channel.out_channel, cycle)
        observe.bytes_wait(network, NONE, port_row, network.settings[0].flit, now_ps(network, cycle))
        _count(run, port_row, port, cycle)
    elif is_last:
        is_news = packet_arrived(run, channel.message, cycle + 1)
    if is_last:
        return _release(run, row, port.asked_before, cycle) or is_news
    if is_turn_over:
        _take_next_turn(network, network.ports[channel.port], row, port.asked_before)
    return is_news


@works_on_tables
def _give_credit(run: Run, row: int, cycle: int) -> None:
    """A flit leaves its place: those who send here hear of it when the wire back has carried that."""
    network = run.network
    channel = network.channels[row]
    if channel.begins_at != NONE:
        return
    port = network.ports[channel.port]
    flit_row = leave(network.flits, network.flits_here[row])
    observe.bytes_go_on(network, NONE, channel.port, network.settings[0].flit, now_ps(network, cycle))
    network.flits[flit_row].at = cycle + 1 + port.latency
    join(network.flits, network.credits_back[row], flit_row)
    if port.is_starved:
        port.is_starved = 0
        wake(run, port.source, cycle + 1 + port.latency)


@works_on_tables
def _put_flit(run: Run, port: Any, row: int, cycle: int) -> None:
    """A flit is on its way to a channel; it may go on there when it has passed the pipeline."""
    network, settings = run.network, run.network.settings[0]
    flit_row = take_row(network.flits, settings.free_flits)
    flit = network.flits[flit_row]
    flit.at = cycle + port.cycles + port.latency + settings.router_cycles
    join(network.flits, network.flits_here[row], flit_row)
    network.channels[row].credits -= 1
    wake(run, port.target, flit.at)


@works_on_tables
def _count(run: Run, port_row: int, port: Any, cycle: int) -> None:
    """A link has carried a flit more."""
    before = port.bytes
    port.bytes += run.network.settings[0].flit
    if observe.is_recording(run):
        length = cycle_length(run)
        begin, end = cycle * length, (cycle + port.cycles) * length
        observe.link_carries(run, port_row, begin, end, float(before), float(port.bytes))


@works_on_tables
def _release(run: Run, row: int, before: int, cycle: int) -> bool:
    """The last flit of a packet has left its channel, which another packet may have when that is known.

    Returns whether that put anything on the calendar.
    """
    network = run.network
    channel = network.channels[row]
    port, links = network.ports[channel.port], len(network.waiting)
    leave_from(network.channels, port, before, row)
    if channel.begins_at == NONE:
        channel.free_at = cycle + 1 + port.latency
        free = channel.port * network.settings[0].classes + channel.datelines
        channel.credits = network.settings[0].buffer
        _forget_credit(network, row)
        join(network.channels, network.free_channels[free], row)
        return False
    link_row = channel.port - links
    join(network.channels, network.free_channels[links * network.settings[0].classes + link_row], row)
    wake(run, port.target, start_packet(run, link_row, cycle + 1))
    return packet_left(run, channel.message, cycle + 1)


@works_on_tables
def _forget_credit(network: Any, row: int) -> None:
    """All places of a channel are known to be free when the whole of it is."""
    back = network.credits_back[row]
    while back.head != NONE:
        _free_first(network, back)


@works_on_tables
def _free_first(network: Any, fifo: Any) -> None:
    """The first flit of a list is history."""
    give_row(network.flits, network.settings[0].free_flits, leave(network.flits, fifo))


@works_on_tables
def _take_next_turn(network: Any, port: Any, row: int, before: int) -> None:
    """A channel had its turn: those that share its port come first."""
    if port.tail != row:
        leave_from(network.channels, port, before, row)
        join(network.channels, port, row)
