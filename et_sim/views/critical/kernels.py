"""Compiled loops over all causal events of a record, forwards and backwards in time."""

from __future__ import annotations

from typing import Any

from et_sim.compiled.entry_points import entry

ALIKE_NS = 1e-3  # tolerance for sums of doubles
APART_NS = 0.5  # tolerance for times of the run itself, which are whole


def _seconds_of_rows(rows: Any, *_others: Any) -> float:
    return len(rows) * 2e-6


FARTHEST = 24  # number of steps back in the search for a common predecessor
LONGEST = 16  # number of distinct durations in a joined event


@entry(what="the views of paths", seconds=_seconds_of_rows)
def connect(
    critical_parent: Any,
    other_parent: Any,
    spent_ns: Any,
    may_vanish: Any,
    place: Any,
    first: int,
    critical: Any,
    other: Any,
    kept: Any,
    count: int,
) -> int:
    """Append the causal events of a block to the first `count` events; return the new number of events.

    A predecessor that also precedes the other predecessor is dropped. An event without duration and with one
    predecessor shares the place of that predecessor.
    """
    before = count
    for row in range(len(critical_parent)):
        late, early = 0, 0
        if critical_parent[row] >= 0:
            late = place[critical_parent[row]]
            early = late
        if other_parent[row] >= 0:
            early = place[other_parent[row]]
        by, also = late, early
        if late < early:
            late, early = early, late
        back, steps = late, 0
        while back > early and steps < FARTHEST:
            back = critical[back]
            steps += 1
        if back == early:
            by, also = late, late
        if by == also and may_vanish[row] and spent_ns[row] == 0:
            place[first + row] = by
        else:
            place[first + row] = count
            critical[count] = by
            other[count] = also
            kept[count - before] = row
            count += 1
    return count


@entry(what="the views of paths", seconds=_seconds_of_rows)
def count_needed(critical: Any, other: Any, needed: Any) -> None:
    """Count the successors of each event: 0, 1, or 2 for more."""
    for row in range(1, len(critical)):
        a, b = critical[row], other[row]
        if needed[a] < 2:
            needed[a] += 1
        if a != b and needed[b] < 2:
            needed[b] += 1


@entry(what="the views of paths", seconds=_seconds_of_rows)
def put_in_rows(
    critical: Any,
    other: Any,
    spent: Any,
    kind_and_link: Any,
    may_join: Any,
    has_part: Any,
    needed: Any,
    place: Any,
    head: Any,
    part_kind_and_link: Any,
    part_spent: Any,
    part_count: Any,
    following: Any,
) -> int:
    """Join chains of events in place; return the new number of events.

    The durations of an event are a linked list that begins at `head`; `part_count` counts repetitions of one.
    `following[0]` becomes the number of parts.
    """
    count, parts = 1, 1
    for row in range(1, len(critical)):
        a, b = critical[row], other[row]
        to, own_spent, own_kind_and_link = place[a], spent[row], kind_and_link[row]
        joins = a == b and a > 0 and may_join[row] and may_join[a] and needed[a] == 1
        last, steps, there = 0, 0, 0
        if joins:
            at = head[to]
            while at > 0:
                if part_kind_and_link[at] == own_kind_and_link and part_spent[at] == own_spent:
                    there = at
                last = at
                at = following[at]
                steps += 1
            joins = there > 0 or steps < LONGEST
        if joins:
            spent[to] += own_spent
            place[row] = to
        else:
            critical[count], other[count] = to, place[b]
            spent[count] = own_spent
            head[count] = 0
            place[row] = count
            to = count
            last, there = 0, 0
            count += 1
        if there > 0:
            part_count[there] += 1
        elif has_part[row]:
            part_kind_and_link[parts], part_spent[parts], part_count[parts] = own_kind_and_link, own_spent, 1
            following[parts] = 0
            if last > 0:
                following[last] = parts
            else:
                head[to] = parts
            parts += 1
    following[0] = parts
    return count


@entry(what="the views of paths", seconds=_seconds_of_rows)
def in_order(head: Any, following: Any, first: Any, order: Any) -> None:
    """List the parts of all events, event by event: `first` is where those of each event begin in `order`."""
    there = 0
    for row in range(len(head)):
        first[row] = there
        at = head[row]
        while at > 0:
            order[there] = at
            there += 1
            at = following[at]
    first[len(head)] = there


@entry(what="the views of paths", seconds=_seconds_of_rows)
def latest_ends(critical: Any, other: Any, spent: Any, latest: Any) -> None:
    """Propagate the latest admissible times of some events to all of them."""
    for row in range(len(critical) - 1, 0, -1):
        needed = latest[row] - spent[row]
        if needed < latest[critical[row]]:
            latest[critical[row]] = needed
        if needed < latest[other[row]]:
            latest[other[row]] = needed


@entry(what="the views of paths", seconds=_seconds_of_rows)
def mark_deciding(critical: Any, other: Any, time: Any, marked: Any) -> None:
    """Mark, from the marked events backwards, all latest predecessors."""
    for row in range(len(critical) - 1, 0, -1):
        if marked[row]:
            a, b = critical[row], other[row]
            ahead = time[b] - time[a]
            if ahead < APART_NS:
                marked[a] = True
            if ahead > -APART_NS:
                marked[b] = True


@entry(what="the views of paths", seconds=_seconds_of_rows)
def times_and_slopes(
    critical: Any,
    other: Any,
    first_part: Any,
    part: Any,
    counts: Any,
    takes: Any,
    rates: Any,
    towards: float,
    time: Any,
    slope: Any,
) -> None:
    """Compute the time of every event, and its slope by a factor. Part p takes `takes[p]`, and changes at
    `rates[p]` as the factor grows (`towards` 1) or falls (-1)."""
    for row in range(1, len(critical)):
        came, rate = time[critical[row]], slope[critical[row]]
        ahead = time[other[row]] - came
        if ahead > ALIKE_NS or (ahead > -ALIKE_NS and towards * (slope[other[row]] - rate) > 0):
            came, rate = time[other[row]], slope[other[row]]
        for at in range(first_part[row], first_part[row + 1]):
            came += counts[at] * takes[part[at]]
            rate += counts[at] * rates[part[at]]
        time[row] = came
        slope[row] = rate
