"""Checks that ranks which turn are alike: their chunks, their peers, and the ways to these.

Two such ranks then have the same events, each at its own place. Chunks are compared at the present instant.
Where only steps repeat, the next step stands for all; where chunks advance, all phases of their collective
are compared.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.collectives.chunks import axis_in, direction_in, position_on
from et_sim.engine.collectives.matching import chunk_in, chunk_of
from et_sim.engine.collectives.members import member_at, member_on, position_from, rank_at, rank_on
from et_sim.engine.collectives.steps import peer_position
from et_sim.engine.repeats.advance import advance_of, number_of, same_way
from et_sim.engine.repeats.description import not_described
from et_sim.engine.repeats.turns import has_turned, turn
from et_sim.engine.state.chunks import sequence_of
from et_sim.engine.state.run import NONE, Run
from et_sim.plan.records import NO_LIMIT

# (run, rank, rank, rank, rank, bytes): return whether a message between the first two takes as long as one
# between the others, over links that `turn` like ranks do.
ways_turn = chosen_by_tables("ways_turn", "network", not_described)


@works_on_tables
def is_one_list(program: Any) -> bool:
    """Return whether all members of a phase follow one list of steps."""
    has_places = program.tree_first != NONE or program.custom_first != NONE or program.own_steps > 0
    return not (has_places or program.half > 0 or program.window != NO_LIMIT)


@works_on_tables
def all_turn(run: Run) -> bool:
    """Turn collectives without events as their senders do; return whether all that turns is alike."""
    if run.repeats[0].stays:
        return False
    for queue_row in range(len(run.queues)):
        queue = run.queues[queue_row]
        row = queue.head
        while row != NONE and row != queue.waiting:
            if not _peers_turn(run, row):
                return False
            row = run.visits[row].next
    for queue_row in range(len(run.queues)):
        if not _queue_turns(run, run.queues[queue_row]):
            return False
    return bool(not run.repeats[0].advances or _phases_turn(run))


@works_on_tables
def image_of(run: Run, row: int) -> int:
    """Return the chunk of the same number in the collective that has the place of a chunk's."""
    running_row = run.visits[row].running
    if not has_turned(run, run.running_turns, running_row):
        return row
    return run.running[run.running_turns[running_row].turns_to].chunks_first + number_of(run, row)


@works_on_tables
def _peers_turn(run: Run, row: int) -> bool:
    """Turn the collective of a chunk's peer, that of its peer, and so on, up to one that turns already."""
    while has_turned(run, run.running_turns, run.visits[row].running):
        image = image_of(run, row)
        if run.chunks[image].program != run.chunks[row].program:
            return False
        now, row = _peer(run, image), _peer(run, row)
        if row == NONE or now == NONE:
            return True
        running_row, other_row = run.visits[row].running, run.visits[now].running
        if has_turned(run, run.running_turns, running_row):
            return bool(run.running_turns[running_row].turns_to == other_row)
        if not turn(run, run.running_turns, running_row, other_row):
            return False
    return True


@works_on_tables
def _queue_turns(run: Run, queue: Any) -> bool:
    """Return whether running chunks of a queue are like their images.

    Where chunks advance, waiting ones must be, too, and images follow each other in a queue.
    """
    advances = run.repeats[0].advances
    row, expected = queue.head, NONE
    while row != NONE and (advances or row != queue.waiting):
        if advances or not _has_no_part(run, row):
            if not turns_or_stays(run, run.visits[row].running):
                return False
            image = image_of(run, row)
            if not _is_alike(run, row, image):
                return False
            if advances and row == queue.head:
                expected = image if run.visits[image].previous == NONE else NONE
            if advances and image != expected:
                return False
            expected = run.visits[image].next
        row = run.visits[row].next
    return bool(not advances or expected == NONE)


@works_on_tables
def turns_or_stays(run: Run, running_row: int) -> bool:
    """Let a collective that does not turn stay; return False if another one has its place."""
    pool = run.running_turns
    return has_turned(run, pool, running_row) or turn(run, pool, running_row, running_row)


@works_on_tables
def _has_no_part(run: Run, row: int) -> bool:
    """Return whether a chunk only waits: it neither receives nor sends."""
    turns, comparison = run.running_turns[run.visits[row].running], run.repeats[0].comparison
    has_place = turns.turned == comparison or turns.taken == comparison
    return bool(not has_place and run.chunks[row].sent == run.sent_before[row])


