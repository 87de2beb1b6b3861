"""Flow network: routes share the links of their paths max-min fairly; latency is paid once per path.

A route carries the messages from one rank to another, either those of a group's collectives or those of
sends, like a connection of a library: earlier messages go first, and messages sent together share its rate
equally. The routes on a link get equal parts of it. A part that a route cannot use, because another link
gives it less, goes to the other routes. Rates change only where routes start or stop being used, and once per
nanosecond.

A lone message takes the latencies of its links and one serialisation on the narrowest of them. It leaves its
source when its last byte has been sent, and arrives the latency later; both times are rounded down. A message
to its own rank arrives at once unless it passes a switch.

With a protocol (`Network.protocol`), a message has the size of its packets, and their acknowledgements use a
part of the links of the way back. With store and forward, it arrives one packet later for each link but the
narrowest. With completion at acknowledgement, both ends are notified when the last acknowledgement is back.

Equal links are folded with the ranks: one record stands for all of them (`paths`, `routes`). `shares` sets
the rates.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct, structs
from msgspec.structs import replace

from et_sim.basics.units import LONGEST_NS
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.containers import Heap, empty_index, first_of, heap_for, join, leave
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import Needs, message_leaves_at, new_message
from et_sim.machine.model import GraphFabric, GridFabric, Network, Notice
from et_sim.machine.transports import Completion, PacketProtocol
from et_sim.network import grid, link
from et_sim.network.fabric import Wires, is_wired_to_itself
from et_sim.network.fabrics import fabric_of
from et_sim.network.flow.capacities import capacities, set_capacities
from et_sim.network.flow.changes import changed as changed
from et_sim.network.flow.changes import in_state, most_links_over_time, ways_around
from et_sim.network.flow.changes import longest_waits as longest_waits
from et_sim.network.flow.changes import lost_messages as lost_messages
from et_sim.network.flow.held import hold_if_dead, plan_try, try_again
from et_sim.network.flow.pools import grown as grown
from et_sim.network.flow.records import (
    ARRIVAL,
    END,
    MESSAGE,
    RING,
    ROUTE,
    SAME_NS,
    SHARE,
    SHARED,
    STATE,
    TRY,
    USE,
)
from et_sim.network.flow.rings import ahead as ahead
from et_sim.network.flow.rings import goes_round as goes_round
from et_sim.network.flow.routes import (
    bytes_of_first_packet,
    bytes_on_wire,
    close_route,
    flight_class,
    join_route,
    leave_route,
    route_between,
    set_ends,
)
from et_sim.network.flow.shares import plan_end, set_rates, share_later
from et_sim.network.link import arrive_at_once
from et_sim.network.link_classes import classes_of_links, first_of_classes, kinds_of_links
from et_sim.network.outages import link_states
from et_sim.network.paths import LinkPaths
from et_sim.network.senders import recovery_row
from et_sim.network.settings import settings_row
from et_sim.network.spread import split_tables
from et_sim.plan.records import LoweredPlan, table


def goes_back(protocol: PacketProtocol | None) -> bool:
    """Return whether acknowledgements use the links of the way back or set the completion."""
    if protocol is None:
        return False
    return protocol.acknowledgement > 0 or protocol.completion is Completion.ACKNOWLEDGEMENT


def bytes_with_packets(protocol: PacketProtocol | None, size: int) -> int:
    """Return the size of a message that takes at least as long without a protocol."""
    if protocol is None:
        return size
    packets = -(-size // protocol.payload) + 1
    rounding = 2 if protocol.whole_ns else 1
    return rounding * packets * (protocol.payload + protocol.header + protocol.acknowledgement)


HAS_CONTENTION = True
HAS_PROTOCOLS = True
REACHES_SWITCHES = True
FOLDS_GRAPHS = True
HAS_FAILURES = True
EVALUATES_AHEAD = True
MOST_PLANS = (1 << 30) - 1  # the largest number of a plan


class FlowTables(Tables, Struct, frozen=True):
    """Tables of the flow model for compiled code."""

    hops: Any  # the tables of the link model
    ways: Any  # `SplitTables`
    class_of: Any  # per link of these: the row of its class
    ranks_of: Any  # per actor
    state: Any
    shared: Any  # per class of links
    routes: Any
    uses: Any
    index: Any  # of the routes, by their ends
    ends: Heap  # routes by the end of their next message
    shares: Heap  # links whose flows get rates
    part_links: Any  # links that are considered for it
    part_routes: Any  # routes whose rates are set
    longest: Any  # the most links of a route and its way back
    protocol: Any  # one row
    recovery: Any  # one row if parts fail
    # Where rings are evaluated at once: per member; per program; links of rings; times of steps of a phase.
    rings: Any
    ring_programs: Any
    ring_links: Any
    ring_posts: Any


def check(network: Network, most_bytes: int = 0) -> None:
    """Refuse networks without single links, and messages that would take too long."""
    link.check(network, bytes_with_packets(network.protocol, most_bytes))


def remarks(network: Network) -> list[Notice]:
    """Return a notice about keys of packets that have no effect on this model."""
    given = network.protocol.of_packets_only if network.protocol is not None else ()
    text = f"no effect on the flow model, only on packet: {', '.join(given)}"
    return [Notice("network configuration", "protocol", text)] if given else []


def tables(network: Network, plan: LoweredPlan) -> FlowTables:
    """Return the tables with all links idle."""
    hops: Any = link.tables_of(network, np.arange(network.ranks))
    class_of, first = classes_of_links(plan, len(hops.links))
    state, shared = table(STATE, 1), table(SHARED, len(first))
    state["head"] = state["tail"] = NONE
    state["longer"] = state["changed"] = state["planned_ns"] = NONE
    state["first_held"] = state["tries_ns"] = NONE
    state["free_routes"]["head"] = state["free_uses"]["head"] = NONE
    state["places"] = 1
    shared["speed"] = hops.links["speed"][first]
    shared["capacity"] = hops.fabric.speeds["bytes_per_ns"][shared["speed"]]
    members = network.fabric.routed.graph.members if isinstance(network.fabric, GraphFabric) else None
    shared["wire"] = shared["capacity"] / (1 if members is None else members[first])
    shared["links"] = np.bincount(class_of)
    shared["head"] = NONE
    if network.protocol is not None:
        set_capacities(shared, network.protocol, 1 << network.fraction_bits)
    if network.failures:
        longest = most_links_over_time(network)
        ways = split_tables(network, longest)
    else:
        ways = split_tables(network)
        longest = len(ways.link) or fabric_of(network).most_links(network)
    made = FlowTables(
        hops,
        ways,
        class_of,
        np.bincount(plan.actor_of_rank),
        state,
        shared,
        table(ROUTE, 0),
        table(USE, 0),
        empty_index(0),
        heap_for(0),
        heap_for(len(shared)),
        np.zeros(len(shared), np.int32),
        np.zeros(0, np.int32),
        np.array([longest * 2 if goes_back(network.protocol) else longest]),
        settings_row(network.protocol or PacketProtocol(), goes_back=goes_back(network.protocol)),
        recovery_row(network),
        table(RING, 0),
        np.zeros(0, np.int8),
        np.zeros(0, np.int32),
        np.zeros(0, np.int64),
    )
    return in_state(made, network, link_states(network)[0]) if network.failures else made


def rewritten(tables: FlowTables, before: Network, network: Network) -> bool:
    """Write the figures of a network into the tables of the one before; return False if more differs."""
    fabric: Any = fabric_of(network)
    are_plain = not any(each.protocol or each.failures for each in (before, network))
    if not are_plain or not fabric.rewritten(tables.hops.fabric, before, network):
        return False
    shared = tables.shared
    shared["capacity"] = tables.hops.fabric.speeds["bytes_per_ns"][shared["speed"]]
    members = network.fabric.routed.graph.members if isinstance(network.fabric, GraphFabric) else None
    if members is None:
        shared["wire"] = shared["capacity"]
    else:
        shared["wire"] = shared["capacity"] / members[np.unique(tables.class_of, return_index=True)[1]]
    return True


def resources(network: Network, plan: LoweredPlan) -> ResourceTable:
    """Return every link, or the first of each class, with the names of all."""
    links = link.resources_of(network, np.arange(network.ranks))
    links = structs.replace(links, bytes_per_ns=capacities(links.bytes_per_ns, network.protocol))
    return structs.replace(first_of_classes(links, plan), are_shared=True)


def carried(tables: FlowTables) -> Any:
    """Return the bytes that each link, or each link of a class, has carried."""
    return tables.shared["bytes"]


def path_keys(network: Network, **_: bool) -> LinkPaths | None:
    """Return the keys for folding, which cover links as well as ranks; None: paths differ by message."""
    if isinstance(network.fabric, GridFabric):
        network = replace(network, fabric=grid.of_wires(network.fabric))
    links = link.resources_of(network, np.arange(network.ranks))
    hops: Any = link.tables_of(network, np.arange(network.ranks))
    if isinstance(network.fabric, GraphFabric) and len(hops.sent):
        return None
    return LinkPaths(
        Wires(hops.fabric, hops.home, hops.first, hops.tier, hops.sent),
        kinds_of_links(network, links, hops.links["speed"]),
        fabric_of(network).most_links(network),
        are_shared=True,
        goes_back=goes_back(network.protocol),
        ways=split_tables(network),
        later=ways_around(network, hops),
    )


def needs(network: Network) -> Needs:
    """Return the needs: a row of the message pool per message; an end, or rates, may be planned twice, and a
    try once.
    """
    return Needs(causal_events=4, record=MESSAGE, events=3 if network.failures else 2)


@works_on_tables
def rows_left(run: Run) -> int:
    """Return the number of messages that fit in the free rows of messages, routes and links."""
    state = run.network.state[0]
    routes = min(state.free_routes.rows, state.free_uses.rows // run.network.longest[0])
    return min(run.clock[0].free_messages.rows, routes - state.to_begin - state.held)


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """Start a message after all other events of this nanosecond; it changes the rates of others."""
    if source == target and not is_wired_to_itself(run.network.hops):
        arrive_at_once(run, target, size, kind, a, b, c, done)
        return
    message_row = new_message(run, target, size, kind, a, b, c, done)
    observe.message_shares(run, message_row)
    run.messages[message_row].source = source
    join(run.messages, run.network.state[0], message_row)
    run.network.state[0].to_begin += 1
    share_later(run)


@works_on_tables
def network_event(run: Run, kind: int, row: int, version: int) -> int:
    """Set rates, or end a message; return a message that is at its target, or NONE."""
    if kind == ARRIVAL:
        return row
    state, clock = run.network.state[0], run.clock[0]
    if kind == SHARE:
        state.is_due = 0
        _begin_all(run)
        set_rates(run)
        _plan_next(run)
        plan_try(run)
    elif kind == TRY:
        if try_again(run):
            share_later(run)
        plan_try(run)
    elif state.planned_ns != NONE and version == state.plans:  # otherwise another event was planned later
        state.planned_ns = NONE
        if len(run.network.recovery) == 0 or _ends_ns(run) <= clock.now:  # else a link died just now
            _end(run, first_of(run.network.ends))
        if state.is_due == 0 or _ends_ns(run) <= clock.now:
            _plan_next(run)
    return NONE


@works_on_tables
def _begin_all(run: Run) -> None:
    """Start the messages of this nanosecond when all ends in it are handled."""
    state = run.network.state[0]
    state.batch += 1
    while state.head != NONE:
        message_row = leave(run.messages, state)
        message = run.messages[message_row]
        route_row = route_between(run, message.source, message.target, message_row)
        join_route(run, route_row, message_row)
        if len(run.network.recovery) > 0:
            hold_if_dead(run, route_row)
    set_ends(run)
    state.to_begin = 0


@works_on_tables
def _end(run: Run, route_row: int) -> None:
    """End the first message of a route, and schedule its arrival after the latencies."""
    route, now = run.network.routes[route_row], run.clock[0].now
    message_row = leave_route(run, route_row)
    message = run.messages[message_row]
    observe.message_through(run, message)
    arrives = int(_arrives(run, route, message) + SAME_NS)
    alone_ns = int(bytes_on_wire(run.network, message.bytes) / route.narrowest)
    link_class = run.network.shared[route.bottleneck].speed
    through = observe.message_shared(
        run, message_row, route.bottleneck, link_class, route.dimension, message.begin_ns, now, alone_ns
    )
    if observe.notes_traffic(run):  # among equally full links, no order shows which one limited it
        at = route.uses.head
        while at != NONE:
            if not run.network.uses[at].is_back:
                observe.link_held_up(run, message_row, run.network.uses[at].link)
            at = run.network.uses[at].next
    if observe.describes_causes(run):
        observe.next_event_flies(run, through, now, flight_class(run.network, route))
    schedule(run, max(arrives, now), NETWORK + ARRIVAL, message_row, 0, 0)
    left = arrives if run.network.protocol[0].completion else now
    message_leaves_at(run, message, left, through, now)
    if route.messages == 0:
        if close_route(run, route_row):
            share_later(run)
    else:
        plan_end(run, route_row)


@works_on_tables
def _arrives(run: Run, route: Any, message: Any) -> float:
    """Return when a message arrives whose last byte is sent now."""
    protocol, time = run.network.protocol[0], route.ends_ns + route.latency_ns
    if protocol.store_and_forward:
        time += route.stored_ns * bytes_of_first_packet(run.network, message.bytes)
    return time + route.back_ns if protocol.completion else time


@works_on_tables
def _plan_next(run: Run) -> None:
    """Schedule the end of the next message."""
    state, clock = run.network.state[0], run.clock[0]
    if first_of(run.network.ends) == NONE:
        state.planned_ns = NONE
        return
    ends = max(_ends_ns(run), clock.now)
    if ends != state.planned_ns:
        state.planned_ns = ends
        state.plans = (state.plans + 1) & MOST_PLANS
        schedule(run, ends, NETWORK + END, 0, state.plans, 0)


@works_on_tables
def _ends_ns(run: Run) -> int:
    """Return when the next message ends, or LONGEST_NS if there is none."""
    first = first_of(run.network.ends)
    return LONGEST_NS if first == NONE else int(run.network.routes[first].ends_ns + SAME_NS)
