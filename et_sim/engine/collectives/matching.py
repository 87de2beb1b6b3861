"""Matching of a collective's messages: the chunk of a message, and the receives posted there.

In ASTRA-sim 1.0, a message goes on the calendar when both it and its receive exist, so that arrivals of one
time come in the order in which the pairs were completed. `schedule_when_matched` does the same.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import new_event, schedule, slot_at
from et_sim.engine.collectives.members import expects
from et_sim.engine.collectives.unexpected import keep_unexpected, key_in_other_direction
from et_sim.engine.containers import chain, join_after, unchain
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.chunks import chunk_home, sequence_of
from et_sim.engine.state.kinds import STEP
from et_sim.engine.state.records import PHASE_BITS, PHASE_KEY_BITS, PROGRAM_MASK
from et_sim.engine.state.run import ARRIVALS_BY_SENDER, NONE, Run


@works_on_tables
def chunk_of(run: Run, member_row: int, sequence: int) -> int:
    """Return the chunk with this sequence number at a group member; NONE if it does not exist (yet)."""
    row = run.chunk_index[chunk_home(run, member_row, sequence)]
    while row != NONE:
        chunk = run.chunks[row]
        if sequence_of(chunk) == sequence and chunk.member == member_row:
            return row
        row = chunk.chain
    return NONE


@works_on_tables
def add_to_index(run: Run, chunk_row: int) -> None:
    """Add a chunk to the index, where `chunk_of` finds it."""
    chunk = run.chunks[chunk_row]
    chain(run.chunks, run.chunk_index, chunk_home(run, chunk.member, sequence_of(chunk)), chunk_row)


@works_on_tables
def drop_from_index(run: Run, chunk_row: int) -> None:
    """Remove a chunk from the index once all its messages have arrived."""
    chunk = run.chunks[chunk_row]
    unchain(run.chunks, run.chunk_index, chunk_home(run, chunk.member, sequence_of(chunk)), chunk_row)


@works_on_tables
def chunk_expecting(run: Run, member_row: int, step_key: int, phase_key: int) -> int:
    """Return the chunk that has posted the receive of a message; NONE if none has."""
    chunk_row = run.chunk_index[chunk_home(run, member_row, phase_key >> PHASE_KEY_BITS)]
    while chunk_row != NONE:
        chunk = run.chunks[chunk_row]
        if chunk.phase_key == phase_key and chunk.member == member_row:
            break
        chunk_row = chunk.chain
    if chunk_row == NONE:
        return NONE
    chunk = run.chunks[chunk_row]
    if run.plan.programs[chunk.program].tree_first != NONE:
        return chunk_row if expects(chunk, step_key) else NONE
    if (step_key & 1) != (chunk.direction < 0):
        step_key = key_in_other_direction(run, step_key, phase_key)
    return chunk_row if step_key != NONE and (step_key >> 1) < chunk.sent else NONE


@works_on_tables
def chunk_in(run: Run, member: int, phase_key: int) -> int:
    """Return the chunk of a member that runs in a phase; NONE if none does."""
    row = chunk_of(run, member, phase_key >> PHASE_KEY_BITS)
    return row if row != NONE and is_in_phase(run, row, phase_key) else NONE


@works_on_tables
def is_in_phase(run: Run, chunk_row: int, phase_key: int) -> bool:
    """Return whether a chunk runs in a phase."""
    return bool(run.chunks[chunk_row].started and run.chunks[chunk_row].phase_key == phase_key)


@works_on_tables
def schedule_when_matched(run: Run, arrival: int, member: int, step_key: int, phase_key: int) -> None:
    """Schedule the arrival of a message, or keep it until its receive is posted."""
    if chunk_expecting(run, member, step_key, phase_key) != NONE:
        put_on_calendar(run, arrival, member, step_key, phase_key)
    else:
        row = keep_unexpected(run, member, step_key, phase_key)
        run.unexpected[row].arrives_ns = arrival
        observe.unexpected_on_its_way(run, row, arrival)


@works_on_tables
def put_on_calendar(run: Run, arrival: int, member: int, step_key: int, phase_key: int) -> None:
    """Schedule the arrival of a message behind others of its time; in boost mode, ordered by sender.

    In boost mode, 1.0 simulates rank 0 and its neighbours only, who act in the order of their ids. All ranks
    see the order here that rank 0 sees there.
    """
    if not run.plan.settings[ARRIVALS_BY_SENDER]:
        schedule(run, arrival, STEP, member, step_key, phase_key)
        return
    sender = _sender_to_first(run, step_key, phase_key)
    slot = run.slots[slot_at(run, arrival)]
    before, at = NONE, slot.head
    while at != NONE:
        event = run.events[at]
        if event.kind == STEP and _sender_to_first(run, event.b, event.c) > sender:
            break
        before, at = at, event.next
    row = new_event(run, STEP, member, step_key, phase_key)
    observe.event_scheduled(run, row, arrival, STEP)
    join_after(run.events, slot, before, row)


@works_on_tables
def _sender_to_first(run: Run, step_key: int, phase_key: int) -> int:
    """Return the rank from which such a message comes to rank 0; 0 for trees, whose places differ."""
    program = run.plan.programs[(phase_key >> PHASE_BITS) & PROGRAM_MASK]
    if program.tree_first != NONE or program.dimension == NONE:
        return 0
    distance = run.plan.steps[program.step_first + (step_key >> 1) % program.step_period].distance
    place = distance if program.pairs or step_key & 1 else program.members - distance
    return place * run.plan.axes[program.dimension].stride
