"""Packets at ports over time: waiting bytes, lost and marked packets, and pauses with their causes.

A network model with packets records these itself, in a table `queues`, in picoseconds; times are cut to whole
nanoseconds here. Slices are as wide as a power of two of nanoseconds, the first one begins at 0, and all sums
are of whole numbers, so the result is as if the final width had been used from the start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe.observers import observes
from et_sim.engine.state.queue_tables import (
    FLOWS_LOGGED,
    NONE,
    PAUSE,
    PAUSES_LOGGED,
    PER_PORT,
    ROWS_AT_ONCE,
    WAY,
    WIDTH,
    Queues,
)
from et_sim.engine.state.run import Run
from et_sim.plan.records import table

PS_PER_NS = 1000


@works_on_tables
def records_queues(network: Any) -> bool:
    """Return whether queues are recorded."""
    return len(network.queues.on) > 0


when_recorded = observes(records_queues)


@when_recorded
def bytes_wait(network: Any, came: int, port: int, size: int, now_ps: int) -> None:
    """Add bytes that came over a link to those that wait for a port, even if they go on at once."""
    queues, now = network.queues, now_ps // PS_PER_NS
    settle(queues, port, now)
    queue = queues.ports[port]
    queue.bytes += size
    part = queues.slices[_slice_at(queues, port, now)]
    part.deepest = max(part.deepest, queue.bytes)
    if len(queues.crossings) > 0:
        queues.crossings[queues.first_crossing[came] + queues.place[port]] += size


@when_recorded
def bytes_go_on(network: Any, came: int, port: int, size: int, now_ps: int) -> None:
    """Remove bytes from those that wait for a port."""
    queues = network.queues
    settle(queues, port, now_ps // PS_PER_NS)
    queues.ports[port].bytes -= size
    if len(queues.crossings) > 0:
        queues.crossings[queues.first_crossing[came] + queues.place[port]] -= size


@when_recorded
def packet_lost(network: Any, port: int, now_ps: int) -> None:
    """Count a packet that is lost because a port's buffer is full."""
    queues, now = network.queues, now_ps // PS_PER_NS
    _reach(queues, now)
    queues.slices[_slice_at(queues, port, now)].lost += 1


@when_recorded
def packet_marked(network: Any, port: int, now_ps: int) -> None:
    """Count a packet that is marked."""
    queues, now = network.queues, now_ps // PS_PER_NS
    _reach(queues, now)
    queues.slices[_slice_at(queues, port, now)].marked += 1


@when_recorded
def messages_cross(network: Any, port: int, change: int, now_ps: int) -> None:
    """Change the number of messages that are on their way over a port."""
    queues, now = network.queues, now_ps // PS_PER_NS
    settle(queues, port, now)
    queue = queues.ports[port]
    queue.messages += change
    part = queues.slices[_slice_at(queues, port, now)]
    part.messages = max(part.messages, queue.messages)


@when_recorded
def pause_requested(network: Any, port: int, device: int, now_ps: int) -> None:
    """Note that the device at the other end of a port requests a pause, and the egress that causes it."""
    queues = network.queues
    queue, first, most = queues.ports[port], queues.first_port[device], 0
    queue.asked_ns, queue.egress = now_ps // PS_PER_NS, NONE
    for at in range(first, queues.first_port[device + 1]):
        count = queues.crossings[queues.first_crossing[port] + at - first]
        if count > most:
            most, queue.egress = count, queues.device_ports[at]
    queue.egress_bytes = most
    queue.egress_depth = queues.ports[queue.egress].bytes if queue.egress != NONE else 0


@when_recorded
def pause_begins(network: Any, port: int, now_ps: int) -> None:
    """Note that a port has received a pause."""
    queues, now = network.queues, now_ps // PS_PER_NS
    settle(queues, port, now)
    queues.ports[port].is_paused = 1
    queues.ports[port].begin_ns = now
    queues.slices[_slice_at(queues, port, now)].pauses += 1


@when_recorded
def pause_ends(network: Any, port: int, now_ps: int) -> None:
    """Record a pause that has ended."""
    queues, now = network.queues, now_ps // PS_PER_NS
    settle(queues, port, now)
    queue, pause = queues.ports[port], queues.pauses[queues.logged[PAUSES_LOGGED]]
    queues.logged[PAUSES_LOGGED] += 1
    queue.is_paused = 0
    pause.port, pause.egress, pause.asked_ns = port, queue.egress, queue.asked_ns
    pause.begin_ns, pause.end_ns = queue.begin_ns, now
    pause.egress_bytes, pause.egress_depth = queue.egress_bytes, queue.egress_depth


