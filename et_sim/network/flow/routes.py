"""Routes that messages are under way on: found by their ends, opened and closed, with what they have served.

Not here: how fast (`shares`), and which links a message takes (`network.link`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.lists import join, join_after, leave, unchain
from et_sim.engine.state.run import NONE, Run
from et_sim.network.flow.heap import take_out
from et_sim.network.link_queues import next_ports, set_out, take_hop
from et_sim.network.routes import ports_back


@works_on_tables
def route_between(run: Run, source: int, target: int, message_row: int) -> int:
    """The row of the route between two ranks, opened if no message is under way on it."""
    network = run.network
    ports = next_ports(network.hops, source, target)
    first = home(network.index, source, target, ports)
    row = network.index[first]
    while row != NONE:
        route = network.routes[row]
        if route.source == source and route.target == target and route.ports == ports:
            return row
        row = route.chain
    state = network.state[0]
    row = state.free_route
    route = network.routes[row]
    state.free_route = route.next
    state.free_routes -= 1
    route.source, route.target, route.ports, route.chain = source, target, ports, network.index[first]
    network.index[first] = row
    route.head = route.tail = route.bottleneck = NONE
    route.flows, route.served, route.rate, route.since_ns = 0, 0.0, 0.0, float(run.clock[0].now)
    _take_links(network, row, run.messages[message_row])
    if network.protocol[0].goes_back:
        _take_links_back(network, row, run.messages[message_row])
    route.part = state.part + 1  # it is among the first whose rates are set then
    network.part_routes[state.opened] = row
    state.opened += 1
    return row


@works_on_tables
def close_route(run: Run, row: int) -> None:
    """Give back a route on which nothing is under way any more."""
    network = run.network
    state, route = network.state[0], network.routes[row]
    unchain(network.routes, network.index, home(network.index, route.source, route.target, route.ports), row)
    take_out(network.ends, row)
    network.shared[route.bottleneck].bound -= 1
    at = route.first_use
    while at != NONE:
        use = network.uses[at]
        after = use.next
        if use.before == NONE:
            network.shared[use.link].head = use.after
        else:
            network.uses[use.before].after = use.after
        if use.after != NONE:
            network.uses[use.after].before = use.before
        use.next = state.free_use
        state.free_use = at
        state.free_uses += 1
        at = after
    route.next = state.free_route
    state.free_route = row
    state.free_routes += 1


@works_on_tables
def join_route(run: Run, row: int, message_row: int) -> None:
    """A message begins: it is through when its route has served so much more."""
    network, messages = run.network, run.messages
    route, message = network.routes[row], messages[message_row]
    serve(route, float(run.clock[0].now))
    message.begin_ns = run.clock[0].now
    message.until = route.served + bytes_on_wire(network, message.bytes)
    route.flows += 1
    if route.head == NONE or messages[route.tail].until <= message.until:
        join(messages, route, message_row)
    else:
        before, at = NONE, route.head
        while messages[at].until <= message.until:
            before, at = at, messages[at].next
        join_after(messages, route, before, message_row)
    at = route.first_use
    while at != NONE:
        use = network.uses[at]
        link = network.shared[use.link]
        if use.is_back:
            link.flows_back += 1
        else:
            link.flows += 1
            observe.message_joins_link(run, use.link, link.flows)
        mark_changed(network, use.link)
        at = use.next


@works_on_tables
def leave_route(run: Run, row: int) -> int:
    """The first message is through; returns it."""
    network, route = run.network, run.network.routes[row]
    serve(route, route.ends_ns)
    message_row = leave(run.messages, route)
    size = bytes_on_wire(network, run.messages[message_row].bytes)
    route.flows -= 1
    at = route.first_use
    while at != NONE:
        use = network.uses[at]
        link = network.shared[use.link]
        carry(run, use.link, route.ends_ns)
        if use.is_back:
            link.bytes += size * link.back
            link.flows_back -= 1
            link.rate -= route.rate * link.back
        else:
            link.bytes += size
            link.flows -= 1
            observe.message_leaves_link(run, use.link, link.flows)
            link.rate -= route.rate
        mark_changed(network, use.link)
        at = use.next
    return message_row


@works_on_tables
def flight_class(network: Any, route: Any) -> int:
    """The class of links that sets all of a message's latency; NONE: there is no single one."""
    at, found = route.first_use, network.hops.links[network.uses[route.first_use].link].speed
    while at != NONE:
        use = network.uses[at]
        at = use.next
        if network.hops.links[use.link].speed != found:
            return NONE
    return int(found)


