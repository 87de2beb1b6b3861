"""Advances of chunks: a period later, each has the place that an earlier one of its collective had.

A collective of many chunks sends each of them through the same phases. While chunks wait in front of the
first phase, or of a later one, the state after some time is the same, but with later chunks in the places of
earlier ones. The number of places by which a collective has advanced is stored with it (`advances`). Phases,
queues and directions of two such chunks must be the same (`same_way`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.repeats.turns import turn
from et_sim.engine.state.chunks import priority_of
from et_sim.engine.state.run import NONE, QUEUE_ORDER, Run
from et_sim.plan.records import WaitingOrder

PRIORITY = int(WaitingOrder.PRIORITY)
WAITING = 4  # chunks on a picture that wait in a queue, at most
ENTRIES_OF_WAITING = WAITING + 2
TAIL, STARTED = WAITING, WAITING + 1  # entries behind these: the last waiting chunk, chunks started so far
ALL = WAITING  # in place of a number of chunks that have started


@works_on_tables
def may_advance(run: Run) -> bool:
    """Return whether chunks wait in turn, and their phases are not logged."""
    return bool(run.plan.settings[QUEUE_ORDER] == PRIORITY and len(run.phase_log) == 0)


@works_on_tables
def follows(run: Run, before: int, now: int) -> bool:
    """Return whether a chunk may have the place of another one, and store that its collective turns and
    advances so.
    """
    running_row, other_row = run.visits[before].running, run.visits[now].running
    places = number_of(run, now) - number_of(run, before)
    if not turn(run, run.running_turns, running_row, other_row):
        return False
    return _advances(run, running_row, places) and _advances(run, other_row, places)


@works_on_tables
def follows_in_queue(run: Run, before: int, now: int) -> bool:
    """Return whether a chunk may have the place of another one in the same queue, and store the advance."""
    running_row = run.visits[before].running
    if running_row != run.visits[now].running or not _advances(run, running_row, now - before):
        return False
    return before == now or same_way(run, before, now)


@works_on_tables
def number_of(run: Run, row: int) -> int:
    """Return the number of a chunk within its collective."""
    return row - run.running[run.visits[row].running].chunks_first


@works_on_tables
def _advances(run: Run, running_row: int, places: int) -> bool:
    """Store by how many chunks a collective has advanced; return False if it cannot have."""
    turns, repeats = run.running_turns[running_row], run.repeats[0]
    if turns.advanced == repeats.comparison:
        return bool(turns.advance == places)
    if places < 0 or (places > 0 and not may_advance(run)):
        return False
    turns.advanced, turns.advance = repeats.comparison, places
    repeats.advances |= places > 0
    return True


@works_on_tables
def advance_of(run: Run, running_row: int) -> int:
    """Return by how many chunks a collective has advanced; 0 if nothing of it takes part."""
    turns = run.running_turns[running_row]
    return turns.advance if turns.advanced == run.repeats[0].comparison else 0


@works_on_tables
def same_way(run: Run, one: int, other: int) -> bool:
    """Return whether two chunks take equal phases, queues and directions."""
    if run.visits[one].phase_first != run.visits[other].phase_first:
        return False
    for index in range(run.chunk_queue.shape[1]):
        if run.chunk_queue[one, index] != run.chunk_queue[other, index]:
            return False
    return True


@works_on_tables
def started_in_front(run: Run, at: int, queue: Any) -> int:
    """Return how many of the waiting chunks on a picture have started since.

    ALL: they were few, and as many later ones wait now. NONE: neither.
    """
    front, started = queue.waiting, queue.started - run.picture[at + STARTED]
    if front == run.picture[at]:
        return 0 if started == 0 or front == NONE else NONE
    if _all_follow(run, at, front):
        return ALL
    for place in range(1, WAITING):
        if run.picture[at + place] == front and front != NONE:
            is_sure = place == started and follows_in_queue(run, run.picture[at], front)
            return place if is_sure else NONE
    return NONE


@works_on_tables
def _all_follow(run: Run, at: int, front: int) -> bool:
    """Return whether a picture has all waiting chunks of a queue, and each of those now has the place of one
    of them.
    """
    row = front
    for place in range(WAITING):
        before = run.picture[at + place]
        if before == NONE or row == NONE:
            return bool(before == row)
        if not follows_in_queue(run, before, row):
            return False
        row = run.visits[row].next
    return False


@works_on_tables
def note_collectives(run: Run) -> None:
    """Store how many chunks of each collective have not ended."""
    for running_row in range(len(run.running)):
        run.running_turns[running_row].remaining_before = run.running[running_row].remaining


@works_on_tables
def limit_by_collectives(run: Run) -> bool:
    """Limit the periods by the chunks that are left; return False if a collective has changed otherwise."""
    repeats = run.repeats[0]
    for running_row in range(len(run.running)):
        running, turns = run.running[running_row], run.running_turns[running_row]
        if running.chunks == 0:
            continue
        turns.advance = advance_of(run, running_row)
        turns.advanced = repeats.comparison
        if turns.advance > 0:
            repeats.periods = min(repeats.periods, running.chunks // turns.advance)
        ended = turns.remaining_before - running.remaining
        if ended > 0:
            if turns.advance == 0:
                return False
            repeats.periods = min(repeats.periods, (running.remaining - 1) // ended)
    return True


@works_on_tables
def limit_by_queue(run: Run, at: int, queue: Any) -> bool:
    """Limit the periods by the chunks that wait; return False if those that came may not be the last ones."""
    started, last = started_in_front(run, at, queue), run.picture[at + TAIL]
    if started == ALL or queue.waiting == NONE or (started == 0 and queue.tail == last):
        return True
    if not _have_equal_priority(run, queue):
        return False
    row, behind, place = queue.waiting, queue.waiting, 0
    while started > 0 and row != last:
        before = run.picture[at + place] if place < started else behind
        if not follows_in_queue(run, before, row):
            break
        if place >= started:
            behind = run.visits[behind].next
        row, place = run.visits[row].next, place + 1
    if started > 0:
        run.repeats[0].periods = min(run.repeats[0].periods, place // started)
    return True


@works_on_tables
def _have_equal_priority(run: Run, queue: Any) -> bool:
    """Return whether all waiting chunks of a queue have one priority, so that new ones wait behind them."""
    row = queue.waiting
    while row != NONE:
        if priority_of(run, row) != priority_of(run, queue.tail):
            return False
        row = run.visits[row].next
    return True
