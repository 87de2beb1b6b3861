"""Busy times of links in slices of time, and the number of messages that wait for them.

Slices are as wide as a power of two of nanoseconds, the first one begins at 0, and all sums are of whole
numbers, so the result is as if the final width had been used from the start.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state.run import Run
from et_sim.engine.state.traffic_tables import PER_LINK, SHIFT


@works_on_tables
def note_busy(run: Run, link: int, begin: int, length: int, size: int, copies: int) -> None:
    """Add a message that a link serialises from `begin` on at one rate; equal links count as `copies`."""
    traffic, end = run.traffic, begin + length
    if len(traffic.slices) == 0:
        return
    _reach(run, max(end - 1, begin))
    shift, first = traffic.grid[SHIFT], link * traffic.grid[PER_LINK]
    begun = traffic.slices[first + (begin >> shift)]
    begun.messages += copies
    at, carried = begin, 0
    while at < end:
        until = min(end, ((at >> shift) + 1) << shift)
        part, so_far = traffic.slices[first + (at >> shift)], int(size * ((until - begin) / length))
        part.busy_ns += copies * (until - at)
        part.bytes += copies * (so_far - carried)
        at, carried = until, so_far
    traffic.slices[first + (max(end - 1, begin) >> shift)].bytes += copies * (size - carried)


@works_on_tables
def note_begun(run: Run, link: int, messages: int) -> None:
    """Count messages that begin to be serialised."""
    traffic, now = run.traffic, run.clock[0].now
    if len(traffic.slices) > 0:
        _reach(run, now)
        traffic.slices[link * traffic.grid[PER_LINK] + (now >> traffic.grid[SHIFT])].messages += messages


@works_on_tables
def note_carried(run: Run, link: int, begin: float, end: float, before: float, after: float) -> None:
    """Add the bytes that a link has carried at one rate, from `before` to `after`."""
    traffic = run.traffic
    if len(traffic.slices) == 0 or after == before:
        return
    at, end_ns, noted = int(begin), int(end), int(before + 0.5)
    _reach(run, max(end_ns - 1, at))
    shift, first = traffic.grid[SHIFT], link * traffic.grid[PER_LINK]
    while at + 1 < end_ns:
        until = min(end_ns, ((at >> shift) + 1) << shift)
        carried = int(before + (after - before) * (until - begin) / (end - begin) + 0.5)
        part = traffic.slices[first + (at >> shift)]
        part.busy_ns += until - at
        part.bytes += carried - noted
        at, noted = until, carried
    part = traffic.slices[first + (max(end_ns - 1, int(begin)) >> shift)]
    part.busy_ns += max(end_ns - at, 0)
    part.bytes += int(after + 0.5) - noted


@works_on_tables
def note_waiting(run: Run, link: int, change: int) -> None:
    """Change the number of messages that wait for a link; those that wait no time do not count."""
    traffic, now = run.traffic, run.clock[0].now
    if len(traffic.slices) == 0:
        return
    _reach(run, now)
    shift, first, queue = traffic.grid[SHIFT], link * traffic.grid[PER_LINK], traffic.link_queues[link]
    at = queue.since_ns if queue.waiting > 0 else now
    while at < now:
        until = min(now, ((at >> shift) + 1) << shift)
        part = traffic.slices[first + (at >> shift)]
        part.waited_ns += queue.waiting * (until - at)
        part.waiting = max(part.waiting, queue.waiting)
        at = until
    queue.waiting += change
    queue.since_ns = now


@works_on_tables
def note_wait(run: Run, link: int, wait: int) -> None:
    """Update the longest wait of a message at a link."""
    traffic = run.traffic
    if len(traffic.slices) > 0:
        _reach(run, run.clock[0].now)
        at = link * traffic.grid[PER_LINK] + (run.clock[0].now >> traffic.grid[SHIFT])
        traffic.slices[at].longest_ns = max(traffic.slices[at].longest_ns, wait)


@works_on_tables
def note_waited(run: Run, link: int, until: int) -> None:
    """Add one that waits for a link from now until then."""
    traffic, at = run.traffic, run.clock[0].now
    if len(traffic.slices) == 0 or until == at:
        return
    _reach(run, until)
    shift, first = traffic.grid[SHIFT], link * traffic.grid[PER_LINK]
    longest = traffic.slices[first + (until >> shift)]
    longest.longest_ns = max(longest.longest_ns, until - at)
    while at < until:
        end = min(until, ((at >> shift) + 1) << shift)
        traffic.slices[first + (at >> shift)].waited_ns += end - at
        at = end


@works_on_tables
def _reach(run: Run, time: int) -> None:
    """Make slices so wide that the last one holds a time."""
    grid = run.traffic.grid
    while time >> grid[SHIFT] >= grid[PER_LINK]:
        _widen(run)


@works_on_tables
def _widen(run: Run) -> None:
    """Merge every two neighbours."""
    slices, per_link = run.traffic.slices, run.traffic.grid[PER_LINK]
    for first in range(0, len(slices), per_link):
        for number in range(1, per_link):
            if number & 1 == 0:  # its old content is merged already
                _clear(slices[first + (number >> 1)])
            _add(slices[first + (number >> 1)], slices[first + number])
        for number in range(per_link >> 1, per_link):
            _clear(slices[first + number])
    run.traffic.grid[SHIFT] += 1


@works_on_tables
def _clear(interval: Any) -> None:
    interval.busy_ns = interval.bytes = interval.messages = interval.waited_ns = interval.longest_ns = 0
    interval.waiting = 0


@works_on_tables
def _add(into: Any, interval: Any) -> None:
    into.busy_ns += interval.busy_ns
    into.bytes += interval.bytes
    into.messages += interval.messages
    into.waited_ns += interval.waited_ns
    into.longest_ns = max(into.longest_ns, interval.longest_ns)
    into.waiting = max(into.waiting, interval.waiting)
