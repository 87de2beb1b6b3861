"""Chunks of collectives, on their way from queue to queue.

A collective is cut into chunks, each of which visits the queues of its phases one after the other. These
queues are chosen when the chunk begins.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.collectives.matching import add_to_index, chunk_of, drop_from_index
from et_sim.engine.collectives.queues import insert, pump, remove
from et_sim.engine.containers import give_row, take_row
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.chunks import sequence_of
from et_sim.engine.state.records import NO_PHASE, PHASE_BITS, PHASE_KEY_BITS
from et_sim.engine.state.run import (
    NONE,
    QUEUE_ROWS,
    QUEUES_PER_DIM,
    STARTS_TOGETHER,
    STREAM_POLICY,
    TOP_PRIORITY,
    Run,
    setting_of,
)
from et_sim.machine.corrections import Correction
from et_sim.plan.records import IN_GROUP, NO_AXIS, QueueCursor

ROOT_FIRST = 1 << 14  # in `Run.chunk_queue`: the phase uses the tree whose root is its first member
GROUP_COUNTERS = setting_of(Correction.GROUP_COUNTERS)
MATCH_BY_PROGRAM = setting_of(Correction.MATCH_BY_PROGRAM)
CONCURRENT_COMMUNICATION = setting_of(Correction.CONCURRENT_COMMUNICATION)
NO_CURSOR = int(QueueCursor.NONE)
NEXT, FIRST, LAST = int(QueueCursor.NEXT), int(QueueCursor.FIRST), int(QueueCursor.LAST)


@works_on_tables
def start_collective(run: Run, actor_row: int, node: int) -> None:
    """Create all chunks of a collective in turn, and start each as soon as it exists."""
    running_row = _new_running(run, actor_row, node)
    running = run.running[running_row]
    collective = run.plan.collectives[running.collective]
    running.priority = _next_priority(run, actor_row, node, collective.priority)
    group_counts = run.plan.settings[GROUP_COUNTERS] or run.plan.members[running.member].group == 0
    first_sequence = run.nodes[run.plan.actors[actor_row].node_first + node].number
    plan_row, thread = collective.chunk_plan_first, observe.pause(run)
    for number in range(collective.chunks):
        if number == run.plan.chunk_plans[plan_row].chunk_end:
            plan_row += 1
        chunk_row = running.chunks_first + number
        chunk, visit = run.chunks[chunk_row], run.visits[chunk_row]
        chunk.actor = actor_row
        chunk.member = running.member
        visit.running = running_row
        turn = _turn(run, running_row, number)
        visit.phase_first = run.plan.chunk_plans[plan_row].phase_first
        if collective.rotations > 1:
            visit.phase_first += _take_rotation(run, running_row, turn) * collective.phases
        chunk.phase_key = ((first_sequence + number) << PHASE_KEY_BITS) + NO_PHASE
        add_to_index(run, chunk_row)
        if not group_counts:
            run.members[actor_row].next_sequence += 1  # every chunk also counts as one of the system's
        _choose_queues(run, chunk_row, running.collective, turn)
        if not run.plan.settings[STARTS_TOGETHER]:
            _start_chunk(run, chunk_row)
            observe.resume(run, thread)
    if run.plan.settings[STARTS_TOGETHER]:
        _start_when_all_have_issued(run, running_row)


@works_on_tables
def _start_chunk(run: Run, chunk_row: int) -> None:
    enter_phase(run, chunk_row, 0)
    insert(run, chunk_row)
    pump(run, run.visits[chunk_row].queue)


@works_on_tables
def _start_when_all_have_issued(run: Run, running_row: int) -> None:
    """Start each chunk on all ranks once all have issued it, chunk by chunk, as ASTRA-sim 1.0 does."""
    running = run.running[running_row]
    issuer = run.actors[running.actor]
    issued = issuer.collectives
    issuer.collectives += 1
    run.issuers[issued] += 1
    observe.collective_issued(run, issued)
    if run.issuers[issued] < len(run.actors):
        return
    group = run.plan.groups[run.plan.members[running.member].group]
    first_sequence = sequence_of(run.chunks[running.chunks_first])
    for chunk in range(running.chunks):
        for actor_row in range(len(run.actors)):
            member = group.first_member + actor_row
            _start_chunk(run, chunk_of(run, member, first_sequence + chunk))


@works_on_tables
def _new_running(run: Run, actor_row: int, node: int) -> int:
    actor = run.plan.actors[actor_row]
    template = run.plan.templates[actor.template]
    plan_node = run.plan.nodes[template.node_first + node]
    row = take_row(run.running, run.clock[0].free_runnings)
    running = run.running[row]
    running.actor = actor_row
    running.node = node
    running.collective = plan_node.detail
    running.member = run.plan.actor_members[actor.first_member + plan_node.member]
    running.chunks = run.plan.collectives[plan_node.detail].chunks
    running.remaining = running.chunks
    observe.collective_starts(run, row)
    running.chunks_first = _take_block(run, running.chunks)
    member, state = run.members[running.member], run.nodes[actor.node_first + node]
    if run.plan.settings[MATCH_BY_PROGRAM]:
        collective = run.plan.collectives[running.collective]
        state.number = collective.first_sequence + plan_node.occurrence * running.chunks
    else:
        state.number = member.next_sequence
    member.next_sequence += running.chunks
    return row


@works_on_tables
def end_collective(run: Run, running_row: int) -> None:
    """Remove the chunks of a finished collective from the index; `release_running` frees them."""
    running = run.running[running_row]
    for number in range(running.chunks):
        drop_from_index(run, running.chunks_first + number)


@works_on_tables
def release_running(run: Run, running_row: int) -> None:
    """Free the row and the chunks of a collective whose last chunk has left its queue."""
    running = run.running[running_row]
    size = _block_size(running.chunks)
    run.visits[running.chunks_first].next = run.free_blocks[size]
    run.free_blocks[size] = running.chunks_first
    running.chunks = 0
    give_row(run.running, run.clock[0].free_runnings, running_row)


@works_on_tables
def _block_size(chunks: int) -> int:
    """Return the exponent of the smallest power of two that holds `chunks`."""
    size = 0
    while (1 << size) < chunks:
        size += 1
    return size


@works_on_tables
def _take_block(run: Run, chunks: int) -> int:
    size = _block_size(chunks)
    first = run.free_blocks[size]
    if first != NONE:
        run.free_blocks[size] = run.visits[first].next
        return first
    clock = run.clock[0]
    first = clock.chunks_top
    clock.chunks_top += 1 << size
    return first


@works_on_tables
def _next_priority(run: Run, actor_row: int, node: int, explicit: int) -> int:
    policy = run.plan.settings[STREAM_POLICY]
    if policy == 0 or explicit >= run.plan.settings[TOP_PRIORITY]:
        return explicit
    if run.plan.settings[CONCURRENT_COMMUNICATION]:
        return policy * node  # ranks may issue in different orders; their programs agree
    actor = run.actors[actor_row]
    actor.priority += policy
    return actor.priority


@works_on_tables
def _turn(run: Run, running_row: int, chunk: int) -> int:
    """Return a chunk's index among those of its collective and of earlier equal ones; NONE: in issue order.

    Ranks that match collectives by their programs may issue them in different orders. Properties that chunks
    take in turn, such as the direction of a ring, must then be the same on all these ranks.
    """
    if not run.plan.settings[MATCH_BY_PROGRAM]:
        return NONE
    running = run.running[running_row]
    template = run.plan.templates[run.plan.actors[running.actor].template]
    return run.plan.nodes[template.node_first + running.node].occurrence * running.chunks + chunk


@works_on_tables
def _take_rotation(run: Run, running_row: int, turn: int) -> int:
    """Return by how many places the order of dimensions is turned for the next chunk."""
    running = run.running[running_row]
    rotations = run.plan.collectives[running.collective].rotations
    if turn != NONE:
        return turn % rotations
    cursor = run.cursors[run.members[running.member].cursor_first]
    rotation = cursor.rotation % rotations
    cursor.rotation = (rotation + 1) % rotations
    return rotation


@works_on_tables
def _choose_queues(run: Run, chunk_row: int, collective: int, turn: int) -> None:
    """Pick the queue (and tree) of every phase, by the chunk's turn or the member's round-robin cursors."""
    phase_first = run.visits[chunk_row].phase_first
    cursor_first = run.members[run.chunks[chunk_row].member].cursor_first
    for index in range(run.plan.collectives[collective].phases):
        phase = run.plan.phases[phase_first + index]
        cursor = run.cursors[cursor_first + phase.queues]
        if turn != NONE:
            chosen = _queue_at(run, phase.cursor, turn)
        else:
            chosen = _take_cursor(run, cursor, phase.cursor)
        if run.plan.programs[phase.program].trees > 1:
            tree = turn & 1 if turn != NONE else _take_tree(cursor, run.plan.collectives[collective].kind)
            chosen |= tree * ROOT_FIRST
        if run.chunk_queue.shape[1] > 0:
            run.chunk_queue[chunk_row, index] = chosen


@works_on_tables
def _queue_at(run: Run, which: int, turn: int) -> int:
    """Return the queue that a cursor chooses after this many turns."""
    lower = run.plan.settings[QUEUE_ROWS] // 2
    if which == NEXT:
        return turn % run.plan.settings[QUEUES_PER_DIM]
    if which == LAST:
        return lower + turn % (run.plan.settings[QUEUE_ROWS] - lower)
    return turn % lower if which == FIRST and lower > 1 else 0


@works_on_tables
def _take_cursor(run: Run, cursor: Any, which: int) -> int:
    rows = run.plan.settings[QUEUE_ROWS]
    if which == NEXT:
        queue = cursor.next
        cursor.next = queue + 1 if queue + 1 < run.plan.settings[QUEUES_PER_DIM] else 0
    elif which == NO_CURSOR:
        queue = 0
    elif which == FIRST:
        queue = cursor.first
        cursor.first = queue + 1 if queue + 1 < rows // 2 else 0
    else:
        queue = cursor.last
        cursor.last = queue + 1 if queue + 1 < rows else rows // 2
    return queue


@works_on_tables
def _take_tree(cursor: Any, kind: int) -> int:
    """Return the next tree for collectives of a kind: 0 root last, 1 root first, in turn."""
    root_first = (cursor.trees >> kind) & 1
    cursor.trees ^= 1 << kind
    return root_first


@works_on_tables
def axis_in(run: Run, chunk_row: int, index: int) -> int:
    """Return the axis along which a chunk goes in a phase."""
    axis_row = run.plan.phases[run.visits[chunk_row].phase_first + index].axis
    if axis_row == NO_AXIS:
        return run.plan.groups[run.plan.members[run.chunks[chunk_row].member].group].axis
    return axis_row


@works_on_tables
def chosen_in(run: Run, chunk_row: int, index: int) -> int:
    """Return the queue, and tree, that a chunk has chosen for a phase."""
    return run.chunk_queue[chunk_row, index] if run.chunk_queue.shape[1] > 0 else 0


@works_on_tables
def direction_in(run: Run, chunk_row: int, index: int) -> int:
    """Return the direction of a chunk in a phase, which follows from its queue."""
    phase, per_dim = (
        run.plan.phases[run.visits[chunk_row].phase_first + index],
        run.plan.settings[QUEUES_PER_DIM],
    )
    queue = chosen_in(run, chunk_row, index) & (ROOT_FIRST - 1)
    upper = phase.cursor == NEXT and per_dim > 1 and queue >= per_dim // 2
    anticlockwise = upper or phase.cursor == LAST
    return -1 if anticlockwise and run.plan.programs[phase.program].turns else 1


@works_on_tables
def position_on(run: Run, chunk_row: int, axis_row: int) -> int:
    """Return the position of a chunk's rank along an axis."""
    chunk, axis = run.chunks[chunk_row], run.plan.axes[axis_row]
    if axis.members_first >= 0:
        return run.plan.members[chunk.member].position
    place = run.plan.actors[chunk.actor].rank
    if axis.members_first == IN_GROUP:
        place = run.plan.members[chunk.member].position
    position = (place // axis.stride) % axis.members
    return run.plan.orders[axis.order_first + axis.members + position] if axis.order_first >= 0 else position


@works_on_tables
def enter_phase(run: Run, chunk_row: int, index: int) -> None:
    """Set a chunk's fields for its phase `index`; the phase does not run yet."""
    chunk, visit = run.chunks[chunk_row], run.visits[chunk_row]
    phase = run.plan.phases[visit.phase_first + index]
    axis_row = axis_in(run, chunk_row, index)
    axis = run.plan.axes[axis_row]
    chosen = chosen_in(run, chunk_row, index)
    queue, root_first = chosen & (ROOT_FIRST - 1), chosen >= ROOT_FIRST
    chunk.phase = index
    chunk.program = phase.program
    chunk.phase_key = (sequence_of(chunk) << PHASE_KEY_BITS) + (phase.program << PHASE_BITS) + index
    chunk.axis = axis_row
    cursor_row = run.members[chunk.member].cursor_first + phase.queues
    visit.queue = cursor_row * run.plan.settings[QUEUE_ROWS] + queue
    chunk.direction = direction_in(run, chunk_row, index)
    chunk.position = position_on(run, chunk_row, axis_row)
    chunk.started = 0
    chunk.sent = chunk.received = chunk.credit = chunk.transfers = 0
    chunk.step = chunk.transfer = 0
    chunk.peer = NONE
    visit.leaving = visit.held = 0
    variant = axis.members if root_first else 0
    visit.tree_or_rank = run.plan.programs[phase.program].tree_first + variant + chunk.position


@works_on_tables
def next_phase(run: Run, chunk_row: int) -> None:
    """Move a chunk whose phase is complete to the queue of its next phase."""
    chunk = run.chunks[chunk_row]
    old = run.visits[chunk_row].queue
    remove(run, chunk_row)
    enter_phase(run, chunk_row, chunk.phase + 1)
    insert(run, chunk_row)
    run.queues[old].running -= 1
    observe.chunk_leaves(run, old)
    pump(run, old)
    pump(run, run.visits[chunk_row].queue)


@works_on_tables
def leave_last_queue(run: Run, chunk_row: int) -> None:
    """Remove a finished chunk from its queue, and start the next one."""
    queue = run.visits[chunk_row].queue
    remove(run, chunk_row)
    run.queues[queue].running -= 1
    observe.chunk_leaves(run, queue)
    pump(run, queue)
