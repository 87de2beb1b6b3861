"""Max-min fair rates: no flow can have more without taking it from one that has no more.

A flow's bottleneck is a full link of its path on which no flow has more. Rates are max-min fair if every flow
has a bottleneck; exactly one set of rates is. So only some flows need new rates when others begin or end:

1. Flows that begin, and flows whose bottleneck is a link on which others began or ended. All
   others keep their rates.
2. Links are filled together with the capacity they have left. The link with the smallest share sets the rate
   of all its flows, which is subtracted from their other links, and so on for the remaining flows.
3. On each of these links, flows that kept their rates may have lost their bottleneck, because the link is no
   longer full or a flow has more. They may also have more than the flows that were set, and limit these. All
   such flows are set again from step 2, until there are none.

The load of a link is summed anew each time, so that rounding errors do not accumulate.

Acknowledgements take their part of the links of the way back, at the rate of the traffic they acknowledge;
the link with the smallest share may be one of those. `model` decides when rates are set.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule_at_end
from et_sim.engine.containers import first_of, put, take_out
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.run import NONE, Run
from et_sim.network.flow.records import SHARE
from et_sim.network.flow.routes import carry, is_alone, serve

EQUAL = 1 - 2.0**-40  # rates and loads within this are equal: they are sums of rounded numbers
LEAST_SHARE = 2.0**-40  # of a flow on a link, after others were subtracted from a sum with it
FEW_ROUNDS = 16  # after which all connected flows are set again


@works_on_tables
def set_rates(run: Run) -> None:
    """Set the rates of all flows that are affected by changes since the last call."""
    network, state = run.network, run.network.state[0]
    state.part += 1
    opened, routes, links = state.opened, 0, 0
    state.opened = 0
    state.changes_ns = max(state.changes_ns, float(run.clock[0].now))
    for at in range(opened):
        row = network.part_routes[at]
        if not _set_alone(run, row):
            network.part_routes[routes] = row
            routes += 1
            state.changes_ns = max(state.changes_ns, _ended_ns(network, row))
    for at in range(routes):
        row = network.part_routes[at]
        serve(network.routes[row], state.changes_ns)
        links = _count_links(run, row, links)
    routes, links = _take_changed(run, routes, links)
    if links == 0:
        return
    rounds, before = 0, -1
    while routes > before:
        before = routes
        _fill(network, routes, links)
        routes, links = _take_unfair(run, routes, links, rounds >= FEW_ROUNDS)
        rounds += 1
    for at in range(routes):
        row = network.part_routes[at]
        network.shared[network.routes[row].bottleneck].bound += 1
        plan_end(run, row)
    for at in range(links):
        link = network.shared[network.part_links[at]]
        link.rate = link.capacity - link.left


@works_on_tables
def _ended_ns(network: Any, row: int) -> float:
    """Return when the last message on a route's links ended."""
    time, at = 0.0, network.routes[row].uses.head
    while at != NONE:
        use = network.uses[at]
        time = max(time, network.shared[use.link].ended_ns)
        at = use.next
    return time


@works_on_tables
def _crosses_dead(network: Any, row: int) -> bool:
    """Return whether a link of a route is dead."""
    at = network.routes[row].uses.head if len(network.recovery) > 0 else NONE
    while at != NONE:
        use = network.uses[at]
        if network.shared[use.link].is_dead:
            return True
        at = use.next
    return False


@works_on_tables
def _set_alone(run: Run, row: int) -> bool:
    """Set the rate of a flow that begins and shares no link, as steps 1 to 3 do; else return False."""
    network, state, route = run.network, run.network.state[0], run.network.routes[row]
    if not is_alone(network, row) or _crosses_dead(network, row):
        return False
    begin_ns = max(float(run.clock[0].now), _ended_ns(network, row))
    serve(route, begin_ns)
    at, rate, bottleneck = route.uses.head, np.inf, NONE
    while at != NONE:
        use = network.uses[at]
        share = network.shared[use.link].capacity
        if share < rate or (share == rate and use.link < bottleneck):
            rate, bottleneck = share, use.link
        at = use.next
    route.rate, route.bottleneck = rate, bottleneck
    network.shared[bottleneck].bound += 1
    at = route.uses.head
    while at != NONE:
        use = network.uses[at]
        link = network.shared[use.link]
        link.part = state.part
        carry(run, use.link, begin_ns)
        link.rate = link.capacity - (link.capacity - rate)  # rounded as that of others
        at = use.next
    plan_end(run, row)
    return True


@works_on_tables
def _take_changed(run: Run, routes: int, links: int) -> tuple[int, int]:
    """Take the flows bound by links with changes; return the numbers of routes and links."""
    network, state = run.network, run.network.state[0]
    while state.changed != NONE:
        row = state.changed
        link = network.shared[row]
        state.changed = link.next_changed
        link.is_changed = 0
        if observe.is_recording(run):
            links = _add_link(run, row, links)
        if link.is_altered:
            link.is_altered = 0
            routes, links = _take_from(run, row, 0.0, routes, links)
        elif link.bound > 0:
            routes, links = _take_from(run, row, -1.0, routes, links)
    return routes, links


@works_on_tables
def _take_from(run: Run, link_row: int, limit: float, routes: int, links: int) -> tuple[int, int]:
    """Take a link's flows that kept more than a rate; a negative limit takes the flows that it limits."""
    network, part = run.network, run.network.state[0].part
    at = network.shared[link_row].head
    while at != NONE:
        use = network.uses[at]
        at = use.after
        route = network.routes[use.route]
        if route.part != part and (route.rate > limit if limit >= 0 else route.bottleneck == link_row):
            route.part = part
            serve(route, network.state[0].changes_ns)
            network.shared[route.bottleneck].bound -= 1
            network.part_routes[routes] = use.route
            routes += 1
            links = _count_links(run, use.route, links)
    return routes, links


