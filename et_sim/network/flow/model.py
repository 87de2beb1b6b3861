"""Flow network: routes share the links on their way max-min fairly; latency is paid once per path.

A route carries messages from one rank to another, those of a group's collectives or those of sends, as a
connection of a library does: those that were sent first go first, and those that were sent together share its
rate equally. Of several routes on one link each gets an equal part, and what one cannot use, because another
of its links gives it less, is left to the others. Rates change only where routes begin or end to be used, and
once per nanosecond.

A message alone takes the latencies of its links and one serialisation on the narrowest of them. It has left
its source when its last byte is on the way, and arrives the latency later; both are cut to whole nanoseconds.
A message to oneself arrives at once, unless there is a switch to pass.

With a protocol (`Network.protocol`), a message is as large as its packets, whose acknowledgements take a part
of the links on the way back; it arrives a packet later for each link but the narrowest, if these are stored
and forwarded, and with completion at acknowledgement, both ends hear of it when the last one is back.

Links that are alike are folded with the ranks: one record stands for all of them (`paths`, `routes`).
Not here: rates (`shares`), and routes (`network.link`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from msgspec import structs

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.basics.units import LONGEST_NS, format_ranks
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import schedule, schedule_at_end
from et_sim.engine.containers import Heap, chain_rows, empty_index, first_of, grow_pool, heap_for, join, leave
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.resources import NO_OWNER, Named, ResourceTable
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import Needs, message_leaves_at, new_message
from et_sim.machine.model import GraphFabric, GridFabric, Network, Notice
from et_sim.machine.transports import Completion, Protocol
from et_sim.network import link
from et_sim.network.fabric import Wires, is_wired_to_itself
from et_sim.network.fabrics import fabric_of
from et_sim.network.flow.records import MESSAGE, ROUTE, SHARED, STATE, USE
from et_sim.network.flow.routes import (
    bytes_of_first_packet,
    bytes_on_wire,
    close_route,
    flight_class,
    home,
    join_route,
    leave_route,
    route_between,
    set_ends,
)
from et_sim.network.flow.shares import plan_end, set_rates
from et_sim.network.link import arrive_at_once
from et_sim.network.paths import LinkPaths
from et_sim.network.settings import settings_row
from et_sim.network.spread import split_tables
from et_sim.plan.records import Plan, table


def goes_back(protocol: Protocol | None) -> bool:
    """Return whether the way back matters."""
    if protocol is None:
        return False
    return protocol.acknowledgement > 0 or protocol.completion is Completion.ACKNOWLEDGEMENT


def capacities(bytes_per_ns: Any, protocol: Protocol | None) -> Any:
    """What full packets find of bandwidths; 0: there is no such link."""
    if protocol is None or not protocol.whole_ns:
        return bytes_per_ns
    packet = protocol.payload + protocol.header
    capacity, exist = np.zeros(len(bytes_per_ns)), bytes_per_ns > 0
    capacity[exist] = packet / _rounded(packet / bytes_per_ns[exist], least=1)
    return capacity


def set_capacities(shared: Any, protocol: Protocol, units: int) -> None:
    """Capacities as full packets find them, and what acknowledgements take; `units`: of time in a ns.

    Of a trunk, a packet finds one link.
    """
    bytes_per_ns, members = shared["wire"] * units, shared["capacity"] / shared["wire"]
    back_ns = protocol.acknowledgement / bytes_per_ns
    if protocol.whole_ns:
        back_ns = _rounded(back_ns, least=0)
    capacity = capacities(bytes_per_ns, protocol)
    shared["wire"] = capacity / units
    shared["capacity"] = capacity / units * members
    shared["back"] = back_ns * capacity / (protocol.payload + protocol.header)
    shared["back_ns"] = back_ns * units


def _rounded(times_ns: Any, least: int) -> Any:
    return np.maximum(np.floor(times_ns + 0.5), least)


def bytes_with_packets(protocol: Protocol | None, size: int) -> int:
    """Return a message of which no more would take longer without a protocol."""
    if protocol is None:
        return size
    packets = -(-size // protocol.payload) + 1
    rounding = 2 if protocol.whole_ns else 1
    return rounding * packets * (protocol.payload + protocol.header + protocol.acknowledgement)


HAS_CONTENTION = True
HAS_PROTOCOLS = True
REACHES_SWITCHES = True
FOLDS_GRAPHS = True
SHARE, END, ARRIVAL = 0, 1, 2  # rates are due; a message is through; a message is at its target
MOST_PLANS = (1 << 30) - 1  # the largest number of a plan
SAME_NS = 2.0**-11  # a flow that ends so shortly before a nanosecond ends in it: rates are rounded


@quick_dataclass(frozen=True)
class FlowTables(Tables):
    """What compiled code knows."""

    hops: Any  # the tables of the link model
    ways: Any  # `SplitTables`
    class_of: Any  # per link of these: the row of those that are alike
    ranks_of: Any  # per actor
    state: Any
    shared: Any  # per class of links
    routes: Any
    uses: Any
    index: Any  # of the routes, by their ends
    ends: Heap  # routes by the end of their next message
    shares: Heap  # links whose flows get rates
    part_links: Any  # those that are looked at for it
    part_routes: Any  # those whose rates are set
    longest: Any  # the most links of a route, and of the way back
    protocol: Any  # one row


def check(network: Network, most_bytes: int = 0) -> None:
    """Refuse networks without single links, and messages that would take too long."""
    link.check(network, bytes_with_packets(network.protocol, most_bytes))


def remarks(network: Network) -> list[Notice]:
    """Return keys of packets that were given for nothing."""
    given = network.protocol.of_packets_only if network.protocol is not None else ()
    text = f"no effect on the flow model, only on packet: {', '.join(given)}"
    return [Notice("network configuration", "protocol", text)] if given else []


def tables(network: Network, plan: Plan) -> FlowTables:
    """Return all links, idle."""
    hops: Any = link.tables_of(network, np.arange(network.ranks))
    class_of, first = _classes_of_links(plan, len(hops.links))
    state, shared = table(STATE, 1), table(SHARED, len(first))
    state["head"] = state["tail"] = NONE
    state["longer"] = state["changed"] = state["planned_ns"] = NONE
    state["free_routes"]["head"] = state["free_uses"]["head"] = NONE
    shared["speed"] = hops.links["speed"][first]
    shared["capacity"] = hops.fabric.speeds["bytes_per_ns"][shared["speed"]]
    members = network.fabric.routed.graph.members if isinstance(network.fabric, GraphFabric) else None
    shared["wire"] = shared["capacity"] / (1 if members is None else members[first])
    shared["links"] = np.bincount(class_of)
    shared["head"] = NONE
    if network.protocol is not None:
        set_capacities(shared, network.protocol, 1 << network.fraction_bits)
    ways = split_tables(network)
    longest = len(ways.link) or fabric_of(network).most_links(network)
    return FlowTables(
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
        settings_row(network.protocol or Protocol(), goes_back=goes_back(network.protocol)),
    )


def _classes_of_links(plan: Plan, links: int) -> tuple[Any, Any]:
    """(the class of each link, the first link of each class)."""
    if plan.link_classes is None:
        return np.arange(links, dtype=np.int32), np.arange(links)
    return plan.link_classes, np.unique(plan.link_classes, return_index=True)[1]


def grown(tables: FlowTables, rows: int) -> FlowTables:
    """Return the tables with room for this many more routes and their links."""
    state = tables.state[0]
    rows += int(state.to_begin)
    uses = rows * int(tables.longest[0])
    if state.free_routes.rows < rows:
        routes = grow_pool(tables.routes, state.free_routes, rows)
        tables = replace(
            tables,
            routes=routes,
            index=_index_of(routes),
            ends=heap_for(len(routes), tables.ends),
            part_routes=np.resize(tables.part_routes, len(routes)),
        )
    if state.free_uses.rows < uses:
        tables = replace(tables, uses=grow_pool(tables.uses, state.free_uses, uses))
    return tables


def _index_of(routes: Any) -> Any:
    """Where the search for each route begins that is open."""
    index, rows = empty_index(len(routes)), np.flatnonzero(routes["messages"] > 0)
    source, target, ports = (routes[name][rows].astype(np.int64) for name in ("source", "target", "ports"))
    messages = routes["kind"][rows].astype(np.int64) + routes["member"][rows]
    chain_rows(routes, index, rows, home(index, source, target, ports, messages))
    return index


def resources(network: Network, plan: Plan) -> ResourceTable:
    """Return every link, or the first of those that are alike, and the names of all."""
    links = link.resources_of(network, np.arange(network.ranks))
    class_of, first = _classes_of_links(plan, len(links))
    actor = np.where(links.actor == NO_OWNER, NO_OWNER, plan.actor_of_rank[links.actor])
    return structs.replace(
        links,
        actor=actor[first],
        dimension=links.dimension[first],
        port=links.port[first],
        tier=links.tier[first],
        bytes_per_ns=capacities(links.bytes_per_ns[first], network.protocol),
        are_shared=True,
        links=np.bincount(class_of, links.members).astype(np.int64),
        members=None if links.members is None else links.members[first],
        ends=None if links.ends is None else links.ends.where(first),
        named=None if plan.link_classes is None else _named(links, class_of, actor, plan.actor_of_rank),
    )


def _named(links: ResourceTable, class_of: Any, actor: Any, actor_of_rank: Any) -> Named:
    """Return links by class, actor and name, the first of each class before all others."""
    of_actor = class_of.astype(np.int64) * (int(actor.max()) + 2) + actor + 1
    key = of_actor * len(links.port_names) + links.port
    _, at, of_link, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    is_first = at == np.unique(class_of, return_index=True)[1][class_of[at]]
    order = np.lexsort((np.where(is_first, class_of[at], at), ~is_first))
    owners = np.split(links.actor[np.argsort(of_link, kind="stable")], np.cumsum(counts)[:-1])
    most = np.append(np.bincount(actor_of_rank), 1)[actor[at]]  # the last: nobody's
    ranks = tuple(
        format_ranks(owners[name].tolist()) if counts[name] < most[name] else None for name in order.tolist()
    )
    at = at[order]
    return Named(
        row=class_of[at],
        actor=actor[at],
        port=links.port[at],
        links=np.bincount(of_link, links.members).astype(np.int64)[order],
        ranks=ranks,
        ends=None if links.ends is None else links.ends.where(at),
    )


def carried(tables: FlowTables) -> Any:
    """Bytes, by link, or by those that are alike: of each of them."""
    return tables.shared["bytes"]


def path_keys(network: Network, **_: bool) -> LinkPaths | None:
    """What folding must tell apart: links as well as ranks; None: ways differ from message to message."""
    links = link.resources_of(network, np.arange(network.ranks))
    hops: Any = link.tables_of(network, np.arange(network.ranks))
    if isinstance(network.fabric, GraphFabric) and len(hops.sent):
        return None
    of_port = links.port if isinstance(network.fabric, GridFabric) else np.zeros_like(links.port)
    members = np.zeros_like(links.port) if links.members is None else links.members
    kinds = np.stack([links.tier, of_port, hops.links["speed"], members])
    return LinkPaths(
        Wires(hops.fabric, hops.home, hops.first, hops.tier, hops.sent),
        np.unique(kinds, axis=1, return_inverse=True)[1].reshape(-1),
        fabric_of(network).most_links(network),
        are_shared=True,
        goes_back=goes_back(network.protocol),
        ways=split_tables(network),
    )


def needs(_network: Network) -> Needs:
    """Return a row of the message pool for each message; an end, or rates, may be planned once more."""
    return Needs(causal_events=4, record=MESSAGE, events=2)


@works_on_tables
def rows_left(run: Run) -> int:
    """Messages, and routes with their links."""
    state = run.network.state[0]
    routes = min(state.free_routes.rows, state.free_uses.rows // run.network.longest[0])
    return min(run.clock[0].free_messages.rows, routes - state.to_begin)


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """It is under way when all else in this nanosecond has happened, and changes the rates of others."""
    if source == target and not is_wired_to_itself(run.network.hops):
        arrive_at_once(run, target, size, kind, a, b, c, done)
        return
    message_row = new_message(run, target, size, kind, a, b, c, done)
    observe.message_shares(run, message_row)
    run.messages[message_row].source = source
    join(run.messages, run.network.state[0], message_row)
    run.network.state[0].to_begin += 1
    _share_later(run)


@works_on_tables
def network_event(run: Run, kind: int, row: int, version: int) -> int:
    """Rates are set, or a message is through; returns a message that is at its target."""
    if kind == ARRIVAL:
        return row
    state, clock = run.network.state[0], run.clock[0]
    if kind == SHARE:
        state.is_due = 0
        _begin_all(run)
        set_rates(run)
        _plan_next(run)
    elif state.planned_ns != NONE and version == state.plans:  # otherwise something else has been planned
        state.planned_ns = NONE
        _end(run, first_of(run.network.ends))
        if state.is_due == 0 or _ends_ns(run) <= clock.now:
            _plan_next(run)
    return NONE


@works_on_tables
def _begin_all(run: Run) -> None:
    """The messages that were sent in this nanosecond are under way, from when all ends in it are over."""
    state = run.network.state[0]
    state.changes_ns = max(state.changes_ns, float(run.clock[0].now))
    state.batch += 1
    while state.head != NONE:
        message_row = leave(run.messages, state)
        message = run.messages[message_row]
        route_row = route_between(run, message.source, message.target, message_row)
        join_route(run, route_row, message_row)
    set_ends(run)
    state.to_begin = 0


@works_on_tables
def _share_later(run: Run) -> None:
    """Rates are due when all else in this nanosecond has happened."""
    state = run.network.state[0]
    if state.is_due == 0:
        state.is_due = 1
        schedule_at_end(run, NETWORK + SHARE, 0, 0, 0)


@works_on_tables
def _end(run: Run, route_row: int) -> None:
    """The first message of a route is through; it arrives when the latencies are over."""
    state, route, now = run.network.state[0], run.network.routes[route_row], run.clock[0].now
    state.changes_ns = max(state.changes_ns, route.ends_ns)
    message_row = leave_route(run, route_row)
    message = run.messages[message_row]
    observe.message_through(run, message)
    arrives = int(_arrives(run, route, message) + SAME_NS)
    alone_ns = int(bytes_on_wire(run.network, message.bytes) / route.narrowest)
    link_class = run.network.shared[route.bottleneck].speed
    through = observe.message_shared(
        run, message_row, route.bottleneck, link_class, route.dimension, message.begin_ns, now, alone_ns
    )
    if observe.notes_traffic(run):  # of links that are as full, no order says which one held it up
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
            _share_later(run)
    else:
        plan_end(run, route_row)


@works_on_tables
def _arrives(run: Run, route: Any, message: Any) -> float:
    """When a message arrives whose last byte sets out now."""
    protocol, time = run.network.protocol[0], route.ends_ns + route.latency_ns
    if protocol.store_and_forward:
        time += route.stored_ns * bytes_of_first_packet(run.network, message.bytes)
    return time + route.back_ns if protocol.completion else time


@works_on_tables
def _plan_next(run: Run) -> None:
    """Have the next message end in time."""
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
    """When the next message ends; never, if none is under way."""
    first = first_of(run.network.ends)
    return LONGEST_NS if first == NONE else int(run.network.routes[first].ends_ns + SAME_NS)
