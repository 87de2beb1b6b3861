"""Routers: which flits move in a cycle, and over which ports.

A flit may move when it has passed the pipeline of the router, its next port is free, and a channel at that
port's end has a place for it; the first flit of a packet needs a channel of its own. Among the channels of an
incoming port, the one whose turn is longest ago proposes its flit. Among the proposals for an outgoing port,
the next after the last user is taken. A turn lasts for a packet as long as that does not wait, or for a flit.
Other routers see sent flits and returned credits only in a later cycle, so the order of routers has no
effect.

Messages are cut into packets and put into channels at their source, and counted at their target.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.containers import give_row, join, leave, leave_from, put, take_row
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.run import NONE, Run
from et_sim.network.routes import next_link, next_stop
from et_sim.network.ways import FIRST_PORTS

WORK, LEFT, ARRIVAL = range(3)  # kinds of events: routers work; a message has left; one is at its target
PS_PER_NS = 1000
NEVER = 1 << 60


@works_on_tables
def time_of(run: Run, cycle: int) -> int:
    """Return when a cycle begins on the calendar, which counts ns or parts of them."""
    settings = run.network.settings[0]
    return (cycle * settings.cycle_ps * settings.units + PS_PER_NS - 1) // PS_PER_NS


@works_on_tables
def now_ps(network: Any, cycle: int) -> int:
    """Return when a cycle begins in picoseconds."""
    return int(cycle * network.settings[0].cycle_ps)


@works_on_tables
def cycle_length(run: Run) -> float:
    """Return the length of a cycle in the calendar's unit."""
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
    """Cut a message into packets, which wait for its first link; return the row of that link."""
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
    """Put the next packet that waits for a link into a free channel at its source, if there are both.

    Return when it may move on there, or NEVER.
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
    """Return the number of flits of the next packet of a message."""
    settings = network.settings[0]
    size = settings.packet
    if message.to_start == 1 and settings.pads == 0:
        size = max(message.bytes - (message.packets - 1) * size, 1)
    return int((size + settings.flit - 1) // settings.flit)


@works_on_tables
def _hold(run: Run, row: int, message_row: int, flits: int) -> None:
    """Assign a channel to a packet."""
    channel = run.network.channels[row]
    channel.message, channel.flits, channel.sent, channel.out_channel = message_row, flits, 0, NONE


@works_on_tables
def take_channel(run: Run, before_row: int) -> int:
    """Give a packet the first free channel at the end of its next port, and return the channel."""
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
    """Record that a packet has left its source; return whether it was the last of its message."""
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
    """Record that a packet is at its target; return whether it was the last of its message."""
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
    """Schedule a router for a cycle, or keep an earlier one."""
    if cycle < run.network.wakes_at[device]:
        run.network.wakes_at[device] = cycle
        put(run.network.routers, device, float(cycle), device)


@works_on_tables
def route(run: Run, device: int, cycle: int) -> bool:
    """Run a router for one cycle; return whether that added to the calendar."""
    network, settings = run.network, run.network.settings[0]
    settings.proposals = NONE
    later = NEVER
    for at in range(network.first_port[device], network.first_port[device + 1]):
        later = min(later, _propose(run, network.ports_in[at], at, cycle))
    if settings.proposals != NONE:
        later = cycle + 1
    is_news = False
    port_row = settings.proposals
    while port_row != NONE:
        after = network.ports[port_row].next_proposal
        is_news |= _send(run, port_row, cycle)
        network.ports[port_row].proposed_channel = NONE
        port_row = after
    if later < NEVER:
        wake(run, device, later)
    return is_news


@works_on_tables
def _propose(run: Run, port_row: int, at: int, cycle: int) -> int:
    """Let the channel of an incoming port that has its turn propose a flit; return when to try again."""
    network = run.network
    later, before, row = NEVER, NONE, network.ports[port_row].head
    while row != NONE:
        channel = network.channels[row]
        can = _can_go_on(run, row, cycle)
        if can <= cycle:
            _record_proposal(network, channel.out, row, before, at)
            return cycle
        later = min(later, can)
        before, row = row, channel.next
    return later


@works_on_tables
def _can_go_on(run: Run, row: int, cycle: int) -> int:
    """Return the cycle in which the next flit of a channel may move, as far as it is determined."""
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
    if out.free_at > cycle or out.target == NONE:  # leaving the network takes no channel
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
    """Add the credits that have returned by now."""
    channel, back = network.channels[row], network.credits_back[row]
    while back.head != NONE and network.flits[back.head].at <= cycle:
        _free_first(network, back)
        channel.credits += 1


@works_on_tables
def _record_proposal(network: Any, port_row: int, row: int, before: int, at: int) -> None:
    """Record a channel's proposal of a flit for a port."""
    settings, port = network.settings[0], network.ports[port_row]
    if port.proposed_channel == NONE:
        port.next_proposal = settings.proposals
        settings.proposals = port_row
    elif not _is_sooner(port.turn, at, port.proposing_port):
        return
    port.proposed_channel, port.proposed_before, port.proposing_port = row, before, at


