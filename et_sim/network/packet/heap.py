"""The kernel's calendar: a heap of sources of events, each with the time and order of its next one.

Sources are ports, and behind them timers. Where only timers are left that send nothing (they set rates, or
what they waited for has come), nothing moves: all is there, or packets wait for each other in a circle, or
they are lost for good.

Not here: the engine's calendar (`engine.calendar`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.state.run import NONE


@works_on_tables
def _never(_network: Any, _timer: int) -> bool:
    """A transport whose timers all let packets go."""
    return False


# (network, timer): whether nothing sets out when a timer rings. While a timer is in the heap, its transport
# counts it in `moving` when that changes.
sends_nothing = chosen_by_tables("sends_nothing", "transport", _never)


@works_on_tables
def put(network: Any, source: int, time: int, order: int) -> None:
    """A source has its next event at this time."""
    at = network.places[source]
    if at == NONE:
        state = network.state[0]
        at = state.waiting
        state.waiting = at + 1
        state.moving += _moves(network, source)
        _rise(network, at, source, time, order)
        return
    entry = network.heap[at]
    if time < entry.time or (time == entry.time and order < entry.order):
        _rise(network, at, source, time, order)
    else:
        _sink(network, at, source, time, order)


@works_on_tables
def take_out(network: Any, source: int) -> None:
    """A source, which need not have one, has no next event."""
    at = network.places[source]
    if at == NONE:
        return
    state = network.state[0]
    network.places[source] = NONE
    state.waiting -= 1
    state.moving -= _moves(network, source)
    if at == state.waiting:
        return
    last = network.heap[state.waiting]
    above = network.heap[(at - 1) >> 1 if at > 0 else 0]
    if at > 0 and (last.time < above.time or (last.time == above.time and last.order < above.order)):
        _rise(network, at, last.source, last.time, last.order)
    else:
        _sink(network, at, last.source, last.time, last.order)


@works_on_tables
def _moves(network: Any, source: int) -> int:
    """Whether an event may move packets: of ports, and of timers that may send."""
    ports = len(network.ports)
    return int(source < ports or not sends_nothing(network, source - ports))


@works_on_tables
def _rise(network: Any, at: int, source: int, time: int, order: int) -> None:
    """Find the place of an entry, not below the one that is to be filled."""
    heap, places = network.heap, network.places
    while at > 0:
        up = (at - 1) >> 1
        above = heap[up]
        if above.time < time or (above.time == time and above.order < order):
            break
        entry = heap[at]
        entry.time, entry.order, entry.source = above.time, above.order, above.source
        places[above.source] = at
        at = up
    entry = heap[at]
    entry.time, entry.order, entry.source = time, order, source
    places[source] = at


@works_on_tables
def _sink(network: Any, at: int, source: int, time: int, order: int) -> None:
    """Find the place of an entry, not above the one that is to be filled."""
    heap, places, waiting = network.heap, network.places, network.state[0].waiting
    while 2 * at + 1 < waiting:
        down = 2 * at + 1
        below = heap[down]
        if down + 1 < waiting:
            other = heap[down + 1]
            if other.time < below.time or (other.time == below.time and other.order < below.order):
                down += 1
                below = other
        if time < below.time or (time == below.time and order < below.order):
            break
        entry = heap[at]
        entry.time, entry.order, entry.source = below.time, below.order, below.source
        places[below.source] = at
        at = down
    entry = heap[at]
    entry.time, entry.order, entry.source = time, order, source
    places[source] = at
