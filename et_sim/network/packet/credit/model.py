"""Packets with credits: flits take turns on links, and each has a place at the far end before it is sent.

A message is cut into packets, and these into flits, which follow each other through one virtual channel of
each link. Every device is a router, with its NPU beside it if it has one. Nothing is dropped, and no cyclic
waits occur (`classes`) on any graph with any routes.

A lone packet of n flits takes 1 + sum(router + s + l) + (n - 1) * max(s) + router + 1 cycles over links on
which a flit takes s cycles and the wire l; the last two terms are for leaving the network. The first cycle
begins when the message is sent, or is the next one.

Rows of `PORT` are the links, then for each link the port from its NPU, then for each rank the port out of the
network. Every port but the last kind has channels at its end, in the router there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import is_last, schedule, schedule_at_end
from et_sim.engine.containers import FREE, QUEUE, Heap, first_of, grow_pool, heap_for, take_out
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.queue_tables import Queues, new_queues, no_queues
from et_sim.engine.state.records import MESSAGE_FIELDS
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import Needs, message_leaves_at, new_message
from et_sim.machine.credits import cycles_of_flit, cycles_of_wire, filled_in, most_carried
from et_sim.machine.model import Network
from et_sim.machine.transports import Credits
from et_sim.network import graph
from et_sim.network.graph_of_grid import with_single_ways
from et_sim.network.link import arrive_at_once, tables_of
from et_sim.network.packet.credit.classes import check_pairs, order_of_links
from et_sim.network.packet.credit.router import (
    ARRIVAL,
    LEFT,
    NEVER,
    WORK,
    cut,
    cycle_of,
    route,
    start_packet,
    time_of,
    wake,
)
from et_sim.plan.records import LoweredPlan, record, table

SETTINGS = record(
    ("free_flits", FREE),
    ("plans", "i8"),  # number of the latest plan: older ones are stale
    ("is_due", "i4"),  # a new plan is required
    ("classes", "i4"),  # of channels: one more than routes cross datelines
    ("buffer", "i4"),  # flits in each
    ("flit", "i8"),  # bytes
    ("packet", "i8"),  # bytes
    ("pads", "i4"),  # the last packet of a message has full size
    ("turns_of_flits", "i4"),  # a turn on a port lasts for one flit, not for a packet
    ("router_cycles", "i8"),
    ("cycle_ps", "i8"),
    ("units", "i8"),  # of time in a ns
    ("proposals", "i4"),  # ports with proposals in this cycle
    ("most_ports", "i8"),  # of a router
    ("arrived", "i8"),  # packets
)
PORT = record(
    ("source", "i4"),  # devices
    ("target", "i4"),
    ("speed", "i4"),
    ("cycles", "i8"),  # that a flit takes
    ("latency", "i8"),  # cycles
    ("free_at", "i8"),
    ("order", "i4"),  # a route that continues on a port of a lower order crosses a dateline
    ("head", "i4"),  # channels at the end that hold a packet, in the order of their turns
    ("tail", "i4"),
    ("turn", "i4"),  # the port that sent last over this one
    ("proposed_channel", "i4"),  # the channel that may send over it in this cycle
    ("proposed_before", "i4"),  # the channel before this one
    ("proposing_port", "i4"),
    ("next_proposal", "i4"),
    ("is_starved", "i4"),  # a flit has waited for credit
    ("bytes", "i8"),
)
CHANNEL = record(
    ("port", "i4"),  # at whose end it is
    ("message", "i4"),
    ("datelines", "i4"),  # that its packet has crossed
    ("out", "i4"),  # the next port of its packet
    ("out_channel", "i4"),
    ("stop", "i4"),  # the rank that it travels to
    ("flits", "i4"),  # of its packet
    ("sent", "i4"),
    ("credits", "i4"),  # free places for flits, as the sender sees them
    ("free_at", "i8"),  # when the sender sees it as free
    ("begins_at", "i8"),  # when a packet from its NPU is there; NONE: flits come over a link
    ("next", "i4"),
)
FLIT = record(("at", "i8"), ("next", "i4"))  # when a flit may move; later, when its place is seen free
MESSAGE = record(
    ("source", "i4"),
    ("link", "i4"),  # the first of its route
    ("packets", "i8"),
    ("to_start", "i8"),  # packets
    ("to_leave", "i8"),
    ("to_arrive", "i8"),
    ("begin_ns", "i8"),
    ("left_ns", "i8"),
    ("through", "i8"),  # the cause of its arrival
    ("origin", "i8"),  # of the event that sent it, to notice ties
    *MESSAGE_FIELDS,
)


HAS_CONTENTION = True
HAS_CREDITS = True
RECORDS_IN_ONE_FORM = True
MOST_PLANS = (1 << 30) - 1  # the largest number of a plan
MOST_CHANNELS = 1 << 21  # of a class: some hundred MiB
CYCLES_AT_A_TIME = 1 << 8  # of single routers, before the engine may process other events
FIRST_IN_NETWORK = np.iinfo(np.int32).min  # the order of ports from NPUs: no dateline comes after them


class CreditTables(Tables, Struct, frozen=True):
    """Tables of this model for compiled code."""

    hops: Any  # the tables of the link model
    settings: Any  # one row
    ports: Any
    channels: Any
    flits_here: Any  # per channel
    credits_back: Any  # per channel: flits that have left it, until the sender sees that
    free_channels: Any  # per class of each link, then per link for the NPU before it
    waiting: Any  # per link: messages that still have to be cut
    first_port: Any  # per device, into the next
    ports_in: Any
    flits: Any
    routers: Heap  # devices by the cycle of their next work
    wakes_at: Any  # the cycle of the next work, by device
    queues: Queues  # events at ports over time, if recorded


def payload_of_packets(network: Network) -> int:
    """Return the payload of a packet, in bytes."""
    return (network.credits or Credits()).packet


def packets_sent(tables: CreditTables) -> int:
    """Return the number of packets that have arrived."""
    return int(tables.settings[0].arrived)


def check(network: Network, most_bytes: int = 0) -> None:
    """Refuse networks of levels, messages that would take too long, and too many channels."""
    on_graph = with_single_ways(network)
    graph.check_reach(on_graph, most_bytes)
    check_pairs(network)
    links, channels = len(_figures(on_graph).sources), _credits(on_graph).channels or 1
    if links * channels > MOST_CHANNELS:
        raise MachineError(
            f"{channels:,} channels for each of {links:,} links exceed the limit of {MOST_CHANNELS:,}",
            place="network configuration",
            remedy="give fewer channels, or longer packets: a packet holds a channel for a round trip",
        )


def tables(network: Network, _plan: LoweredPlan) -> CreditTables:
    """Return the tables with all routers idle."""
    on_graph = with_single_ways(network)
    credits = _credits(on_graph)
    hops = tables_of(on_graph, None)
    order, classes = order_of_links(hops.fabric.graph, network.ranks)
    links, devices = len(hops.links), len(hops.fabric.graph.routes.rank_of)
    settings = table(SETTINGS, 1)
    settings["free_flits"]["head"] = settings["proposals"] = NONE
    settings["classes"] = classes
    settings["buffer"] = credits.buffer
    settings["flit"], settings["packet"], settings["pads"] = credits.flit, credits.packet, credits.pads
    settings["router_cycles"] = credits.router_cycles
    settings["cycle_ps"] = credits.cycle_ps
    settings["turns_of_flits"] = credits.turns_of_flits
    settings["units"] = 1 << network.fraction_bits
    ports = _ports(on_graph, hops, order, credits)
    first_port, ports_in = _ports_in(ports, devices)
    settings["most_ports"] = np.diff(first_port).max()
    channels, free = _channels(ports[:links], classes, credits)
    channels["credits"] = settings["buffer"]
    return CreditTables(
        hops,
        settings,
        ports,
        channels,
        _fifos(len(channels)),
        _fifos(len(channels)),
        free,
        _fifos(links),
        first_port,
        ports_in,
        table(FLIT, 0),
        heap_for(devices),
        np.full(devices, NEVER),
        no_queues(),
    )


def with_queues(tables: CreditTables) -> CreditTables:
    """Return the tables with a record of the buffers at the ends of links."""
    links = tables.ports[: len(tables.waiting)]
    return replace(tables, queues=new_queues(links["source"], links["target"], pauses=False))


def _credits(on_graph: Network) -> Credits:
    figures = _figures(on_graph)
    return filled_in(on_graph.credits or Credits(), figures.bytes_per_ns, figures.latency_ns)


def _fifos(rows: int) -> Any:
    fifos = table(QUEUE, rows)
    fifos["head"] = fifos["tail"] = NONE
    return fifos


def _figures(on_graph: Network) -> Any:
    """Return the graph, which holds the bandwidth and the latency of each link."""
    return graph.wired(on_graph).graph


def _ports(on_graph: Network, hops: Any, order: Any, credits: Credits) -> Any:
    """Return the links, the ports into them from NPUs, and the ports out of the network."""
    routes, links, figures = hops.fabric.graph.routes, len(hops.links), _figures(on_graph)
    ports = table(PORT, 2 * links + on_graph.ranks)
    ports["head"] = ports["tail"] = ports["proposed_channel"] = ports["turn"] = NONE
    ports["source"], ports["target"], ports["cycles"] = NONE, NONE, 1
    link_ports, from_npus = ports[:links], ports[links : 2 * links]
    link_ports["source"], link_ports["target"], link_ports["order"] = routes.source, routes.target, order
    link_ports["speed"] = hops.fabric.graph.speed_of
    link_ports["cycles"] = cycles_of_flit(credits, figures.bytes_per_ns)
    link_ports["latency"] = cycles_of_wire(credits, figures.latency_ns)
    is_npu = routes.rank_of[routes.source] != NONE
    from_npus["target"] = np.where(is_npu, routes.source, NONE)
    from_npus["order"] = FIRST_IN_NETWORK
    return ports


def _ports_in(ports: Any, devices: int) -> tuple[Any, Any]:
    """Return where the ports into each device begin, and these ports."""
    into = np.flatnonzero(ports["target"] != NONE)
    into = into[np.argsort(ports["target"][into], kind="stable")]
    return np.searchsorted(ports["target"][into], np.arange(devices + 1)), into.astype(np.int32)


def _channels(ports: Any, classes: int, credits: Credits) -> tuple[Any, Any]:
    """Return all channels, and lists of free ones; by default a link has enough for a round trip."""
    links, count = len(ports), credits.channels or 1
    channels, free = table(CHANNEL, links * (classes + 1) * count), _fifos(links * (classes + 1))
    owner = np.repeat(np.arange(len(free)), count)
    channels["port"] = np.where(owner < links * classes, owner // classes, owner - links * (classes - 1))
    first = np.arange(len(free)) * count
    free["head"], free["tail"] = first, first + count - 1
    channels["next"] = np.arange(len(channels)) + 1
    channels["next"][free["tail"]] = NONE
    return channels, free


def grown(tables: CreditTables, rows: int) -> CreditTables:
    """Return the tables with space for more flits, besides those that a router may send in one cycle."""
    settings = tables.settings[0]
    wanted = rows + int(settings.most_ports)
    if settings.free_flits.rows >= wanted:
        return tables
    return replace(tables, flits=grow_pool(tables.flits, settings.free_flits, wanted))


def resources(network: Network, _plan: LoweredPlan) -> ResourceTable:
    """Return every link with its capacity in whole cycles."""
    on_graph = with_single_ways(network)
    links, figures = graph.link_resources(on_graph), _figures(on_graph)
    most = most_carried(_credits(on_graph), figures.bytes_per_ns, figures.latency_ns)
    return structs.replace(links, bytes_per_ns=most, are_shared=True)


def carried(tables: CreditTables) -> Any:
    """Return the bytes that each link has carried."""
    return tables.ports["bytes"][: len(tables.waiting)]


def path_keys(_network: Network, *, whole: bool) -> None:
    """Return None: the order of packets in a router depends on its ports, so nothing is folded."""


def needs(_network: Network) -> Needs:
    """Return the needs: a row of the message pool per message, an event when it has left, and a plan."""
    return Needs(causal_events=4, record=MESSAGE, events=3)


@works_on_tables
def rows_left(run: Run) -> int:
    """Return the number of messages that fit in the free rows and flits, without those of one cycle."""
    settings = run.network.settings[0]
    return min(run.clock[0].free_messages.rows, max(settings.free_flits.rows - settings.most_ports, 0))


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """Start a message: its first packet begins with the next cycle if a channel is free."""
    if source == target:
        arrive_at_once(run, target, size, kind, a, b, c, done)
        return
    row = new_message(run, target, size, kind, a, b, c, done)
    observe.message_shares(run, row)
    message = run.messages[row]
    message.source, message.begin_ns = source, run.clock[0].now
    link_row = cut(run, row)
    cycle = cycle_of(run, run.clock[0].now) + 1
    begins = start_packet(run, link_row, cycle)
    while begins < NEVER:
        wake(run, run.network.ports[link_row].source, begins)
        begins = start_packet(run, link_row, cycle)
    _work_later(run)


@works_on_tables
def _work_later(run: Run) -> None:
    """Schedule the next router after all other events of this nanosecond."""
    settings = run.network.settings[0]
    if settings.is_due == 0:
        settings.is_due = 1
        settings.plans = (settings.plans + 1) & MOST_PLANS
        schedule_at_end(run, NETWORK + WORK, 0, settings.plans, 0)


@works_on_tables
def network_event(run: Run, kind: int, row: int, version: int) -> int:
    """Run routers, or handle a message that has left or arrived; return one at its target, or NONE."""
    if kind == ARRIVAL:
        return row
    if kind == LEFT:
        _leave_source(run, row)
    elif version == run.network.settings[0].plans:
        if is_last(run):
            _work(run)
        else:
            schedule_at_end(run, NETWORK + WORK, 0, version, 0)
    return NONE


@works_on_tables
def _leave_source(run: Run, row: int) -> None:
    """Report that the last flit of a message has left its source."""
    message = run.messages[row]
    network, link_row = run.network, message.link
    port = network.ports[link_row]
    alone_ns = int(message.bytes / network.hops.fabric.graph.speeds[port.speed].bytes_per_ns)
    tier = network.hops.tier[link_row]
    now = run.clock[0].now
    message.left_ns = now
    message.through = observe.message_shared(
        run, row, link_row, port.speed, tier, message.begin_ns, now, alone_ns
    )
    message_leaves_at(run, message, now, message.through, now)


@works_on_tables
def _work(run: Run) -> None:
    """Run routers cycle by cycle until the next other event of the run."""
    network, settings, clock = run.network, run.network.settings[0], run.clock[0]
    settings.is_due = 0
    horizon = run.heap_time[0] if clock.times > 0 else NEVER
    device = first_of(network.routers)
    work = CYCLES_AT_A_TIME
    while device != NONE:
        cycle = network.wakes_at[device]
        time = time_of(run, cycle)
        if time >= horizon or work == 0 or settings.free_flits.rows < settings.most_ports:
            break
        work -= 1
        take_out(network.routers, device)
        network.wakes_at[device] = NEVER
        if route(run, device, cycle):  # the calendar has a new entry
            work = 0
        device = first_of(network.routers)
    if device != NONE:
        time = max(time_of(run, network.wakes_at[device]), clock.now)
        settings.plans = (settings.plans + 1) & MOST_PLANS
        observe.next_event_follows(run, 0, time)  # the causes of a message are recorded when it arrives
        schedule(run, time, NETWORK + WORK, 0, settings.plans, 0)