@works_on_tables
def _is_alike(run: Run, row: int, image: int) -> bool:
    """Return whether two chunks have advanced equally, and will do the same with their peers."""
    one, other = run.chunks[row], run.chunks[image]
    repeats, actor = run.repeats[0], run.actors[one.actor]
    if actor.turned == repeats.comparison and actor.turns_to != other.actor:
        return False
    actor.turned, actor.turns_to = repeats.comparison, other.actor
    if one.started and not _send_alike(run, row, image):
        return False
    if row == image:
        return True
    if one.program != other.program or one.phase != other.phase or one.started != other.started:
        return False
    if one.direction != other.direction or not same_way(run, row, image):
        return False
    if one.sent != other.sent or one.received != other.received:
        return False
    if one.transfers != other.transfers or one.credit != other.credit:
        return False
    if run.visits[row].leaving != run.visits[image].leaving:
        return False
    if advance_of(run, run.visits[row].running) == 0 and run.sent_before[row] != run.sent_before[image]:
        return False
    if len(run.phase_log) > 0 and _waited(run, row) != _waited(run, image):
        return False
    return bool(run.plan.axes[one.axis].endpoint_ns == run.plan.axes[other.axis].endpoint_ns)


@works_on_tables
def _waited(run: Run, row: int) -> int:
    """Return how long a chunk has waited in the period."""
    return run.chunk_times[row].waited_ns - run.chunk_times[row].waited_before


@works_on_tables
def _send_alike(run: Run, row: int, image: int) -> bool:
    """Return whether two chunks send to peers that turn like them, and over ways that do."""
    ahead = _peer(run, row)
    if ahead != NONE:
        ahead = image_of(run, ahead)
    if ahead != _peer(run, image):
        return False
    here, there = _rank_of(run, row), rank_at(run, row, _place_of_peer(run, row))
    other, behind = _rank_of(run, image), rank_at(run, image, _place_of_peer(run, image))
    return bool(ways_turn(run, here, there, other, behind, run.plan.steps[_next_step_of(run, row)].bytes))


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
def _phases_turn(run: Run) -> bool:
    """Return whether all phases of collectives that advance are alike for those that turn."""
    for running_row in range(len(run.running)):
        running, advance = run.running[running_row], advance_of(run, running_row)
        if running.chunks == 0 or advance == 0:
            continue
        for row in range(running.chunks_first, running.chunks_first + running.chunks):
            if _is_done(run, row):
                continue
            earlier = row - advance
            is_new = earlier < running.chunks_first or _is_done(run, earlier)
            if (is_new or not same_way(run, earlier, row)) and not _chunk_turns(run, row):
                return False
    return True


@works_on_tables
def _is_done(run: Run, row: int) -> bool:
    running = run.running[run.visits[row].running]
    return bool(run.chunks[row].phase >= run.plan.collectives[running.collective].phases)


@works_on_tables
def _chunk_turns(run: Run, row: int) -> bool:
    """Return whether a chunk and its image are alike in all phases."""
    running = run.running[run.visits[row].running]
    for index in range(run.plan.collectives[running.collective].phases):
        program = run.plan.programs[run.plan.phases[run.visits[row].phase_first + index].program]
        if not is_one_list(program):
            return False
        for step in range(program.step_first, program.step_first + program.step_period):
            if not _step_turns(run, row, index, step):
                return False
    return True


@works_on_tables
def _step_turns(run: Run, row: int, index: int, step_row: int) -> bool:
    """Return whether a chunk and its image send a step to peers that turn like them, over ways that do."""
    image, step = image_of(run, row), run.plan.steps[step_row]
    target, here, there = _target(run, row, index, step.distance)
    target_of_image, other, behind = _target(run, image, index, step.distance)
    if target != NONE:
        target = image_of(run, target)
    if target != target_of_image:
        return False
    axis, other_axis = axis_in(run, row, index), axis_in(run, image, index)
    if run.plan.axes[axis].endpoint_ns != run.plan.axes[other_axis].endpoint_ns:
        return False
    return bool(ways_turn(run, here, there, other, behind, step.bytes))


@works_on_tables
def _target(run: Run, row: int, index: int, distance: int) -> tuple[int, int, int]:
    """Return the chunk that gets a message in a phase (NONE: not there yet), and the ranks of both."""
    program = run.plan.programs[run.plan.phases[run.visits[row].phase_first + index].program]
    axis_row = axis_in(run, row, index)
    here = position_on(run, row, axis_row)
    there = position_from(program, here, distance, direction_in(run, row, index))
    member = member_on(run, row, axis_row, here, there)
    target = chunk_of(run, member, sequence_of(run.chunks[row]))
    return target, _rank_of(run, row), rank_on(run, row, axis_row, here, there)
