"""Turns of rings: a period later, each chunk has the place that the one before it had.

Events of one time have the order in which they were put on the calendar. When a step of a ring is over,
everything is as before, but the first chunk is that of the next rank. If all of them are alike, and send to
each other as before and over equal links, they will have turned by one more after the next period. So each
chunk, and each link, has a successor in its place (`turn`); after many periods, that is the one as many
places ahead (`comes_to`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.collectives.matching import chunk_in
from et_sim.engine.collectives.members import member_at, rank_at
from et_sim.engine.collectives.steps import peer_position
from et_sim.engine.repeats.description import not_described
from et_sim.engine.state.run import NONE, Run

ENTRIES_OF_A_CHUNK = 2  # in a picture


# (run, rank, rank, rank, rank, bytes): return whether a message between the first two takes as long as one
# between the others, over links that `turn` like chunks do.
ways_turn = chosen_by_tables("ways_turn", "network", not_described)


@works_on_tables
def turn(run: Run, pool: Any, before: int, now: int) -> bool:
    """Store that a row has the place of another one; return False if one of them has a third one's."""
    repeats = run.repeats[0]
    if pool[before].turned == repeats.comparison:
        return bool(pool[before].turns_to == now)
    if pool[now].taken == repeats.comparison:
        return False
    pool[before].turns_to, pool[before].turned = now, repeats.comparison
    pool[now].taken = repeats.comparison
    repeats.turns |= before != now
    return True


@works_on_tables
def comes_to(run: Run, pool: Any, row: int) -> int:
    """Return the row that has the place of another one when all periods have passed."""
    repeats = run.repeats[0]
    if not repeats.turns:
        return row
    if pool[row].turned != repeats.comparison:
        length, ahead = 1, pool[row].turns_to
        while ahead != row:
            length, ahead = length + 1, pool[ahead].turns_to
        for _ in range(repeats.periods % length):
            ahead = pool[ahead].turns_to
        at = row
        for _ in range(length):
            pool[at].comes_to, pool[at].turned = ahead, repeats.comparison
            at, ahead = pool[at].turns_to, pool[ahead].turns_to
    return int(pool[row].comes_to)


@works_on_tables
def turn_chunks(run: Run) -> bool:
    """Turn chunks without events as their senders do; return whether all that turns is alike."""
    repeats = run.repeats[0]
    at = repeats.first_chunk
    while run.picture[at] != NONE:
        before = run.picture[at]
        while run.chunk_turns[before].turned == repeats.comparison:
            now, before = _peer(run, run.chunk_turns[before].turns_to), _peer(run, before)
            if before == NONE or now == NONE:
                break
            if run.chunk_turns[before].turned == repeats.comparison:
                if run.chunk_turns[before].turns_to != now:
                    return False
                break
            if not turn(run, run.chunk_turns, before, now):
                return False
        at += ENTRIES_OF_A_CHUNK
    at = repeats.first_chunk
    while run.picture[at] != NONE:
        before = run.picture[at]
        if not _has_no_part(run, before):
            turns = run.chunk_turns[before]
            if turns.turned != repeats.comparison and not turn(run, run.chunk_turns, before, before):
                return False
            if not _turns_alike(run, before, turns.turns_to):
                return False
        at += ENTRIES_OF_A_CHUNK
    return bool(not repeats.stays)


@works_on_tables
def _has_no_part(run: Run, row: int) -> bool:
    """Return whether a chunk only waits: it neither receives nor sends."""
    turns, comparison = run.chunk_turns[row], run.repeats[0].comparison
    has_place = turns.turned == comparison or turns.taken == comparison
    return bool(not has_place and run.chunks[row].sent == turns.sent_before)


@works_on_tables
def _turns_alike(run: Run, before: int, now: int) -> bool:
    """Return whether two chunks have advanced equally, and will do the same with their peers."""
    one, other = run.chunks[before], run.chunks[now]
    repeats, actor = run.repeats[0], run.actors[one.actor]
    if actor.turned == repeats.comparison and actor.turns_to != other.actor:
        return False
    actor.turned, actor.turns_to = repeats.comparison, other.actor
    if not _send_alike(run, before, now):
        return False
    if before == now:
        return True
    if one.program != other.program or one.direction != other.direction:
        return False
    if one.sent != other.sent or run.chunk_turns[before].sent_before != run.chunk_turns[now].sent_before:
        return False
    if one.received != other.received or one.transfers != other.transfers or one.credit != other.credit:
        return False
    if len(run.phase_log) > 0 and _waited(run, before) != _waited(run, now):
        return False
    return bool(run.plan.axes[one.axis].endpoint_ns == run.plan.axes[other.axis].endpoint_ns)


@works_on_tables
def _waited(run: Run, row: int) -> int:
    """Return how long a chunk has waited in the period."""
    return run.chunk_times[row].waited_ns - run.chunk_times[row].waited_before


@works_on_tables
def _send_alike(run: Run, one: int, other: int) -> bool:
    """Return whether two chunks send to peers that turn like them, and over ways that do."""
    ahead, behind = _peer(run, one), _peer(run, other)
    if ahead != NONE and run.chunk_turns[ahead].turned == run.repeats[0].comparison:
        ahead = run.chunk_turns[ahead].turns_to
    if ahead != behind:
        return False
    ways = _rank_of(run, one), _rank_of_peer(run, one), _rank_of(run, other), _rank_of_peer(run, other)
    return bool(ways_turn(run, *ways, run.plan.steps[_next_step_of(run, one)].bytes))


@works_on_tables
def _next_step_of(run: Run, row: int) -> int:
    chunk = run.chunks[row]
    return run.plan.programs[chunk.program].step_first + chunk.step


@works_on_tables
def _place_of_peer(run: Run, row: int) -> int:
    """Return the position along its axis of the chunk that gets the next message."""
    return peer_position(run, row, run.plan.steps[_next_step_of(run, row)].distance, 1)


@works_on_tables
def _peer(run: Run, row: int) -> int:
    """Return the chunk that gets the next message, if it runs."""
    return chunk_in(run, member_at(run, row, _place_of_peer(run, row)), run.chunks[row].phase_key)


@works_on_tables
def _rank_of(run: Run, row: int) -> int:
    return run.plan.actors[run.chunks[row].actor].rank


@works_on_tables
def _rank_of_peer(run: Run, row: int) -> int:
    return rank_at(run, row, _place_of_peer(run, row))
