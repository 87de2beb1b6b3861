"""Packet network: packets that queue at ports, with buffers, pauses and congestion control.

A packet is serialised on each link, stored, and forwarded, and waits in queues. The kernel has a calendar of
its own, and times in picoseconds; outside they are rounded down to the engine's unit.

A message to its own rank arrives at once. Nothing is folded.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.compiled.interpreted import interpret
from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.containers import grow_pool, longer
from et_sim.engine.state.queue_tables import Queues, new_queues, no_queues
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import Needs
from et_sim.machine.model import Network
from et_sim.machine.transports import PS_PER_NS, Window
from et_sim.network import graph, link
from et_sim.network.flow.changes import most_links_over_time
from et_sim.network.flow.model import bytes_with_packets
from et_sim.network.graph_of_grid import with_single_ways
from et_sim.network.outages import LinkState
from et_sim.network.packet import setup
from et_sim.network.packet.calendar import Calendar, new_calendar, with_timers
from et_sim.network.packet.changes import check_failures, in_next_state, in_state
from et_sim.network.packet.changes import link_states as link_states
from et_sim.network.packet.changes import longest_waits as longest_waits
from et_sim.network.packet.changes import lost_messages as lost_messages
from et_sim.network.packet.controls import keeps_rates, new_control
from et_sim.network.packet.events import inject as inject
from et_sim.network.packet.events import network_event as network_event
from et_sim.network.packet.events import plan_next
from et_sim.network.packet.events import rows_left as rows_left
from et_sim.network.packet.kernel import EVENTS_AT_ONCE, PACKETS_PER_EVENT
from et_sim.network.packet.randomness import streams_of_ns3
from et_sim.network.packet.records import FLOW, MESSAGE, PACKET, SENDING, STATE, STEADY
from et_sim.network.packet.repeats import pictures
from et_sim.network.packet.results import again as again
from et_sim.network.packet.results import carried as carried
from et_sim.network.packet.results import packets_sent as packets_sent
from et_sim.network.packet.results import payload_of_packets as payload_of_packets
from et_sim.network.packet.results import ports_counted as ports_counted
from et_sim.network.packet.results import ports_in_a_circle as ports_in_a_circle
from et_sim.network.packet.results import resources as resources
from et_sim.network.packet.roce import transport as roce
from et_sim.network.packet.roce.transport import RoceTables
from et_sim.network.packet.setup import check_protocol, protocol_of
from et_sim.network.packet.tcp import transport as tcp
from et_sim.network.packet.tcp.transport import MOST_RECEIVES, TcpTables
from et_sim.network.paths import WALKER
from et_sim.network.senders import recovery_row
from et_sim.plan.records import LoweredPlan, table

HAS_CONTENTION = True
HAS_PROTOCOLS = True
HAS_FAILURES = True
RECORDS_IN_ONE_FORM = True
TAKES_SINGLE_WAYS = True
WITH_CREDITS = "et_sim.network.packet.credit.model"


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
    protocol = protocol_of(network)
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


def tables(network: Network, _plan: LoweredPlan) -> PacketTables:
    """Return the tables with all links idle."""
    wired, protocol = with_single_ways(network), protocol_of(network)
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
    run = in_next_state(run, network, protocol_of(network), state)
    interpret(plan_next, (run,))
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


def path_keys(_network: Network, **_: bool) -> None:
    """Return None: packets of all ranks share queues."""
    return


def needs(network: Network) -> Needs:
    """Return the needs: a row of the message pool per message, one more run of the kernel, and begins of
    messages.
    """
    protocol, wired = protocol_of(network).packets.tcp, with_single_ways(network)
    further = MOST_RECEIVES if protocol is not None and protocol.pads else 0
    classes = min(len(graph.class_names(wired)), 2 * graph.most_links(wired))  # on the ways there and back
    parts = 8 + 2 * classes  # of the time of a message
    return Needs(causal_events=parts + further, record=MESSAGE, events=3 + further)