@works_on_tables
def serve(route: Any, time: float) -> None:
    """Bring what a route has served up to date."""
    if time > route.since_ns:
        route.served += route.rate * (time - route.since_ns)
        route.since_ns = time


@works_on_tables
def carry(run: Run, link_row: int, time: float) -> None:
    """Bring what a link has carried up to date, and note it."""
    link = run.network.shared[link_row]
    if time > link.since_ns and observe.is_recording(run):
        carried = link.carried + link.rate * (time - link.since_ns)
        observe.link_carries(run, link_row, link.since_ns, time, link.carried, carried)
        link.carried, link.since_ns = carried, time


@works_on_tables
def mark_changed(network: Any, link_row: int) -> None:
    """The rates on a link are to be set anew."""
    link, state = network.shared[link_row], network.state[0]
    if link.is_changed == 0:
        link.is_changed = 1
        link.next_changed = state.changed
        state.changed = link_row


@works_on_tables
def home(index: Any, source: int, target: int, ports: int) -> int:
    """Where the search for a route begins."""
    mixed = source * 0x9E3779B1 + target + ports * 0x85EBCA6B
    return (mixed ^ (mixed >> 15)) & (len(index) - 1)


@works_on_tables
def bytes_on_wire(network: Any, size: int) -> int:
    """Those of a message and of the headers of its packets."""
    protocol = network.protocol[0]
    if protocol.payload == 0:
        return size
    return size + max((size + protocol.payload - 1) // protocol.payload, 1) * protocol.header


@works_on_tables
def bytes_of_first_packet(network: Any, size: int) -> int:
    """That all others are as large as, but for the last one."""
    protocol = network.protocol[0]
    return min(size, protocol.payload) + protocol.header


@works_on_tables
def _take_links(network: Any, row: int, message: Any) -> None:
    """Walk along the links from a route's source to its target."""
    route = network.routes[row]
    set_out(network.hops, message, route.source, route.ports)
    route.first_use, route.dimension, route.latency_ns, last = NONE, NONE, 0.0, NONE
    route.narrowest, route.stored_ns = 0.0, 0.0
    while last == NONE or message.at != route.target or message.via_switch:
        link_row = take_hop(network.hops, message)
        at = _use_link(network, row, link_row)
        capacity = network.shared[link_row].capacity
        if last == NONE:
            route.first_use, route.dimension, route.narrowest = at, message.dimension, capacity
        else:
            network.uses[last].next = at
            if network.protocol[0].stores_packets:
                route.stored_ns += 1 / max(capacity, route.narrowest)
            route.narrowest = min(route.narrowest, capacity)
        route.latency_ns += network.hops.fabric.speeds[network.hops.links[link_row].speed].latency_ns
        last = at


@works_on_tables
def _take_links_back(network: Any, row: int, message: Any) -> None:
    """Walk back from a route's target, as acknowledgements do."""
    route, last = network.routes[row], network.routes[row].first_use
    while network.uses[last].next != NONE:
        last = network.uses[last].next
    target = message.target
    message.target = route.source
    set_out(network.hops, message, target, ports_back(route.ports))
    route.back_ns = 0.0
    is_there = False
    while not is_there:
        link_row = take_hop(network.hops, message)
        is_there = message.at == route.source and not message.via_switch
        route.back_ns += network.hops.fabric.speeds[network.hops.links[link_row].speed].latency_ns
        route.back_ns += network.shared[link_row].back_ns
        if network.shared[link_row].back > 0:
            at = _use_link(network, row, link_row)
            network.uses[at].is_back = 1
            network.uses[last].next = at
            last = at
    message.target = target


@works_on_tables
def _use_link(network: Any, row: int, link_row: int) -> int:
    """Note that a route takes a link; returns the row of that note."""
    state = network.state[0]
    at = state.free_use
    use, link = network.uses[at], network.shared[link_row]
    state.free_use = use.next
    state.free_uses -= 1
    use.route, use.link, use.next, use.is_back = row, link_row, NONE, 0
    use.before, use.after = NONE, link.head
    if link.head != NONE:
        network.uses[link.head].before = at
    link.head = at
    return at
