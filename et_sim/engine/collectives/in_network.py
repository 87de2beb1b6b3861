"""Phases in the network: every member sends once and receives once, and switches reduce and forward.

Where all members send (`joins`), a switch waits for a chunk's data from everything below it, spends its
processing time on them, and sends the result up, or from the root of the tree down again. A broadcast is
forwarded as it arrives, to all neighbours except its source. On the way down, a switch forwards a chunk at
once. A member sends one chunk after the other, each when the one before has left: so chunks go up and down at
the same time on any shared links. Switches take no part in the rendezvous protocol.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import new_event, schedule
from et_sim.engine.collectives.bus import cross_endpoint
from et_sim.engine.collectives.trees import START, TO_LEFT, post_receive
from et_sim.engine.containers import give_row, join, leave, take_row
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import AT_SWITCH, BRANCH_FREE, STEP, SWITCH_DONE
from et_sim.engine.state.records import PHASE_BITS, PROGRAM_MASK
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.network_seam import DOWN, UP, pass_branch, switch_done_ns
from et_sim.plan.records import IN_SYSTEM

FROM_SWITCH = TO_LEFT


@works_on_tables
def start_in_network(run: Run, chunk_row: int) -> None:
    """Start a phase: cross the endpoint on members that send, and post the receive on the others."""
    if _sends(run, chunk_row):
        tree = run.plan.trees[run.visits[chunk_row].tree_or_rank]
        cross_endpoint(run, chunk_row, START, tree.up_bytes, NONE, True, False)
    else:
        post_receive(run, chunk_row, FROM_SWITCH)


@works_on_tables
def receive_from_switch(run: Run, chunk_row: int) -> None:
    """Match a message of a switch with its posted receive."""
    chunk = run.chunks[chunk_row]
    chunk.credit &= ~(1 << FROM_SWITCH)
    size = run.plan.trees[run.visits[chunk_row].tree_or_rank].down_bytes
    cross_endpoint(run, chunk_row, FROM_SWITCH, size, NONE, False, False)


@works_on_tables
def spend_transfer_to_switch(run: Run, chunk_row: int, step_key: int) -> bool:
    """Send after the first transfer; return whether the phase is complete."""
    if step_key != START:
        return True
    branch_row = _own_branch(run, run.chunks[chunk_row])
    state = run.branches[branch_row]
    observe.joins_fifo(run, state)
    if state.busy:
        held = new_event(run, AT_SWITCH, chunk_row, branch_row, 0)
        observe.send_held(run, held)
        join(run.events, state, held)
    else:
        observe.branch_was_free(run, branch_row)
        _send_up(run, chunk_row, branch_row)
    if run.plan.programs[run.chunks[chunk_row].program].joins:
        post_receive(run, chunk_row, FROM_SWITCH)
    return False


@works_on_tables
def _send_up(run: Run, chunk_row: int, branch_row: int) -> None:
    """Send a member's part of a chunk; the next part waits until it has left."""
    chunk, state = run.chunks[chunk_row], run.branches[branch_row]
    state.busy, state.chunk = 1, chunk_row
    size, way = run.plan.trees[run.visits[chunk_row].tree_or_rank].up_bytes, 2 * _group_of(run, chunk) + UP
    observe.sent_to_switch(run, chunk_row)
    pass_branch(
        run, branch_row, UP, size, chunk.program, AT_SWITCH, way, branch_row, chunk.phase_key, BRANCH_FREE
    )


@works_on_tables
def branch_free(run: Run, branch_row: int) -> int:
    """Send the next part after one has left; return the chunk whose phase has ended, or NONE."""
    state = run.branches[branch_row]
    chunk_row = state.chunk
    state.busy = 0
    observe.branch_freed(run, branch_row)
    held = leave(run.events, state)
    if held != NONE:
        thread = observe.pause(run)
        observe.held_part_starts(run, held)
        give_row(run.events, run.clock[0].free_events, held)
        _send_up(run, run.events[held].a, branch_row)
        observe.resume(run, thread)
    return NONE if run.plan.programs[run.chunks[chunk_row].program].joins else chunk_row


@works_on_tables
def part_at_switch(run: Run, way: int, branch_row: int, phase_key: int) -> None:
    """Handle a part of a chunk at a switch, from below or from the next switch above."""
    branch, group = run.plan.branches[branch_row], way >> 1
    if way & 1 == DOWN:
        _send_down(run, branch.below, NONE, group, phase_key)
        return
    if branch.below == NONE:
        observe.message_delivered(run, branch.actor)
    program = run.plan.programs[_program_of(phase_key)]
    if program.joins and not _is_whole(run, branch.switch, group, phase_key):
        return
    switch = run.plan.switches[branch.switch]
    size = program.up_fixed + program.up_each * switch.members
    schedule(run, switch_done_ns(run, branch.switch, size), SWITCH_DONE, branch_row, group, phase_key)


