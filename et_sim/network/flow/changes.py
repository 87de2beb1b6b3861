"""Changes of links within a run, made between two events, and the messages that they stop for ever."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.compiled.interpreted import interpret
from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE
from et_sim.engine.state.run import Run
from et_sim.engine.transport.network_seam import LostMessages
from et_sim.machine.model import GraphFabric, Network
from et_sim.network import graph
from et_sim.network.fabric import Wires
from et_sim.network.fabrics import fabric_of
from et_sim.network.flow.capacities import set_capacities
from et_sim.network.flow.held import hold, plan_try, split_again
from et_sim.network.flow.pools import grown
from et_sim.network.flow.records import SHARED
from et_sim.network.flow.routes import mark_changed
from et_sim.network.flow.shares import share_later
from et_sim.network.outages import LinkState, link_states, longest_by_failure, rows_of, with_other_paths
from et_sim.network.paths import Routed
from et_sim.network.route_tables import route_tables
from et_sim.network.spread import most_links_of_split, split_tables
from et_sim.plan.records import table


def most_links_over_time(network: Network) -> int:
    """Return the largest number of links of a message in any state of the network."""
    most = most_links_of_split(network) or fabric_of(network).most_links(network)
    return max([most, *(most_links_without(network, state.avoided) for state in _other_routings(network))])


def most_links_without(network: Network, avoided: Any) -> int:
    """Return the largest number of links of a message on a graph without some of its links."""
    return most_links_of_split(network, avoided) or graph.most_links(network, avoided)


def ways_around(network: Network, hops: Any) -> tuple[Routed, ...]:
    """Return the tables of paths of each further state in which messages avoid links."""
    found: list[Routed] = []
    for state in _other_routings(network):
        routes = route_tables(network, state.avoided, state.weights)
        fabric = replace(hops.fabric, graph=replace(hops.fabric.graph, routes=routes))
        most = most_links_without(network, state.avoided)
        wires = Wires(fabric, hops.home, hops.first, hops.tier, hops.sent)
        found.append(Routed(wires, split_tables(network, most), most))
    return tuple(found)


def _other_routings(network: Network) -> list[LinkState]:
    """Return the states in which messages take other paths, or other shares of them, than without failures;
    of those with equal paths, the first.
    """
    return with_other_paths(network, link_states(network)) if network.failures else []


def in_state(tables: Any, network: Network, state: LinkState) -> Any:
    """Return the tables with the links in a state; rates are not set."""
    first = np.unique(tables.class_of, return_index=True)[1]
    shared, is_dead = tables.shared, state.left[first] == 0
    now = table(SHARED, len(first))
    for name in ("capacity", "wire"):
        now[name] = _usual(tables, network, first, name) * state.weights[first]
    if network.protocol is not None:
        set_capacities(now, network.protocol, 1 << network.fraction_bits)
    for name in ("capacity", "wire", "back", "back_ns"):
        shared[name] = now[name]
    shared["is_dead"] = is_dead
    if not isinstance(network.fabric, GraphFabric):
        return tables
    fabric = tables.hops.fabric
    routed = replace(fabric.graph, routes=route_tables(network, state.avoided, state.weights))
    return replace(tables, hops=replace(tables.hops, fabric=replace(fabric, graph=routed)))


def _usual(tables: Any, network: Network, first: Any, name: str) -> Any:
    """Return the bandwidth of each class of links without failures, or that of one link of a trunk."""
    whole = tables.hops.fabric.speeds["bytes_per_ns"][tables.shared["speed"]]
    fabric = network.fabric
    members = fabric.routed.graph.members if isinstance(fabric, GraphFabric) else None
    return whole / (1 if name == "capacity" or members is None else members[first])


def changed(run: Run, network: Network, state: LinkState) -> Run:
    """Return the run in a new state of the links, from the present time on."""
    before = run.network.shared["capacity"].copy()
    tables = in_state(run.network, network, state)
    tables.shared["is_altered"] |= tables.shared["capacity"] != before
    tables = grown(tables, len(tables.routes) - int(tables.state[0].free_routes.rows))
    run = replace(run, network=tables)
    rows = np.flatnonzero(tables.shared["is_dead"] | tables.shared["is_altered"])
    altered = np.flatnonzero(tables.shared["is_altered"]) if len(tables.ways.link) else rows[:0]
    interpret(_take_effect, (run, rows, _routes_on(tables, altered)))
    return run


def _routes_on(tables: Any, links: Any) -> Any:
    """Return the routes that use some links, each once."""
    found: dict[int, None] = {}
    for link in links.tolist():
        at = int(tables.shared["head"][link])
        while at != NONE:
            found[int(tables.uses["route"][at])] = None
            at = int(tables.uses["after"][at])
    return np.array([*found], np.int64)


@works_on_tables
def _take_effect(run: Run, rows: Any, to_split: Any) -> None:
    """Hold routes on dead links, have the rates on others set, and split the messages of routes anew."""
    network = run.network
    for at in range(len(rows)):
        row = int(rows[at])
        link = network.shared[row]
        while link.is_dead and link.head != NONE:
            hold(run, network.uses[link.head].route)
        mark_changed(network, row)
    for at in range(len(to_split)):
        if not network.routes[to_split[at]].is_held:
            split_again(run, int(to_split[at]))
    share_later(run)
    plan_try(run)


def longest_waits(run: Run, network: Network) -> list[int]:
    """Return the longest wait of messages for each failure, in ns; 0: none lost bytes there."""
    routes, waited = run.network.routes, run.network.shared["waited_ns"].copy()
    for row in np.flatnonzero((routes["is_held"] == 1) & (routes["messages"] > 0)).tolist():
        link = int(routes["lost_on"][row])
        waited[link] = max(int(waited[link]), int(run.clock[0].now - routes["lost_ns"][row]))
    return longest_by_failure(network, waited[run.network.class_of] >> network.fraction_bits)


def lost_messages(run: Run, network: Network) -> LostMessages | None:
    """Return the messages whose senders have given up; None if there are none."""
    routes = run.network.routes
    held = np.flatnonzero((routes["is_held"] == 1) & (routes["messages"] > 0))
    if not len(held):
        return None
    rows = []
    for row in held.tolist():
        at = int(routes["head"][row])
        while at != NONE:
            rows.append(at)
            at = int(run.messages["next"][at])
    first = held[np.lexsort((held, routes["lost_ns"][held]))][0]
    link = int(routes["lost_on"][first])
    link_row = int(np.flatnonzero(run.network.class_of == link)[0])
    lost_ns = int(routes["lost_ns"][first])
    ends = int(routes["source"][first]), int(routes["target"][first])
    links = tuple(rows_of(network, failure) for failure in network.failures)
    return LostMessages(rows, link_row, links, ends, lost_ns, int(routes["tries"][first]))
