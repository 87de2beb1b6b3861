"""Routes in use: found by their ends, opened and closed, with the bytes that they have served."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import (
    NONE,
    chain,
    give_row,
    join,
    join_after,
    leave,
    take_out,
    take_row,
    unchain,
    unchain_all,
)
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import REQUESTED_STEP, STEP
from et_sim.engine.state.records import PHASE_BITS, PROGRAM_MASK
from et_sim.engine.state.run import Run
from et_sim.network.fabric import next_ports, set_out, take_hop
from et_sim.network.flow.records import OTHERS
from et_sim.network.routes import ports_back
from et_sim.network.spread import split

IN_PAIRS = 64  # added to the message kind of exchanges in pairs


@works_on_tables
def route_between(run: Run, source: int, target: int, message_row: int) -> int:
    """Return the route of a message; open it if no message uses it.

    A route for the steps of collectives belongs to a group, a dimension, and either pairwise exchanges or
    others. So it does not matter whether two of these have the same neighbours, in which equal ranks may
    differ.
    """
    network = run.network
    ports, message = next_ports(network.hops, source, target), run.messages[message_row]
    kind, member = message.kind, NONE
    if kind in (STEP, REQUESTED_STEP):
        program = run.plan.programs[(message.c >> PHASE_BITS) & PROGRAM_MASK]
        kind, member = kind + IN_PAIRS * program.pairs, message.a
    state = network.state[0]
    first = home(state.places, source, target, ports, kind + member)
    row = network.index[first]
    while row != NONE:
        route = network.routes[row]
        is_same = route.source == source and route.target == target and route.ports == ports
        if is_same and route.kind == kind and route.member == member:
            return row
        row = route.chain
    row = take_row(network.routes, state.free_routes)
    route = network.routes[row]
    route.source, route.target, route.ports = source, target, ports
    route.kind, route.member, route.chain = kind, member, network.index[first]
    network.index[first] = row
    route.head = route.tail = route.bottleneck = NONE
    route.batch, route.messages, route.served, route.rate = 0, 0, 0.0, 0.0
    route.since_ns, route.number = float(run.clock[0].now), state.routes
    state.routes += 1
    if len(network.routes) - state.free_routes.rows > state.places and state.places < len(network.index):
        _double_places(network)
    route.is_held, route.sent_before = 0, 0.0
    take_path(run, row, message_row)
    return row


@works_on_tables
def take_path(run: Run, row: int, message_row: int) -> None:
    """Put a route on the links of its path; its rate is set with those of others that begin."""
    network, state = run.network, run.network.state[0]
    route = network.routes[row]
    _take_links(run, row, run.messages[message_row])
    if network.protocol[0].goes_back:
        _take_links_back(run, row, run.messages[message_row])
    _weigh_uses(run, row)
    route.part = state.part + 1  # it is among the first whose rates are set then
    network.part_routes[state.opened] = row
    state.opened += 1


@works_on_tables
def close_route(run: Run, row: int) -> bool:
    """Release an empty route; return whether a rate depends on one of its links."""
    network = run.network
    state, route = network.state[0], network.routes[row]
    first = home(state.places, route.source, route.target, route.ports, route.kind + route.member)
    unchain(network.routes, network.index, first, row)
    take_out(network.ends, row)
    network.shared[route.bottleneck].bound -= 1
    is_missed = leave_path(network, row)
    give_row(network.routes, state.free_routes, row)
    return is_missed


@works_on_tables
def leave_path(network: Any, row: int) -> bool:
    """Take a route off all links; return whether a rate depends on one of them."""
    state, is_missed = network.state[0], False
    at = network.routes[row].uses.head
    while at != NONE:
        use = network.uses[at]
        after = use.next
        is_missed |= network.shared[use.link].bound > 0
        if use.before == NONE:
            network.shared[use.link].head = use.after
        else:
            network.uses[use.before].after = use.after
        if use.after != NONE:
            network.uses[use.after].before = use.before
        give_row(network.uses, state.free_uses, at)
        at = after
    return is_missed


@works_on_tables
def join_route(run: Run, row: int, message_row: int) -> None:
    """Queue a message behind the earlier ones of its route; `set_ends` sets its end."""
    network, messages = run.network, run.messages
    state, route, message = network.state[0], network.routes[row], messages[message_row]
    message.begin_ns = run.clock[0].now
    message.until = bytes_on_wire(network, message.bytes)
    if route.batch != state.batch:
        route.batch, route.batch_size, route.ahead = state.batch, 0, route.tail
        route.next_longer = state.longer
        state.longer = row
    if route.batch_size == 0 or messages[route.tail].until <= message.until:
        join(messages, route, message_row)
    else:
        before, at = route.ahead, first_of_batch(messages, route)
        while messages[at].until <= message.until:
            before, at = at, messages[at].next
        join_after(messages, route, before, message_row)
    route.batch_size += 1
    route.messages += 1
    at = route.uses.head
    while at != NONE:
        use = network.uses[at]
        link = network.shared[use.link]
        if not use.is_back:
            link.messages += use.messages
            observe.messages_join_link(run, use.link, use.messages, link.messages)
        if route.messages == 1:
            mark_changed(network, use.link)
        at = use.next


@works_on_tables
def set_ends(run: Run) -> None:
    """Set the ends of newly queued messages: those of one batch share the rate of their route, small ones
    first.
    """
    state, messages = run.network.state[0], run.messages
    while state.longer != NONE:
        route = run.network.routes[state.longer]
        state.longer = route.next_longer
        through = route.served if route.ahead == NONE else messages[route.ahead].until
        at, left = first_of_batch(messages, route), int(route.batch_size)
        while at != NONE:
            size = messages[at].until
            messages[at].until = through + left * size
            through += size
            left -= 1
            at = messages[at].next


@works_on_tables
def first_of_batch(messages: Any, route: Any) -> int:
    """Return the first message of the last batch that was sent to a target."""
    return int(route.head if route.ahead == NONE else messages[route.ahead].next)


@works_on_tables
def leave_route(run: Run, row: int) -> int:
    """Remove the first message of a route, which has ended, and return it."""
    network, route = run.network, run.network.routes[row]
    serve(route, route.ends_ns)
    message_row = leave(run.messages, route)
    if not is_alone(network, row):
        network.state[0].changes_ns = max(network.state[0].changes_ns, route.ends_ns)
    size = bytes_on_wire(network, run.messages[message_row].bytes) - route.sent_before
    route.sent_before = 0.0
    route.messages -= 1
    at = route.uses.head
    while at != NONE:
        use = network.uses[at]
        link = network.shared[use.link]
        carry(run, use.link, route.ends_ns)
        link.ended_ns = route.ends_ns
        part = link.back if use.is_back else 1.0
        link.bytes += size * use.weight * part
        if not use.is_back:
            link.messages -= use.messages
            observe.messages_leave_link(run, use.link, use.messages, link.messages)
        if route.messages == 0:
            link.rate -= route.rate * use.weight * part
            mark_changed(network, use.link)
        at = use.next
    return message_row


@works_on_tables
def flight_class(network: Any, route: Any) -> int:
    """Return the class of links that sets all of the latency; NONE: several classes do."""
    at, speed = route.uses.head, network.shared[network.uses[route.uses.head].link].speed
    while at != NONE:
        use = network.uses[at]
        at = use.next
        if network.shared[use.link].speed != speed:
            return NONE
    return int(speed)


@works_on_tables
def is_alone(network: Any, row: int) -> bool:
    """Return whether a route is one flow that shares no link: when it begins and ends concerns no other."""
    if len(network.ways.link) > 0:
        return False
    at = network.routes[row].uses.head
    while at != NONE:
        use = network.uses[at]
        if use.is_back or use.before != NONE or use.after != NONE or use.weight != 1.0:
            return False
        at = use.next
    return True


@works_on_tables
def serve(route: Any, time: float) -> None:
    """Update the bytes that a route has served."""
    if time > route.since_ns:
        route.served += route.rate * (time - route.since_ns)
        route.since_ns = time


@works_on_tables
def carry(run: Run, link_row: int, time: float) -> None:
    """Update and record the bytes that a link has carried."""
    link = run.network.shared[link_row]
    if time > link.since_ns and observe.is_recording(run):
        carried = link.carried + link.rate * (time - link.since_ns)
        observe.link_carries(run, link_row, link.since_ns, time, link.carried, carried)
        link.carried, link.since_ns = carried, time


@works_on_tables
def mark_changed(network: Any, link_row: int) -> None:
    """Mark a link whose rates have to be set again."""
    link, state = network.shared[link_row], network.state[0]
    if link.is_changed == 0:
        link.is_changed = 1
        link.next_changed = state.changed
        state.changed = link_row


@works_on_tables
def home(places: int, source: int, target: int, ports: int, messages: int) -> int:
    """Return the place of the index, of those in use, where the search for a route begins."""
    mixed = source * 0x9E3779B1 + target + ports * 0x85EBCA6B + messages * 0x27D4EB2F
    return (mixed ^ (mixed >> 15)) & (places - 1)


@works_on_tables
def _double_places(network: Any) -> None:
    """Use twice as many places of the index; few places stay in the processor's cache."""
    places = network.state[0].places
    network.state[0].places = 2 * places
    row = unchain_all(network.routes, network.index, places)
    while row != NONE:
        route = network.routes[row]
        after = route.chain
        messages = route.kind + route.member
        now = home(2 * places, route.source, route.target, route.ports, messages)
        chain(network.routes, network.index, now, row)
        row = after