@works_on_tables
def _is_sooner(turn: int, first: int, second: int) -> bool:
    """Return whether one incoming port comes before another, counted from the one after the last turn."""
    if (first > turn) != (second > turn):
        return first > turn
    return first < second


@works_on_tables
def _send(run: Run, port_row: int, cycle: int) -> bool:
    """Send the flit that was chosen for a port; return whether that added to the calendar."""
    network, port = run.network, run.network.ports[port_row]
    row, is_news = port.proposed_channel, False
    channel = network.channels[row]
    _give_credit(run, row, cycle)
    channel.sent += 1
    is_last = channel.sent == channel.flits
    is_turn_over = is_last or network.settings[0].turns_of_flits
    port.turn = port.proposing_port if is_turn_over else port.proposing_port - 1
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
        return _release(run, row, port.proposed_before, cycle) or is_news
    if is_turn_over:
        _take_next_turn(network, network.ports[channel.port], row, port.proposed_before)
    return is_news


@works_on_tables
def _give_credit(run: Run, row: int, cycle: int) -> None:
    """Return the credit of a flit that leaves its place; the sender sees it after the latency of the wire."""
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
    """Put a flit on the way to a channel; it may move on when it has passed the pipeline."""
    network, settings = run.network, run.network.settings[0]
    flit_row = take_row(network.flits, settings.free_flits)
    flit = network.flits[flit_row]
    flit.at = cycle + port.cycles + port.latency + settings.router_cycles
    join(network.flits, network.flits_here[row], flit_row)
    network.channels[row].credits -= 1
    wake(run, port.target, flit.at)


@works_on_tables
def _count(run: Run, port_row: int, port: Any, cycle: int) -> None:
    """Count a flit that a link has carried."""
    before = port.bytes
    port.bytes += run.network.settings[0].flit
    if observe.is_recording(run):
        length = cycle_length(run)
        begin, end = cycle * length, (cycle + port.cycles) * length
        observe.link_carries(run, port_row, begin, end, float(before), float(port.bytes))


@works_on_tables
def _release(run: Run, row: int, before: int, cycle: int) -> bool:
    """Release a channel after the last flit of its packet, for use when the sender sees it.

    Return whether that added to the calendar.
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
    """Drop the returning credits of a channel: all its places are free when it is released."""
    back = network.credits_back[row]
    while back.head != NONE:
        _free_first(network, back)


@works_on_tables
def _free_first(network: Any, fifo: Any) -> None:
    """Release the first flit of a list."""
    give_row(network.flits, network.settings[0].free_flits, leave(network.flits, fifo))


@works_on_tables
def _take_next_turn(network: Any, port: Any, row: int, before: int) -> None:
    """Move a channel that had its turn behind those that share its port."""
    if port.tail != row:
        leave_from(network.channels, port, before, row)
        join(network.channels, port, row)
