"""Messages as packets: cut at their source, put into channels there, and counted at their target.

Not here: how packets get on from router to router (`router`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.containers import join, leave
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
    """The same in picoseconds."""
    return int(cycle * network.settings[0].cycle_ps)


@works_on_tables
def cycle_length(run: Run) -> float:
    """How much of the calendar's time a cycle takes."""
    settings = run.network.settings[0]
    return settings.cycle_ps * settings.units / PS_PER_NS


@works_on_tables
def cycle_of(run: Run, time: int) -> int:
    """The first cycle that does not begin before a time."""
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
    routes = network.hops.fabric.routes
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
    channel.stop = next_stop(network.hops.fabric.routes, source, message.target)
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
    routes = network.hops.fabric.routes
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
