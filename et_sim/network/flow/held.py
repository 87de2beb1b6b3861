"""Routes whose path is dead: they are held without links until their sender finds a path.

Bytes under way count as served up to the failure, and the rest is sent again. A sender notices a loss after
the time of a try (`Recovery.detection_ns`), and looks for a path again after each further one: switches may
lead around the dead link by then, or it may be repaired. After the last try it gives up, or takes another
port.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.containers import NONE, take_out
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.run import Run
from et_sim.network.flow.records import TRY
from et_sim.network.flow.routes import (
    bytes_on_wire,
    carry,
    leave_path,
    mark_changed,
    serve,
    take_path,
)
from et_sim.network.senders import is_late, next_try_ns, sends_again


@works_on_tables
def dead_link_of(network: Any, row: int) -> int:
    """Return the first dead link on the path of a route, there or back; NONE if there is none."""
    at = network.routes[row].uses.head
    while at != NONE:
        use = network.uses[at]
        if network.shared[use.link].is_dead:
            return int(use.link)
        at = use.next
    return NONE


@works_on_tables
def hold_if_dead(run: Run, row: int) -> None:
    """Hold a route that has just begun on a dead path."""
    network, state = run.network, run.network.state[0]
    dead = dead_link_of(network, row)
    if dead == NONE:
        return
    _messages_leave(run, row)
    _leave_opened(network, row)
    leave_path(network, row)
    _hold(run, row, dead, state)


@works_on_tables
def hold(run: Run, row: int) -> None:
    """Hold a route that has a rate, when links of its path die; its bytes are lost on the first of them."""
    dead = dead_link_of(run.network, row)
    _leave(run, row)
    _hold(run, row, dead, run.network.state[0])


@works_on_tables
def split_again(run: Run, row: int) -> None:
    """Split the rest of a route's messages over links whose bandwidths have changed."""
    _leave(run, row)
    route = run.network.routes[row]
    route.uses.head = route.uses.tail = NONE
    route.rate = 0.0
    take_path(run, row, route.head)
    _goes_on(run, row)


@works_on_tables
def _leave(run: Run, row: int) -> None:
    """Take a route that has a rate off its links, on which the bytes sent so far count."""
    network, route = run.network, run.network.routes[row]
    state = network.state[0]
    state.changes_ns = max(state.changes_ns, float(run.clock[0].now))
    serve(route, state.changes_ns)
    sent = _sent_of_waiting(run, route) - route.sent_before
    at = route.uses.head
    while at != NONE:
        use = network.uses[at]
        link = network.shared[use.link]
        carry(run, use.link, state.changes_ns)
        part = link.back if use.is_back else 1.0
        link.rate -= route.rate * use.weight * part
        link.bytes += sent * use.weight * part
        mark_changed(network, use.link)
        at = use.next
    route.sent_before += sent
    _messages_leave(run, row)
    network.shared[route.bottleneck].bound -= 1
    take_out(network.ends, row)
    leave_path(network, row)


@works_on_tables
def _sent_of_waiting(run: Run, route: Any) -> float:
    """Return the bytes that a route has served of messages that have not ended."""
    at, size, last = route.head, 0, 0.0
    while at != NONE:
        message = run.messages[at]
        size += bytes_on_wire(run.network, message.bytes)
        last = message.until
        at = message.next
    return float(max(size - (last - route.served), 0.0))


@works_on_tables
def _hold(run: Run, row: int, dead: int, state: Any) -> None:
    network, now = run.network, run.clock[0].now
    route = network.routes[row]
    route.uses.head = route.uses.tail = route.bottleneck = NONE
    route.rate = 0.0
    route.is_held, route.tries, route.lost_on, route.lost_ns = 1, 0, dead, now
    route.next_try_ns = next_try_ns(network.recovery[0], now, 0)
    route.next_held, state.first_held = state.first_held, row
    state.held += 1


@works_on_tables
def _messages_leave(run: Run, row: int) -> None:
    """Take the messages of a route off its links."""
    network, route = run.network, run.network.routes[row]
    at = route.uses.head
    while at != NONE:
        use = network.uses[at]
        if not use.is_back:
            link = network.shared[use.link]
            link.messages -= use.messages * route.messages
            observe.messages_leave_link(run, use.link, use.messages * route.messages, link.messages)
        at = use.next


@works_on_tables
def _leave_opened(network: Any, row: int) -> None:
    """Remove a route from those that get their first rate; the order of these does not matter."""
    state = network.state[0]
    for at in range(state.opened):
        if network.part_routes[at] == row:
            state.opened -= 1
            network.part_routes[at] = network.part_routes[state.opened]
            return


@works_on_tables
def try_again(run: Run) -> bool:
    """Let senders whose try is due look for a path; return whether one found it."""
    network, state, now = run.network, run.network.state[0], run.clock[0].now
    row, state.first_held = state.first_held, NONE
    finds = False
    if state.tries_ns <= now:
        state.tries_ns = NONE
    while row != NONE:
        route = network.routes[row]
        after = route.next_held
        if route.next_try_ns <= now and _finds_path(run, row):
            state.held -= 1
            finds = True
        elif route.next_try_ns != NONE:
            route.next_held, state.first_held = state.first_held, row
        row = after
    return finds


@works_on_tables
def _finds_path(run: Run, row: int) -> bool:
    """Put a held route on a path if one is not dead; else set the time of the next try."""
    network, state = run.network, run.network.state[0]
    route = network.routes[row]
    recovery = network.recovery[0]
    route.tries += 1
    now = run.clock[0].now
    if sends_again(recovery, route.lost_ns, route.tries, now):
        take_path(run, row, route.head)
        if dead_link_of(network, row) == NONE:
            _goes_on(run, row)
            return True
        state.opened -= 1
        leave_path(network, row)
        route.uses.head = route.uses.tail = NONE
    ends = is_late(recovery, route.lost_ns, now)
    route.next_try_ns = NONE if ends else next_try_ns(recovery, route.lost_ns, route.tries)
    return False


@works_on_tables
def _goes_on(run: Run, row: int) -> None:
    network, route = run.network, run.network.routes[row]
    now = run.clock[0].now
    if route.is_held:
        lost_on = network.shared[route.lost_on]
        lost_on.waited_ns = max(lost_on.waited_ns, now - route.lost_ns)
    route.is_held, route.bottleneck = 0, NONE
    route.since_ns = float(now)
    at = route.uses.head
    while at != NONE:
        use = network.uses[at]
        if not use.is_back:
            link = network.shared[use.link]
            link.messages += use.messages * route.messages
            observe.messages_join_link(run, use.link, use.messages * route.messages, link.messages)
        mark_changed(network, use.link)
        at = use.next


@works_on_tables
def plan_try(run: Run) -> None:
    """Schedule the next try of any sender."""
    network, state = run.network, run.network.state[0]
    row, first = state.first_held, NONE
    while row != NONE:
        time = network.routes[row].next_try_ns
        if first == NONE or time < first:
            first = time
        row = network.routes[row].next_held
    if first != NONE and (state.tries_ns == NONE or first < state.tries_ns):
        state.tries_ns = first
        schedule(run, first, NETWORK + TRY, 0, 0, 0)
