"""Ranges of bytes in order, as lists in a pool: what has arrived beyond a hole."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE, give_row, take_row


@works_on_tables
def with_range(network: Any, first: int, begin: int, end: int) -> tuple[int, int]:
    """A list to which a range is added, and the row of the range that now has it."""
    ranges = network.transport.ranges
    before, row = NONE, first
    while row != NONE and ranges[row].end < begin:
        before, row = row, ranges[row].next
    if row == NONE or ranges[row].begin > end:
        new = _new_range(network, begin, end, row)
        if before == NONE:
            return new, new
        ranges[before].next = new
        return first, new
    found = ranges[row]
    found.begin, found.end = min(found.begin, begin), max(found.end, end)
    after = found.next
    while after != NONE and ranges[after].begin <= found.end:
        found.end = max(found.end, ranges[after].end)
        found.next = ranges[after].next
        give_row(ranges, network.transport.free_ranges[0], after)
        after = found.next
    return first, row


@works_on_tables
def without_below(network: Any, first: int, position: int) -> int:
    """A list without what is below a position."""
    ranges = network.transport.ranges
    row = first
    while row != NONE and ranges[row].end <= position:
        after = ranges[row].next
        give_row(ranges, network.transport.free_ranges[0], row)
        row = after
    if row != NONE:
        ranges[row].begin = max(ranges[row].begin, position)
    return int(row)


@works_on_tables
def bytes_below(network: Any, first: int, position: int) -> int:
    """How many bytes of a list are below a position."""
    ranges = network.transport.ranges
    row, count = first, 0
    while row != NONE and ranges[row].begin < position:
        count += min(ranges[row].end, position) - ranges[row].begin
        row = ranges[row].next
    return int(count)


@works_on_tables
def _new_range(network: Any, begin: int, end: int, after: int) -> int:
    ranges = network.transport.ranges
    row = take_row(ranges, network.transport.free_ranges[0])
    ranges[row].begin, ranges[row].end, ranges[row].next = begin, end, after
    return int(row)