@works_on_tables
def switch_done(run: Run, branch_row: int, group: int, phase_key: int) -> None:
    """Forward a chunk that a switch has processed."""
    switch_row = run.plan.branches[branch_row].switch
    switch, program_row = run.plan.switches[switch_row], _program_of(phase_key)
    program = run.plan.programs[program_row]
    if switch.branch != NONE:
        size = program.up_fixed + program.up_each * switch.members
        observe.sent_between_switches(run, switch.branch, phase_key)
        pass_branch(
            run,
            switch.branch,
            UP,
            size,
            program_row,
            AT_SWITCH,
            2 * group + UP,
            switch.branch,
            phase_key,
            NONE,
        )
    if program.joins == 0:
        _send_down(run, switch_row, branch_row, group, phase_key)
    elif switch.branch == NONE:
        _send_down(run, switch_row, NONE, group, phase_key)


@works_on_tables
def _send_down(run: Run, switch_row: int, but: int, group: int, phase_key: int) -> None:
    """Send everything below a switch, except one branch, its part."""
    switch, program_row = run.plan.switches[switch_row], _program_of(phase_key)
    program = run.plan.programs[program_row]
    thread = observe.pause(run)
    for row in range(switch.first_branch, switch.first_branch + switch.branches):
        if row == but:
            continue
        branch = run.plan.branches[row]
        size = program.down_fixed + program.down_each * branch.members
        if branch.below != NONE:
            observe.sent_between_switches(run, row, phase_key)
            pass_branch(run, row, DOWN, size, program_row, AT_SWITCH, 2 * group + DOWN, row, phase_key, NONE)
        else:
            member = branch.member
            if member == NONE:
                member = run.plan.groups[group].first_member + branch.actor
            observe.sent_by_switch(run, branch.actor, phase_key)
            pass_branch(run, row, DOWN, size, program_row, STEP, member, FROM_SWITCH, phase_key, NONE)
        observe.resume(run, thread)


@works_on_tables
def _is_whole(run: Run, switch_row: int, group: int, phase_key: int) -> bool:
    """Record a part of a chunk; return whether it was the last one."""
    clock, state = run.clock[0], run.switches[switch_row]
    before, row = NONE, state.head
    while row != NONE and not (run.joins[row].phase_key == phase_key and run.joins[row].group == group):
        before, row = row, run.joins[row].next
    if row == NONE:
        row = take_row(run.joins, clock.free_joins)
        made = run.joins[row]
        made.phase_key, made.group, made.arrived, made.next = phase_key, group, 0, state.head
        state.head = row
        before = NONE
    joined = run.joins[row]
    joined.arrived += 1
    observe.part_joined(run, row, joined.arrived == 1)
    if joined.arrived < run.plan.switches[switch_row].branches:
        return False
    if before == NONE:
        state.head = joined.next
    else:
        run.joins[before].next = joined.next
    give_row(run.joins, clock.free_joins, row)
    return True


@works_on_tables
def _program_of(phase_key: int) -> int:
    return (phase_key >> PHASE_BITS) & PROGRAM_MASK


@works_on_tables
def _sends(run: Run, chunk_row: int) -> bool:
    program = run.plan.programs[run.chunks[chunk_row].program]
    return program.joins == 1 or run.plan.trees[run.visits[chunk_row].tree_or_rank].parent == NONE


@works_on_tables
def _group_of(run: Run, chunk: Any) -> int:
    """Return the group if it spans the system, else 0; other groups have trees of their own."""
    is_of_system = run.plan.axes[chunk.axis].members_first == IN_SYSTEM
    return run.plan.members[chunk.member].group if is_of_system else 0


@works_on_tables
def _own_branch(run: Run, chunk: Any) -> int:
    """Return the branch of the chunk's member."""
    axes = run.plan.groups[0].axis + 1  # of the system
    axis = run.plan.axes[chunk.axis]
    if axis.members_first == IN_SYSTEM:
        return run.plan.own_branches[chunk.actor * axes + chunk.axis]
    return run.plan.own_branches[len(run.actors) * axes + axis.slot * len(run.members) + chunk.member]
