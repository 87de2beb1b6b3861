"""Routes in the order in which their next messages are through: a heap whose members know their places.

Not here: when that is (`shares`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import NONE


@works_on_tables
def ends_at(network: Any, row: int, time: float) -> None:
    """The next message of a route is through then."""
    state, route = network.state[0], network.routes[row]
    route.ends_ns = time
    if route.heap_at == NONE:
        route.heap_at = state.heap_size
        network.heap[route.heap_at] = row
        state.heap_size += 1
    _rise(network, route.heap_at)
    _sink(network, route.heap_at)


@works_on_tables
def ends_never(network: Any, row: int) -> None:
    """Nothing is under way on a route."""
    state, route = network.state[0], network.routes[row]
    at = route.heap_at
    if at == NONE:
        return
    route.heap_at = NONE
    state.heap_size -= 1
    last = network.heap[state.heap_size]
    if last != row:
        network.heap[at] = last
        network.routes[last].heap_at = at
        _rise(network, at)
        _sink(network, network.routes[last].heap_at)


@works_on_tables
def _rise(network: Any, at: int) -> None:
    row = network.heap[at]
    while at > 0:
        above = (at - 1) >> 1
        if not _is_before(network, row, network.heap[above]):
            break
        _put(network, at, network.heap[above])
        at = above
    _put(network, at, row)


@works_on_tables
def _sink(network: Any, at: int) -> None:
    row, size = network.heap[at], network.state[0].heap_size
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and _is_before(network, network.heap[below + 1], network.heap[below]):
            below += 1
        if not _is_before(network, network.heap[below], row):
            break
        _put(network, at, network.heap[below])
        at = below
    _put(network, at, row)


@works_on_tables
def _put(network: Any, at: int, row: int) -> None:
    network.heap[at] = row
    network.routes[row].heap_at = at


@works_on_tables
def _is_before(network: Any, one: int, other: int) -> bool:
    """By time, then by the ends of the routes."""
    first, second = network.routes[one], network.routes[other]
    if first.ends_ns != second.ends_ns:
        return first.ends_ns < second.ends_ns
    if first.source != second.source:
        return first.source < second.source
    if first.target != second.target:
        return first.target < second.target
    return first.ports < second.ports