@works_on_tables
def flow_ends(network: Any, flow: Any, ways: Any, first: int) -> None:
    """Record a message that has arrived; `first` is the place of its way among all ways."""
    queues = network.queues
    row = queues.logged[FLOWS_LOGGED]
    done, at = queues.flows[row], row * queues.grid[WAY]
    queues.logged[FLOWS_LOGGED] += 1
    done.source, done.target, done.bytes = flow.source, flow.target, flow.size - flow.padding
    done.begin_ns, done.left_ns = flow.begin_ps // PS_PER_NS, flow.left_ps // PS_PER_NS
    done.arrived_ns, done.packets = flow.arrived_ps // PS_PER_NS, flow.received
    done.sent_again, done.timeouts = flow.retransmitted, flow.timeouts
    done.window_ns, done.rate_ns = flow.window_ps // PS_PER_NS, flow.rate_ps // PS_PER_NS
    done.paused_ns, done.queued_ns = flow.paused_ps // PS_PER_NS, flow.queued_ps // PS_PER_NS
    done.last_queued_ns = flow.last_queued_ps // PS_PER_NS
    for place in range(queues.grid[WAY]):
        queues.ways[at + place] = ways[first + place]
        if ways[first + place] == NONE:
            return


@works_on_tables
def queue_rows_left(network: Any) -> int:
    """Return how many pauses, or messages, may end until their buffers must be emptied."""
    if len(network.queues.on) == 0 or len(network.queues.flows) == 0:
        return ROWS_AT_ONCE
    return ROWS_AT_ONCE - max(network.queues.logged[PAUSES_LOGGED], network.queues.logged[FLOWS_LOGGED])


@works_on_tables
def settle(queues: Any, port: int, now: int) -> None:
    """Add the state of a port until now to its slices."""
    _reach(queues, now)
    shift, first, queue = queues.grid[WIDTH], port * queues.grid[PER_PORT], queues.ports[port]
    is_idle = queue.bytes == 0 and queue.messages == 0 and queue.is_paused == 0
    at = now if is_idle else queue.since_ns
    while at < now:
        until = min(now, ((at >> shift) + 1) << shift)
        part = queues.slices[first + (at >> shift)]
        part.filled += queue.bytes * (until - at)
        part.paused_ns += queue.is_paused * (until - at)
        part.deepest = max(part.deepest, queue.bytes)
        part.messages = max(part.messages, queue.messages)
        at = until
    queue.since_ns = now


def queues_at_end(run: Run, end_ns: int, record: Callable[[Queues, Any], None]) -> Queues:
    """Return the recorded queues at the end of a run, after recording pauses that never end."""
    queues: Queues = run.network.queues
    for port in np.flatnonzero((queues.ports["bytes"] > 0) | (queues.ports["is_paused"] > 0)).tolist():
        settle(queues, port, max(end_ns, int(queues.ports[port].since_ns)))
    paused = np.flatnonzero(queues.ports["is_paused"] > 0)
    pauses = table(PAUSE, len(paused))
    for name in ("egress", "asked_ns", "begin_ns", "egress_bytes", "egress_depth"):
        pauses[name] = queues.ports[name][paused]
    pauses["port"], pauses["end_ns"] = paused, NONE
    record(queues, pauses)
    return queues


@works_on_tables
def _slice_at(queues: Any, port: int, now: int) -> int:
    """Return the slice of a port that holds a time, which is not too late."""
    return int(port * queues.grid[PER_PORT] + (now >> queues.grid[WIDTH]))


@works_on_tables
def _reach(queues: Any, time: int) -> None:
    """Make slices so wide that the last one holds a time."""
    while time >> queues.grid[WIDTH] >= queues.grid[PER_PORT]:
        _widen(queues)


@works_on_tables
def _widen(queues: Any) -> None:
    """Merge every two neighbours."""
    slices, per_port = queues.slices, queues.grid[PER_PORT]
    for first in range(0, len(slices), per_port):
        for number in range(1, per_port):
            if number & 1 == 0:  # its old content is merged already
                _clear(slices[first + (number >> 1)])
            _add(slices[first + (number >> 1)], slices[first + number])
        for number in range(per_port >> 1, per_port):
            _clear(slices[first + number])
    queues.grid[WIDTH] += 1


@works_on_tables
def _clear(interval: Any) -> None:
    interval.filled = interval.deepest = interval.messages = interval.lost = interval.marked = 0
    interval.pauses = interval.paused_ns = 0


@works_on_tables
def _add(into: Any, interval: Any) -> None:
    into.filled += interval.filled
    into.deepest = max(into.deepest, interval.deepest)
    into.messages = max(into.messages, interval.messages)
    into.lost += interval.lost
    into.marked += interval.marked
    into.pauses += interval.pauses
    into.paused_ns += interval.paused_ns
