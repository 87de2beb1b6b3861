"""Packet network: packets that queue at ports, with buffers, pauses and congestion control.

A packet is serialised on each link, stored, and forwarded, and waits in queues. The kernel has a calendar of
its own. The engine's calendar has one event for it: there the kernel runs until the engine's next event, or
until a message has arrived or left. At equal times, packets come before the engine's events, and messages
that are sent then begin after both, in the order of sending. Times are picoseconds in the kernel, and rounded
down to the engine's unit outside.

A message to its own rank arrives at once. Nothing is folded.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import networkx as nx
import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.compiled.interpreted import interpret
from et_sim.compiled.tables_by_reference import Tables, chosen_by_tables, works_on_tables
from et_sim.engine.calendar.clock import is_last, schedule, schedule_first
from et_sim.engine.containers import grow_pool, leave, longer
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.queue_tables import Queues, new_queues, no_queues
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import LATEST, NONE, Run
from et_sim.engine.transport.network_seam import Needs, message_leaves_at, new_message, sending_end
from et_sim.machine.model import GridFabric, Network
from et_sim.machine.protocol_presets import DEFAULT_PRESET, PRESETS
from et_sim.machine.transports import PS_PER_NS, PacketProtocol, Window
from et_sim.network import graph, link
from et_sim.network.flow.changes import most_links_over_time
from et_sim.network.flow.model import bytes_with_packets
from et_sim.network.graph_of_grid import with_single_ways
from et_sim.network.link import arrive_at_once
from et_sim.network.outages import LinkState
from et_sim.network.packet import setup
from et_sim.network.packet.calendar import Calendar, new_calendar, with_timers
from et_sim.network.packet.changes import check_failures, in_next_state, in_state
from et_sim.network.packet.changes import link_states as link_states
from et_sim.network.packet.changes import longest_waits as longest_waits
from et_sim.network.packet.changes import lost_messages as lost_messages
from et_sim.network.packet.controls import keeps_rates, new_control
from et_sim.network.packet.flows import flow_begins, flow_ends, new_flow, until_arrived, until_left
from et_sim.network.packet.kernel import EVENTS_AT_ONCE, PACKETS_PER_EVENT, go_on, next_ps
from et_sim.network.packet.randomness import streams_of_ns3
from et_sim.network.packet.records import FLOW, MESSAGE, NEVER, PACKET, SENDING, STATE, STEADY
from et_sim.network.packet.repeats import pictures, restart_search
from et_sim.network.packet.roce import transport as roce
from et_sim.network.packet.roce.transport import RoceTables
from et_sim.network.packet.setup import check_protocol
from et_sim.network.packet.tcp import transport as tcp
from et_sim.network.packet.tcp.transport import MOST_RECEIVES, TcpTables
from et_sim.network.paths import WALKER
from et_sim.network.senders import recovery_row
from et_sim.plan.records import LoweredPlan, table


def ports_in_a_circle(tables: Any) -> list[int]:
    """Return the paused ports that wait for each other in a cycle, in its order; empty if there are none.

    A port is paused because packets from it fill a buffer; these wait for other ports of the same device. If
    those are paused in turn, and so on back to the first, no packet can move.
    """
    ports, packets = tables.ports, tables.packets
    paused = ports["is_paused"] == 1
    if not paused.any():
        return []
    waits: nx.DiGraph[int] = nx.DiGraph()
    for port in paused.nonzero()[0].tolist():
        row = int(ports["head"][port])
        while row != NONE:
            came = int(packets["port"][row])
            if came != NONE and paused[came]:
                waits.add_edge(came, port)
            row = int(packets["next"][row])
    try:
        return [int(before) for before, _ in nx.find_cycle(waits)]
    except nx.NetworkXNoCycle:
        return []


HAS_CONTENTION = True
HAS_PROTOCOLS = True
HAS_FAILURES = True
RECORDS_IN_ONE_FORM = True
TAKES_SINGLE_WAYS = True
WITH_CREDITS = "et_sim.network.packet.credit.model"
GO_ON, BEGIN, ARRIVAL = 0, 1, 2  # the kernel runs; messages begin; a message is at its target
MOST_PLANS = (1 << 30) - 1  # the largest number of a plan

begin_flow = chosen_by_tables("begin_flow", "transport")  # (network, flow): begin a message


@works_on_tables
def _joins_nothing(_network: Any, _flow: int) -> None:
    """Ignore a message: the transport has no connections."""


@works_on_tables
def _counts_as_itself(_network: Any, _messages: Any, _flow: int) -> None:
    """Keep a message: the transport delivers each one separately."""


@works_on_tables
def _ends_its_own(_network: Any, _run: Run, row: int) -> int:
    """Return the message itself: its receive ends with it."""
    return row


@works_on_tables
def _flows_left(network: Any) -> int:
    """Return the number of free flows: one per message."""
    return int(network.state[0].free_flows.rows)


joins = chosen_by_tables("joins", "transport", _joins_nothing)  # (network, flow): join a connection
# (network, messages, flow): count the message of a flow as delivered, or as another one
counts_as = chosen_by_tables("counts_as", "transport", _counts_as_itself)
# (network, run, message): the message that an arrived one counts as; NONE: its receive has ended
ends_receives = chosen_by_tables("ends_receives", "transport", _ends_its_own)
flows_left = chosen_by_tables("flows_left", "transport", _flows_left)  # (network): messages that fit


class PacketTables(Tables, Struct, frozen=True):
    """Tables of the packet model for compiled code."""

    hops: Any  # the tables of the link model
    transport: Any
    control: Any  # of congestion
    rules: Any  # one row
    streams: Any  # state of ns-3's random numbers, and the matrix that leads to the next
    stream_step: Any
    state: Any
    ports: Any  # by link
    devices: Any
    packets: Any
    flows: Any
    ways: Any  # by flow: the links there, NONE, the links back, NONE
    stride: Any  # entries per flow
    calendar: Calendar
    units: Any  # ratio of the engine's unit of time to picoseconds, as two whole numbers
    repeats: Any  # one row: the search for repeats, the last snapshot, and the counts then
    picture: Any
    counted: Any
    steady: Any  # one row: messages that are known
    log: Any  # what ports sent since the engine read it, if links are recorded
    spare: Any  # the most packets that one event of the engine may make
    queues: Queues  # events at ports over time, if recorded
    fails: Any  # a tuple whose length the compiler sees; empty: no link fails
    dead: Any  # by link
    waits: Any  # by link, the longest of a message that lost packets on it; in picoseconds
    recovery: Any  # one row
    walker: Any  # a message that walks paths
    figures: Any  # empty unless delays of messages are recorded (`flows`)


def check(network: Network, most_bytes: int = 0) -> None:
    """Refuse networks of levels, unsuitable protocols, and messages that take too long."""
    protocol = _protocol(network)
    link.check(network, bytes_with_packets(protocol, most_bytes))
    check_protocol(with_single_ways(network), protocol)
    if protocol.packets.steady > 0 and not keeps_rates(protocol):
        raise MachineError(
            f"steady phases are skipped where no rate is adjusted, and {protocol.packets.control.algorithm} "
            "adjusts rates all the time",
            place=setup.PLACE,
            remedy="leave out --steady or the protocol's steady, or give congestion-control: none or dcqcn",
        )
    if protocol.packets.steady > 0 and protocol.packets.window is not Window.NONE:
        raise MachineError(
            f"steady phases are skipped where no window limits messages, and the window is "
            f'"{protocol.packets.window}": their times depend on single acknowledgements',
            place=setup.PLACE,
            remedy="leave out --steady or the protocol's steady, or give window: none",
        )
    check_failures(network, protocol)


def _protocol(network: Network) -> PacketProtocol:
    return network.protocol or PRESETS[DEFAULT_PRESET]


def tables(network: Network, _plan: LoweredPlan) -> PacketTables:
    """Return the tables with all links idle."""
    wired, protocol = with_single_ways(network), _protocol(network)
    buffers = protocol.packets.buffers
    ports = setup.ports_of(wired, protocol)
    devices = setup.devices_of(wired, ports, buffers)
    streams, step = streams_of_ns3(len(devices))
    spare = EVENTS_AT_ONCE * PACKETS_PER_EVENT + len(ports)
    state = table(STATE, 1)
    for name in ("current", "anchor", "head", "tail", "arrived", "left", "planned_ns"):
        state[name] = NONE
    state["free_packets"]["head"] = state["free_flows"]["head"] = NONE
    transport: RoceTables | TcpTables
    if protocol.packets.tcp is not None:
        transport = tcp.new_tables(protocol, len(ports), network.ranks)
    else:
        transport = roce.new_tables(protocol, len(ports), *setup.largest_window(wired, ports, protocol))
    links = len(ports) if network.failures else 0
    made = PacketTables(
        hops=link.tables_of(structs.replace(wired, fraction_bits=network.fraction_bits), None),
        transport=transport,
        control=new_control(protocol),
        rules=setup.rules_of(protocol),
        streams=streams,
        stream_step=step,
        state=state,
        ports=ports,
        devices=devices,
        packets=table(PACKET, 0),
        flows=table(FLOW, 0),
        ways=np.zeros(0, np.int32),
        stride=np.array([2 * (most_links_over_time(wired) + 1)]),
        calendar=new_calendar(len(ports), setup.longest_crossing(ports, protocol)),
        units=_units(1 << network.fraction_bits),
        **pictures(len(ports)),
        steady=table(STEADY, 1),
        log=table(SENDING, spare),
        spare=np.array([spare]),
        queues=no_queues(),
        fails=(1,) if network.failures else (),
        dead=np.zeros(links, np.int8),
        waits=np.zeros(links, np.int64),
        recovery=recovery_row(network),
        walker=table(WALKER, 1),
        figures=np.zeros(0, np.int8),
    )
    return in_state(made, network, protocol, link_states(network)[0]) if network.failures else made


def changed(run: Run, network: Network, state: LinkState) -> Run:
    """Return the run in a new state of the links, from the present time on."""
    run = in_next_state(run, network, _protocol(network), state)
    interpret(_plan_next, (run,))
    return run


def with_figures(tables: PacketTables) -> PacketTables:
    """Return the tables with records of what delays each message."""
    return replace(tables, figures=np.ones(1, np.int8))


def with_queues(tables: PacketTables) -> PacketTables:
    """Return the tables with records of events at ports."""
    ports, has_pauses = tables.ports, bool(tables.rules[0].pauses)
    links = int(tables.stride[0]) // 2 - 1
    queues = new_queues(ports["device"], ports["to"], pauses=has_pauses, way=links)
    return replace(with_figures(tables), queues=queues)


def _units(per_ns: int) -> Any:
    """Return the engine's units of time and the picoseconds per nanosecond, divided by their greatest
    divisor.
    """
    divisor = math.gcd(per_ns, PS_PER_NS)
    return np.array([per_ns // divisor, PS_PER_NS // divisor])


def grown(tables: PacketTables, rows: int) -> PacketTables:
    """Return the tables with space for more flows, and with packets for many events."""
    state, transport, spare = tables.state[0], _transport(tables.transport), int(tables.spare[0])
    rows *= transport.FLOWS_PER_MESSAGE
    packets, flows = tables.packets, tables.flows
    if state.free_packets.rows < spare:
        packets = grow_pool(packets, state.free_packets, spare)
    if state.free_flows.rows < rows:
        flows = grow_pool(flows, state.free_flows, rows)
        tables = replace(
            tables,
            ways=longer(tables.ways, len(flows) * int(tables.stride[0]), NONE),
            calendar=with_timers(tables.calendar, len(flows) * transport.TIMERS),
        )
    return replace(
        tables,
        packets=packets,
        flows=flows,
        transport=transport.grown(tables.transport, packets, flows, spare),
        control=tables.control.grown(packets, flows),
    )


def _transport(tables: RoceTables | TcpTables) -> ModuleType:
    return tcp if isinstance(tables, TcpTables) else roce


def resources(network: Network, _plan: LoweredPlan) -> ResourceTable:
    """Return every link."""
    wired = network.fabric.dimensions if isinstance(network.fabric, GridFabric) else ()
    links = graph.link_resources(with_single_ways(network))
    sizes = tuple(dimension.npus for dimension in wired) or links.sizes
    return structs.replace(links, are_shared=True, sizes=sizes)


def carried(tables: PacketTables) -> Any:
    """Return the bytes that each link has carried."""
    return tables.ports["bytes"]


def payload_of_packets(network: Network) -> int:
    """Return the payload of a packet, in bytes."""
    return _protocol(network).payload


def packets_sent(tables: PacketTables) -> int:
    """Return the number of data packets, without retransmissions."""
    return int(tables.state[0].sent - tables.state[0].resent)


def ports_counted(tables: PacketTables) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the counts of each port and of the network, times in nanoseconds."""
    ports, state = tables.ports, tables.state[0]
    still = np.where(ports["is_paused"], state.now_ps - ports["paused_since_ps"], 0)
    columns = {
        "packets": ports["carried_packets"],
        "bytes": ports["bytes"],
        "busy_ns": ports["busy_ps"] // PS_PER_NS,
        "deepest_bytes": ports["deepest"],
        "deepest_at_ns": np.where(ports["deepest"] > 0, ports["deepest_ps"] // PS_PER_NS, -1),
        "pauses": ports["paused"],
        "paused_ns": (ports["paused_ps"] + still) // PS_PER_NS,
        "marked": ports["marks"],
        "lost": ports["drops"],
    }
    totals = {
        "sent": int(state.sent),
        "acknowledgements": int(state.returned),
        "sent_again": int(state.resent),
        "timeouts": int(state.timeouts),
        "lost": int(state.lost),
        "marked": int(ports["marks"].sum()),
        "pauses": int(ports["paused"].sum()),
    }
    return columns, totals | _steady_phases(tables)


def again(tables: PacketTables, network: Network) -> Network | None:
    """Return the network with all packets if messages contend after some were skipped; else None."""
    if not tables.steady[0].contends:
        return None
    protocol = _protocol(network)
    return replace(network, protocol=replace(protocol, packets=replace(protocol.packets, all_packets=True)))


def _steady_phases(tables: PacketTables) -> dict[str, Any]:
    """Return what was skipped of steady phases, if that is allowed."""
    tolerance, steady = float(tables.rules[0].steady), tables.steady[0]
    if tolerance == 0:
        return {}
    skipped = {"messages": int(steady.messages), "packets": int(steady.packets)}
    found = {"tolerance": tolerance, **skipped, "error": float(steady.bound)}
    return {"steady": {**found, "contends": bool(tables.rules[0].all_packets)}}


def path_keys(_network: Network, **_: bool) -> None:
    """Return None: packets of all ranks share queues."""
    return


def needs(network: Network) -> Needs:
    """Return the needs: a row of the message pool per message, one more run of the kernel, and begins of
    messages.
    """
    protocol, wired = _protocol(network).packets.tcp, with_single_ways(network)
    further = MOST_RECEIVES if protocol is not None and protocol.pads else 0
    classes = min(len(graph.class_names(wired)), 2 * graph.most_links(wired))  # on the ways there and back
    parts = 8 + 2 * classes  # of the time of a message
    return Needs(causal_events=parts + further, record=MESSAGE, events=3 + further)


@works_on_tables
def rows_left(run: Run) -> int:
    """Return the number of messages that fit in the free rows; 0 if there are too few packets."""
    state = run.network.state[0]
    if state.free_packets.rows < run.network.spare[0] or observe.queue_rows_left(run.network) == 0:
        return 0
    return min(run.clock[0].free_messages.rows, flows_left(run.network))


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """Queue a message that begins after all other events of this nanosecond."""
    if source == target:
        arrive_at_once(run, target, size, kind, a, b, c, done)
        return
    message_row = new_message(run, target, size, kind, a, b, c, done)
    observe.message_shares(run, message_row)
    run.messages[message_row].begin_ns = run.clock[0].now
    run.messages[message_row].left_ns = NONE
    joins(run.network, new_flow(run, source, target, message_row))
    state = run.network.state[0]
    if state.is_due == 0:
        state.is_due = 1
        schedule(run, run.clock[0].now, NETWORK + BEGIN, 0, 0, 0)


@works_on_tables
def network_event(run: Run, kind: int, row: int, version: int) -> int:
    """Begin messages, or run the kernel; return a message that is at its target, or NONE."""
    if kind == ARRIVAL:
        return ends_receives(run.network, run, row)
    network, arrived = run.network, NONE
    state = network.state[0]
    state.logs = observe.notes_traffic(run)
    if kind == BEGIN:
        _begin_all(run)
    elif state.planned_ns == NONE or version != state.plans:  # another event was planned later
        return NONE
    else:
        state.planned_ns = NONE
        go_on(network, _until_ps(run))
        arrived = state.arrived
        state.arrived = NONE
    _record_links(run)
    _plan_next(run)
    if state.left != NONE:
        _message_left(run, state.left)
        state.left = NONE
    if arrived != NONE:
        _message_arrived(run, arrived)
    return NONE


@works_on_tables
def _begin_all(run: Run) -> None:
    """Begin the messages that were sent in this nanosecond."""
    network = run.network
    state = network.state[0]
    state.is_due = 0
    state.now_ps = max(state.now_ps, _ps(network, run.clock[0].now))
    state.now_order = state.order
    row = leave(network.flows, state)
    while row != NONE:
        network.flows[row].begin_ps = state.now_ps
        flow_begins(network, row)
        begin_flow(network, row)
        row = leave(network.flows, state)
    restart_search(network)


@works_on_tables
def _until_ps(run: Run) -> int:
    """Return the last time before which no rank can send."""
    clock = run.clock[0]
    if not is_last(run):
        return _last_ps_before(run.network, clock.now + 1)
    until = _last_ps_before(run.network, run.heap_time[0]) if clock.times > 0 else NEVER
    if len(run.network.fails) > 0:  # the next change comes after the latest time
        until = min(until, _last_ps_before(run.network, run.plan.settings[LATEST] + 1))
    return until


@works_on_tables
def _record_links(run: Run) -> None:
    """Record which links are busy with what ports have sent."""
    network = run.network
    state = network.state[0]
    for row in range(state.logged):
        sending = network.log[row]
        begin, end = _engine_time(network, sending.begin_ps), _engine_time(network, sending.end_ps)
        observe.link_passed(run, sending.port, begin, end - begin, sending.bytes)
    state.logged = 0


@works_on_tables
def _message_left(run: Run, row: int) -> None:
    """Report that the last byte of a message has been sent."""
    _note_left(run, row)
    message = run.messages[run.network.flows[row].message]
    message_leaves_at(run, message, message.left_ns, message.through, message.left_ns)


@works_on_tables
def _note_left(run: Run, row: int) -> None:
    """Record what delayed a message: the slowest link of its path."""
    network = run.network
    flow = network.flows[row]
    message = run.messages[flow.message]
    at = row * network.stride[0]
    slowest, rate = NONE, NEVER
    while network.ways[at] != NONE:
        port = network.ports[network.ways[at]]
        if port.bits_per_s < rate:
            slowest, rate = network.ways[at], port.bits_per_s
        at += 1
    hops = network.hops
    message.left_ns = max(_engine_time(network, flow.left_ps), message.begin_ns)
    alone_ns = int(message.bytes / hops.fabric.graph.speeds[hops.fabric.graph.speed_of[slowest]].bytes_per_ns)
    observe.message_waited(
        run, flow.message, slowest, hops.tier[flow.port], message.begin_ns, message.left_ns, alone_ns
    )
    message.through = until_left(run, row)


@works_on_tables
def _message_arrived(run: Run, row: int) -> None:
    """Report that a message has arrived; with completion by acknowledgement, it has left, too."""
    counts_as(run.network, run.messages, row)
    flow, now = run.network.flows[row], run.clock[0].now
    message = run.messages[flow.message]
    arrives = max(_engine_time(run.network, flow.arrived_ps), now)
    if message.left_ns == NONE:
        _note_left(run, row)
    flow_ends(run.network, row)
    cause = until_arrived(run, row, arrives)
    if message.done != NONE:
        observe.next_event_follows(run, cause, arrives)
        kind, first, second = sending_end(message.done, message.b, message.c)
        schedule_first(run, arrives, kind, first, second, 0)
        message.done = NONE
    observe.next_event_follows(run, cause, arrives)
    schedule_first(run, arrives, NETWORK + ARRIVAL, flow.message, 0, 0)


@works_on_tables
def _plan_next(run: Run) -> None:
    """Schedule the next run of the kernel."""
    network = run.network
    state, clock = network.state[0], run.clock[0]
    if state.moving == 0:
        return
    time = max(_engine_time(network, next_ps(network)), clock.now)
    if state.planned_ns == NONE or time < state.planned_ns:
        state.planned_ns = time
        state.plans = (state.plans + 1) & MOST_PLANS
        observe.next_event_follows(run, 0, time)  # the causes of a message are recorded when it arrives
        if time == clock.now and next_ps(network) > _ps(network, clock.now):
            schedule(run, time, NETWORK + GO_ON, 0, state.plans, 0)  # a part of this nanosecond is left
        else:
            schedule_first(run, time, NETWORK + GO_ON, 0, state.plans, 0)


@works_on_tables
def _ps(network: Any, time: int) -> int:
    """Convert a time of the engine to picoseconds."""
    return time * network.units[1] // network.units[0]


@works_on_tables
def _last_ps_before(network: Any, time: int) -> int:
    """Return the last picosecond before a time of the engine, whose unit may be less than a picosecond."""
    return (time * network.units[1] - 1) // network.units[0]


@works_on_tables
def _engine_time(network: Any, time: int) -> int:
    """Convert a time of the kernel to the engine's unit."""
    return time * network.units[0] // network.units[1]