@works_on_tables
def _count_links(run: Run, route_row: int, links: int) -> int:
    """Add the links of a route to those that are counted."""
    at = run.network.routes[route_row].uses.head
    while at != NONE:
        use = run.network.uses[at]
        links = _add_link(run, use.link, links)
        at = use.next
    return links


@works_on_tables
def _add_link(run: Run, link_row: int, links: int) -> int:
    network, link = run.network, run.network.shared[link_row]
    link.is_stale = 1
    if link.part != network.state[0].part:
        link.part = network.state[0].part
        network.part_links[links] = link_row
        links += 1
        carry(run, link_row, network.state[0].changes_ns)
    return links


@works_on_tables
def _fill(network: Any, routes: int, links: int) -> None:
    """Set the rates of the listed routes, on the listed links."""
    for at in range(routes):
        network.routes[network.part_routes[at]].bottleneck = NONE
    for at in range(links):
        row = network.part_links[at]
        link = network.shared[row]
        if link.is_stale:
            _count(network, row)
        link.open, link.open_back, link.left = link.to_set, link.back_to_set, link.capacity - link.kept
        link.open_uses = link.uses_to_set
        link.sets_rate, link.top_set = 0, 0.0
        if link.open_uses > 0:
            link.share = max(link.left, 0.0) / _open(link)
            put(network.shares, row, link.share, row)
    while first_of(network.shares) != NONE:
        row = first_of(network.shares)
        link = network.shared[row]
        if link.open_uses > 0:
            share = max(link.left, 0.0) / _open(link)
            if share > link.share:  # other flows took less than their share of it
                link.share = share
                put(network.shares, row, share, row)
                continue
            _freeze(network, row)
        take_out(network.shares, row)


@works_on_tables
def _count(network: Any, link_row: int) -> None:
    """Sum the rates of a link's flows that keep them, and the weights of the others."""
    part, link = network.state[0].part, network.shared[link_row]
    link.is_stale = 0
    link.kept = link.top_kept = link.bound_rate = 0.0
    link.to_set = link.back_to_set = 0.0
    link.uses_to_set = 0
    at = link.head
    while at != NONE:
        use = network.uses[at]
        at = use.after
        route = network.routes[use.route]
        if route.part == part:
            link.uses_to_set += 1
            if use.is_back:
                link.back_to_set += use.weight
            else:
                link.to_set += use.weight
        else:
            link.kept += _taken(network, use)
            link.top_kept = max(link.top_kept, route.rate)
            if route.bottleneck == link_row:
                link.bound_rate = route.rate


@works_on_tables
def _taken(network: Any, use: Any) -> float:
    """Return the capacity of a link that a route's flows take at their rate."""
    taken = network.routes[use.route].rate * use.weight
    return taken * network.shared[use.link].back if use.is_back else taken


@works_on_tables
def _open(link: Any) -> float:
    """Return the number of flows without a rate that share a link; shares of flows are rounded."""
    return max(link.open + link.open_back * link.back, LEAST_SHARE)


@works_on_tables
def _freeze(network: Any, link_row: int) -> None:
    """Give the link's share as rate to its flows without one."""
    part, rate = network.state[0].part, network.shared[link_row].share
    at = network.shared[link_row].head
    while at != NONE:
        use = network.uses[at]
        at = use.after
        route = network.routes[use.route]
        if route.part == part and route.bottleneck == NONE:
            route.bottleneck, route.rate = link_row, rate
            network.shared[link_row].sets_rate = 1
            _subtract(network, route)


@works_on_tables
def _subtract(network: Any, route: Any) -> None:
    """Subtract the rate of a route's flows from all of its links."""
    at = route.uses.head
    while at != NONE:
        use = network.uses[at]
        link = network.shared[use.link]
        link.left -= _taken(network, use)
        link.open_uses -= 1
        if use.is_back:
            link.open_back -= use.weight
        else:
            link.open -= use.weight
        link.top_set = max(link.top_set, route.rate)
        at = use.next


@works_on_tables
def _take_unfair(run: Run, routes: int, links: int, has_all: bool) -> tuple[int, int]:
    """Take flows that kept their rates but have no bottleneck now, or more than the flows that they limit."""
    network, looked_at = run.network, links
    at = 0
    while at < (links if has_all else looked_at):
        row = network.part_links[at]
        link = network.shared[row]
        at += 1
        if has_all:
            routes, links = _take_from(run, row, 0.0, routes, links)
            continue
        if link.bound_rate > 0:
            is_full = link.left <= link.capacity * (1 - EQUAL)
            if not is_full or link.top_set * EQUAL > link.bound_rate:
                routes, links = _take_from(run, row, -1.0, routes, links)
        if link.sets_rate and link.top_kept * EQUAL > link.share:
            routes, links = _take_from(run, row, link.share / EQUAL, routes, links)
    return routes, links


@works_on_tables
def plan_end(run: Run, row: int) -> None:
    """Set when the first message of a route ends at its rate."""
    network, route = run.network, run.network.routes[row]
    left = run.messages[route.head].until - route.served
    route.ends_ns = route.since_ns
    if left > 0:
        route.ends_ns += left / route.rate
    put(network.ends, row, route.ends_ns, (int(route.source) << 36) + route.number)


@works_on_tables
def share_later(run: Run) -> None:
    """Schedule new rates after all other events of this nanosecond."""
    state = run.network.state[0]
    if state.is_due == 0:
        state.is_due = 1
        schedule_at_end(run, NETWORK + SHARE, 0, 0, 0)