@works_on_tables
def bytes_on_wire(network: Any, size: int) -> int:
    """Return the bytes of a message and of the headers of its packets."""
    protocol = network.protocol[0]
    if protocol.payload == 0:
        return size
    return size + max((size + protocol.payload - 1) // protocol.payload, 1) * protocol.header


@works_on_tables
def bytes_of_first_packet(network: Any, size: int) -> int:
    """Return the size of every packet but the last."""
    protocol = network.protocol[0]
    return min(size, protocol.payload) + protocol.header


@works_on_tables
def _take_links(run: Run, row: int, message: Any) -> None:
    """Record the links from a route's source to its target."""
    network = run.network
    route = network.routes[row]
    route.uses.head = route.uses.tail = route.dimension = NONE
    route.latency_ns = 0.0
    route.narrowest, route.stored_ns = np.inf, 0.0
    if len(network.ways.link) > 0:
        _take_all_ways(network, row)
        return
    set_out(network.hops, message, route.source, route.ports)
    while route.uses.head == NONE or message.at != route.target or message.via_switch:
        link_row = network.class_of[take_hop(network.hops, message)]
        link = network.shared[link_row]
        if link.owner > 0:
            observe.order_fails(run)
        link.owner = OTHERS
        if route.uses.head == NONE:
            route.dimension = message.dimension
        elif network.protocol[0].store_and_forward:
            route.stored_ns += 1 / max(link.capacity, route.narrowest)
        route.narrowest = min(route.narrowest, link.capacity)
        route.latency_ns += network.hops.fabric.speeds[link.speed].latency_ns
        _use_link(network, row, link_row, 0, 1.0)


@works_on_tables
def _take_all_ways(network: Any, row: int) -> None:
    """Record all links over which a route's messages are split.

    A message is complete when the bytes of its longest path are. A packet takes one of the equal paths; the
    last one may take the slowest link at every distance.
    """
    route, ways = network.routes[row], network.ways
    count = _split(network, row, 0)
    route.dimension = network.hops.tier[ways.link[0]]
    narrowest = slowest = np.inf
    for at in range(count):
        link = network.shared[network.class_of[ways.link[at]]]
        route.narrowest = min(route.narrowest, link.capacity / ways.share[at])
        slowest = min(slowest, link.wire)
        is_last = at + 1 == count or ways.depth[at + 1] > ways.depth[at]
        if is_last:
            if ways.depth[at] > 0 and network.protocol[0].store_and_forward:
                route.stored_ns += 1 / max(slowest, narrowest)
            narrowest, slowest = min(narrowest, slowest), np.inf
    route.latency_ns = ways.before[network.hops.fabric.graph.routes.device_of[route.target]]


@works_on_tables
def _split(network: Any, row: int, is_back: int) -> int:
    """Use the links of a route, or of its way back, and sum latencies; return the number of links."""
    route, ways, tables = network.routes[row], network.ways, network.hops.fabric.graph.routes
    source, target = (route.target, route.source) if is_back else (route.source, route.target)
    count = split(tables, ways, source, target)
    ways.before[tables.device_of[source]] = 0.0
    for at in range(count):
        ways.before[tables.target[ways.link[at]]] = 0.0
    for at in range(count):
        link_row, there = network.class_of[ways.link[at]], tables.target[ways.link[at]]
        link = network.shared[link_row]
        time = ways.before[tables.source[ways.link[at]]] + network.hops.fabric.speeds[link.speed].latency_ns
        if is_back:
            time += link.back_ns
        ways.before[there] = max(ways.before[there], time)
        if not is_back or link.back > 0:
            _use_link(network, row, link_row, is_back, ways.share[at])
    return int(count)


@works_on_tables
def _take_links_back(run: Run, row: int, message: Any) -> None:
    """Record the links from a route's target back to its source, for acknowledgements."""
    network = run.network
    route, target = network.routes[row], message.target
    if len(network.ways.link) > 0:
        _split(network, row, 1)
        route.back_ns = network.ways.before[network.hops.fabric.graph.routes.device_of[route.source]]
        return
    message.target = route.source
    set_out(network.hops, message, target, ports_back(route.ports))
    route.back_ns = 0.0
    is_there = False
    while not is_there:
        link_row = network.class_of[take_hop(network.hops, message)]
        is_there = message.at == route.source and not message.via_switch
        link = network.shared[link_row]
        route.back_ns += network.hops.fabric.speeds[link.speed].latency_ns + link.back_ns
        if link.back > 0:
            _use_link(network, row, link_row, 1, 1.0)
    message.target = target


@works_on_tables
def _weigh_uses(run: Run, row: int) -> None:
    """Set how many messages on a link a message stands for; before, uses count equal links."""
    network, at = run.network, run.network.routes[row].uses.head
    actor = run.plan.actor_of_rank[network.routes[row].source]
    ranks = 1 if actor == NONE else network.ranks_of[actor]  # NONE: the source is a switch that reduces
    while at != NONE:
        use = network.uses[at]
        links = network.shared[use.link].links
        if use.messages * ranks % links:
            observe.links_differ(run)
        use.messages = max(use.messages * ranks // links, 1)
        use.weight = use.weight * ranks / links
        at = use.next


@works_on_tables
def _use_link(network: Any, row: int, link_row: int, is_back: int, share: float) -> None:
    """Record that a route uses a link with a share of its messages, possibly several equal links."""
    state, route, link = network.state[0], network.routes[row], network.shared[link_row]
    at = route.uses.head if link.links > 1 else NONE
    while at != NONE:
        use = network.uses[at]
        if use.link == link_row and use.is_back == is_back:
            use.messages += 1
            use.weight += share
            return
        at = use.next
    at = take_row(network.uses, state.free_uses)
    use = network.uses[at]
    use.route, use.link, use.messages, use.is_back = row, link_row, 1, is_back
    use.weight = share
    join(network.uses, route.uses, at)
    use.before, use.after = NONE, link.head
    if link.head != NONE:
        network.uses[link.head].before = at
    link.head = at
