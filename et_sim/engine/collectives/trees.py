"""Tree phases: towards the root of a tree, then from it, or one of the two.

On the way up, a leaf begins. A member that has received from all its children (each message crosses the
endpoint, and may be reduced) sends up in turn; if nothing comes down again, it is done. On the way down, the
root begins, unless messages came up before; a member that receives from its parent forwards the message to
its children and is done.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.collectives.bus import cross_endpoint
from et_sim.engine.collectives.members import member_at, rank_at
from et_sim.engine.collectives.unexpected import offer_step, request_step, take_unexpected
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import LATE_STEP, STEP
from et_sim.engine.state.run import NONE, PAIRS_EARLY, RENDEZVOUS, Run, setting_of
from et_sim.engine.transport.network_seam import inject, left_of_chunk
from et_sim.machine.corrections import Correction

ENDS_WHEN_SENT = setting_of(Correction.ENDS_WHEN_SENT)

# Step keys of messages (even: trees have no direction), from or to a child. With rendezvous, a parent may
# hold a message to each child, so their keys differ. START: a transfer that follows no message.
FROM_LEFT, FROM_RIGHT, TO_LEFT, TO_RIGHT, START = 0, 2, 4, 6, 8


@works_on_tables
def start_tree(run: Run, chunk_row: int) -> None:
    """Make the first transfer of a member that waits for no other; post receives on the others."""
    chunk = run.chunks[chunk_row]
    tree = run.plan.trees[run.visits[chunk_row].tree_or_rank]
    if not run.plan.programs[chunk.program].goes_up:
        if tree.parent == NONE:
            cross_endpoint(run, chunk_row, START, tree.down_bytes, NONE, True, False)
        else:
            post_receive(run, chunk_row, _from_parent(run, chunk_row))
        return
    if tree.left == NONE and tree.right == NONE:
        cross_endpoint(run, chunk_row, START, tree.up_bytes, NONE, True, False)
    if tree.left != NONE:
        post_receive(run, chunk_row, FROM_LEFT)
    if tree.right != NONE:
        post_receive(run, chunk_row, FROM_RIGHT)


@works_on_tables
def receive_in_tree(run: Run, chunk_row: int, step_key: int) -> None:
    """Start the transfer of a message that matched its posted receive."""
    chunk = run.chunks[chunk_row]
    tree_row = run.visits[chunk_row].tree_or_rank
    tree = run.plan.trees[tree_row]
    chunk.credit &= ~(1 << step_key)
    if step_key in (TO_LEFT, TO_RIGHT):
        size, reduction = tree.down_bytes, tree.down_reduction_ns
        returns = tree.left != NONE
    else:
        child = run.plan.trees[tree_row - chunk.position + peer_of(run, chunk_row, step_key)]
        size, reduction = child.up_bytes, child.up_reduction_ns
        is_last = chunk.received == 2 or tree.right == NONE
        returns = is_last and (tree.parent != NONE or run.plan.programs[chunk.program].goes_down == 1)
    cross_endpoint(run, chunk_row, step_key, size, reduction, False, returns)


@works_on_tables
def spend_tree_transfer(run: Run, chunk_row: int, step_key: int) -> bool:
    """Send what a finished transfer allows; return whether the phase is complete."""
    chunk = run.chunks[chunk_row]
    tree = run.plan.trees[run.visits[chunk_row].tree_or_rank]
    goes_down = run.plan.programs[chunk.program].goes_down == 1
    if step_key in (TO_LEFT, TO_RIGHT):
        _send_down(run, chunk_row)
        return True
    if step_key != START:
        chunk.transfers += 1
        if chunk.transfers < int(tree.left != NONE) + int(tree.right != NONE):  # uncompiled: no `or`
            return False
    if tree.parent == NONE:
        if goes_down:
            _send_down(run, chunk_row)
        return True
    side = FROM_LEFT if _is_left_child(run, chunk_row) else FROM_RIGHT
    _send(run, chunk_row, tree.parent, side, tree.up_bytes)
    if goes_down:
        post_receive(run, chunk_row, _from_parent(run, chunk_row))
    return not goes_down


@works_on_tables
def peer_of(run: Run, chunk_row: int, step_key: int) -> int:
    """Return the position of the member a message comes from."""
    tree = run.plan.trees[run.visits[chunk_row].tree_or_rank]
    if step_key == FROM_LEFT:
        return tree.left
    return tree.right if step_key == FROM_RIGHT else tree.parent


@works_on_tables
def _is_left_child(run: Run, chunk_row: int) -> bool:
    position, tree_row = run.chunks[chunk_row].position, run.visits[chunk_row].tree_or_rank
    parent = tree_row - position + run.plan.trees[tree_row].parent
    return run.plan.trees[parent].left == position


@works_on_tables
def _from_parent(run: Run, chunk_row: int) -> int:
    """Return the step key of a message from the parent."""
    return TO_LEFT if _is_left_child(run, chunk_row) else TO_RIGHT


@works_on_tables
def _send_down(run: Run, chunk_row: int) -> None:
    chunk = run.chunks[chunk_row]
    tree_row = run.visits[chunk_row].tree_or_rank
    tree, first = run.plan.trees[tree_row], tree_row - chunk.position
    if tree.left != NONE:
        _send(run, chunk_row, tree.left, TO_LEFT, run.plan.trees[first + tree.left].down_bytes)
    if tree.right != NONE:
        _send(run, chunk_row, tree.right, TO_RIGHT, run.plan.trees[first + tree.right].down_bytes)


@works_on_tables
def _send(run: Run, chunk_row: int, position: int, step_key: int, size: int) -> None:
    chunk = run.chunks[chunk_row]
    target_member, phase_key = member_at(run, chunk_row, position), chunk.phase_key
    chunk.sent += 1
    done = NONE
    if run.plan.settings[ENDS_WHEN_SENT] and not run.plan.settings[PAIRS_EARLY]:
        done = left_of_chunk(chunk_row)
        run.visits[chunk_row].leaving += 1
    if run.plan.settings[RENDEZVOUS]:
        offer_step(run, chunk_row, position, size, step_key, phase_key, done)
    else:
        here, there = run.plan.actors[chunk.actor].rank, rank_at(run, chunk_row, position)
        observe.step_sent(run, chunk_row, step_key)
        inject(run, here, there, size, STEP, target_member, step_key, phase_key, done)


@works_on_tables
def post_receive(run: Run, chunk_row: int, step_key: int) -> None:
    """Post a receive; a message that has arrived is delivered in a new event at this time."""
    chunk = run.chunks[chunk_row]
    phase_key = chunk.phase_key
    chunk.credit |= 1 << step_key
    observe.receive_posted(run, chunk_row, step_key)
    if run.plan.settings[RENDEZVOUS] and run.plan.programs[chunk.program].in_network == 0:
        request_step(run, chunk_row, peer_of(run, chunk_row, step_key), step_key, phase_key)
    if run.members[chunk.member].unexpected > 0:
        unexpected = take_unexpected(run, chunk.member, step_key, phase_key)
        if unexpected != NONE:
            thread = observe.pause(run)
            observe.early_step_received(run, chunk_row, unexpected)
            schedule(run, run.clock[0].now, LATE_STEP, chunk_row, step_key, 0)
            observe.resume(run, thread)
