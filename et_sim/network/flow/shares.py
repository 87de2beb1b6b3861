"""Max-min fair rates: no message can have more without taking it from one that has no more itself.

Links are filled together: the link whose flows get the least sets the rate of all of them, what they take is
subtracted from their other links, and so on among the rest. Only flows that share links with those that
began or ended, directly or by others, get new rates.

Acknowledgements take their part of the links on the way back, at the rate of what they acknowledge: the link
whose flows get the least may be one of those.

Not here: when rates are set (`model`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE, Run
from et_sim.network.flow.queue import ends_at, ends_never
from et_sim.network.flow.routes import carry, serve


@works_on_tables
def set_rates(run: Run) -> None:
    """Rates of all flows that are affected by what began or ended since the last time."""
    network, state = run.network, run.network.state[0]
    state.part += 1
    state.changes_ns = max(state.changes_ns, float(run.clock[0].now))
    links = _changed_links(run)
    links, routes = _part(network, links)
    for at in range(routes):
        route = network.routes[network.part_routes[at]]
        serve(route, state.changes_ns)
        route.bottleneck = NONE
    _fill(run, links)
    for at in range(routes):
        plan_end(run, network.part_routes[at])


@works_on_tables
def _changed_links(run: Run) -> int:
    """List the links on which something changed and flows are left; returns how many."""
    network, state, count = run.network, run.network.state[0], 0
    while state.changed != NONE:
        row = state.changed
        link = network.shared[row]
        state.changed = link.next_changed
        link.is_changed = 0
        if link.head != NONE:
            link.part = state.part
            network.part_links[count] = row
            count += 1
        else:
            carry(run, row, run.network.state[0].changes_ns)
            link.rate = 0.0
    return count


@works_on_tables
def _part(network: Any, links: int) -> tuple[int, int]:
    """All links and routes that are connected with the listed links; returns how many there are."""
    part, routes, done = network.state[0].part, 0, 0
    while done < links:
        at = network.shared[network.part_links[done]].head
        done += 1
        while at != NONE:
            use = network.uses[at]
            at = use.after
            route = network.routes[use.route]
            if route.part != part:
                route.part = part
                network.part_routes[routes] = use.route
                routes += 1
                links = _add_links(network, route, links)
    return links, routes


@works_on_tables
def _add_links(network: Any, route: Any, links: int) -> int:
    part, at = network.state[0].part, route.first_use
    while at != NONE:
        use = network.uses[at]
        at = use.next
        link = network.shared[use.link]
        if link.part != part:
            link.part = part
            network.part_links[links] = use.link
            links += 1
    return links


@works_on_tables
def _fill(run: Run, links: int) -> None:
    """Set the rates of the routes on the listed links; the list becomes a heap by the links' shares."""
    network = run.network
    for at in range(links):
        row = network.part_links[at]
        carry(run, row, run.network.state[0].changes_ns)
        link = network.shared[row]
        link.left, link.open, link.open_back, link.rate = link.capacity, link.flows, link.flows_back, 0.0
        link.share = link.left / _open(link)
    for at in range(links // 2 - 1, -1, -1):
        _sift(network, at, links)
    while links > 0:
        row = network.part_links[0]
        link = network.shared[row]
        if link.open > 0 or link.open_back > 0:
            share = max(link.left, 0.0) / _open(link)
            if share > link.share:  # what others took was less than their share of it
                link.share = share
                _sift(network, 0, links)
                continue
            _freeze(network, row)
        links -= 1
        network.part_links[0] = network.part_links[links]
        _sift(network, 0, links)


@works_on_tables
def _open(link: Any) -> float:
    """Among how many flows without a rate a link's capacity is parted."""
    return link.open + link.open_back * link.back


@works_on_tables
def _freeze(network: Any, link_row: int) -> None:
    """The flows of a link that have no rate yet get the link's share."""
    rate, at = network.shared[link_row].share, network.shared[link_row].head
    while at != NONE:
        use = network.uses[at]
        at = use.after
        route = network.routes[use.route]
        if route.bottleneck == NONE:
            route.bottleneck, route.rate = link_row, rate
            _subtract(network, route)


@works_on_tables
def _subtract(network: Any, route: Any) -> None:
    """A route's flows take their rate from all of its links."""
    at = route.first_use
    while at != NONE:
        use = network.uses[at]
        link = network.shared[use.link]
        taken = route.rate * route.flows
        if use.is_back:
            taken *= link.back
            link.open_back -= route.flows
        else:
            link.open -= route.flows
        link.left -= taken
        link.rate += taken
        at = use.next


@works_on_tables
def _sift(network: Any, at: int, links: int) -> None:
    """Let a link sink to its place among the listed ones; of equal shares, the lower row comes first."""
    if at >= links:
        return
    row = network.part_links[at]
    while 2 * at + 1 < links:
        below = 2 * at + 1
        if below + 1 < links and _is_before(
            network, network.part_links[below + 1], network.part_links[below]
        ):
            below += 1
        if not _is_before(network, network.part_links[below], row):
            break
        network.part_links[at] = network.part_links[below]
        at = below
    network.part_links[at] = row


@works_on_tables
def _is_before(network: Any, one: int, other: int) -> bool:
    first, second = network.shared[one].share, network.shared[other].share
    return first < second or (first == second and one < other)


@works_on_tables
def plan_end(run: Run, row: int) -> None:
    """When the first message of a route is through, at its rate."""
    route = run.network.routes[row]
    left = run.messages[route.head].until - route.served
    if left <= 0:
        ends_at(run.network, row, route.since_ns)
    elif route.rate > 0:
        ends_at(run.network, row, route.since_ns + left / route.rate)
    else:
        ends_never(run.network, row)
