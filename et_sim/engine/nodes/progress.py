"""Progress of collectives: the effects of a transfer, an arrival or the end of a phase.

The order within the event that ends a phase is the reference's: first the collective counts its last chunk
(which may issue further nodes), and only then does the queue have room again.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule, schedule_own
from et_sim.engine.collectives.bus import (
    NPU,
    consider_sending,
    end_processing,
    end_receiving,
    end_sending,
    go_on_after,
    release_request,
)
from et_sim.engine.collectives.chunks import end_collective, leave_last_queue, next_phase, release_running
from et_sim.engine.collectives.custom import end_custom_node
from et_sim.engine.collectives.in_network import branch_free, receive_from_switch, spend_transfer_to_switch
from et_sim.engine.collectives.matching import chunk_expecting, chunk_of
from et_sim.engine.collectives.members import first_step_of, rank_at
from et_sim.engine.collectives.steps import (
    make_transfer,
    peer_position,
    spend_transfer,
    start_held_step,
)
from et_sim.engine.collectives.trees import START, peer_of, receive_in_tree, spend_tree_transfer
from et_sim.engine.collectives.unexpected import keep_unexpected
from et_sim.engine.nodes.issue import complete
from et_sim.engine.observe import facade as observe
from et_sim.engine.repeats.search import looks_anew
from et_sim.engine.state.chunks import ONLY_SENDS, sequence_of
from et_sim.engine.state.kinds import CUSTOM_DONE, TRANSFER_READY
from et_sim.engine.state.records import BUS_SIDES, NO_PHASE
from et_sim.engine.state.run import NONE, STARTS_TOGETHER, Run
from et_sim.engine.transport.network_seam import is_eager
from et_sim.engine.transport.point_to_point import match


@works_on_tables
def transfer_at_endpoint(run: Run, chunk_row: int, step_key: int, reduction_ns: int) -> None:
    """Reduce after a transfer has crossed the endpoint, or make it ready."""
    if reduction_ns == NONE:
        transfer_ready(run, chunk_row, step_key)
    else:
        chunk = run.chunks[chunk_row]
        if run.plan.programs[chunk.program].paced:
            observe.library_paces(run)
        schedule_own(run, chunk.actor, reduction_ns, TRANSFER_READY, chunk_row, step_key, 0)


@works_on_tables
def bus_sent(run: Run, side: int) -> None:
    """Handle the event that a side of a bus has sent a request."""
    end_sending(run, side)
    consider_sending(run, side)


@works_on_tables
def bus_received(run: Run, side: int) -> None:
    """Handle the event that a side of a bus has received a request."""
    ended = end_receiving(run, side)
    if ended != NONE:
        _end_request(run, ended)
    consider_sending(run, side)


@works_on_tables
def bus_processed(run: Run, side: int) -> None:
    """Handle the event that a side of a bus has processed a request."""
    ended = end_processing(run, side)
    if ended != NONE:
        _end_request(run, ended)
    consider_sending(run, side)


@works_on_tables
def _end_request(run: Run, row: int) -> None:
    """Continue after a request has ended: on the inner bus its outer one, on the outer bus its transfer."""
    request = run.bus_requests[row]
    outer, after = request.outer, request.after
    release_request(run, row)
    if outer == NONE:
        transfer_at_endpoint(run, request.chunk, request.step_key, request.reduction_ns)
        return
    request = run.bus_requests[outer]
    side = run.chunks[request.chunk].actor * BUS_SIDES + NPU
    if go_on_after(run, side, outer, after) != NONE:
        release_request(run, outer)
        transfer_at_endpoint(run, request.chunk, request.step_key, request.reduction_ns)
    consider_sending(run, side)


@works_on_tables
def transfer_ready(run: Run, chunk_row: int, step_key: int) -> None:
    """Spend a transfer; that may end the phase, the chunk and the collective."""
    chunk = run.chunks[chunk_row]
    observe.transfer_done(run, chunk_row)
    if run.plan.programs[chunk.program].tree_first == NONE:
        is_complete = spend_transfer(run, chunk_row)
    elif run.plan.programs[chunk.program].in_network:
        is_complete = spend_transfer_to_switch(run, chunk_row, step_key)
    else:
        is_complete = spend_tree_transfer(run, chunk_row, step_key)
    if is_complete:
        _end_when_sent(run, chunk_row, step_key)


@works_on_tables
def _end_when_sent(run: Run, chunk_row: int, step_key: int) -> None:
    """End a complete phase if its messages have left; else the last of these ends it."""
    if run.visits[chunk_row].leaving == 0:
        end_phase(run, chunk_row, step_key)
    else:
        run.chunks[chunk_row].started = ONLY_SENDS


@works_on_tables
def step_left(run: Run, chunk_row: int) -> None:
    """Count a message as left; the last one ends a phase that only waits for messages to leave."""
    visit = run.visits[chunk_row]
    visit.leaving -= 1
    observe.step_left(run, chunk_row)
    if visit.leaving == 0 and run.chunks[chunk_row].started == ONLY_SENDS:
        end_phase(run, chunk_row, START)


@works_on_tables
def evaluated_follows(run: Run, chunk_row: int, kind: int, time: int) -> None:
    """Put on the calendar what follows from messages that were evaluated at once."""
    schedule(run, time, kind, chunk_row, observe.OF_EVALUATED, 0)


@works_on_tables
def held_step_starts(run: Run, member: int, step_key: int, phase_key: int) -> None:
    """Send a message that was held, and end its phase if that completes it."""
    chunk_row = start_held_step(run, member, step_key, phase_key)
    if chunk_row != NONE:
        _end_when_sent(run, chunk_row, START)


@works_on_tables
def custom_done(run: Run, chunk_row: int, node: int) -> None:
    """Complete a node of a custom collective; that may end the collective."""
    observe.custom_node_done(run, chunk_row)
    if end_custom_node(run, chunk_row, node):
        observe.custom_program_done(run, chunk_row)
        end_phase(run, chunk_row, 0)


@works_on_tables
def end_phase(run: Run, chunk_row: int, step_key: int) -> None:
    """End a phase; in ASTRA-sim 1.0, for all ranks after the last one."""
    if not run.plan.settings[STARTS_TOGETHER]:
        _leave_phase(run, chunk_row, step_key)
        return
    chunk = run.chunks[chunk_row]
    member = run.plan.groups[run.plan.members[chunk.member].group].first_member
    sequence = sequence_of(chunk)
    first = chunk_of(run, member, sequence)
    run.chunks_ended[first] += 1
    observe.phase_done_by_actor(run, first)
    if run.chunks_ended[first] == len(run.actors):
        run.chunks_ended[first] = 0
        thread = observe.pause(run)
        for actor_row in range(len(run.actors)):
            member_chunk = chunk_of(run, member + actor_row, sequence)
            observe.phase_ends_for(run, member_chunk, thread)
            _leave_phase(run, member_chunk, START)


@works_on_tables
def _leave_phase(run: Run, chunk_row: int, step_key: int) -> None:
    """Go on to the next phase; the last phase ends the chunk, and the last chunk the collective."""
    chunk = run.chunks[chunk_row]
    running_row = run.visits[chunk_row].running
    running = run.running[running_row]
    observe.phase_done(run, chunk_row)
    if chunk.phase + 1 < run.plan.collectives[running.collective].phases:
        next_phase(run, chunk_row)
        return
    running.remaining -= 1
    observe.chunk_done(run, running_row)
    is_last_chunk, thread = running.remaining == 0, observe.pause(run)
    if is_last_chunk:
        looks_anew(run)
        end_collective(run, running_row)
        _name_last_sender(run, chunk_row, step_key)
        complete(run, running.actor, running.node)
        observe.resume(run, thread)
    leave_last_queue(run, chunk_row)
    chunk.phase += 1  # beyond the last: it is done
    chunk.phase_key |= NO_PHASE
    if is_last_chunk:
        release_running(run, running_row)


@works_on_tables
def _name_last_sender(run: Run, chunk_row: int, step_key: int) -> None:
    """Record the sender of the message that the last step of a collective waited for."""
    chunk = run.chunks[chunk_row]
    running = run.running[run.visits[chunk_row].running]
    program = run.plan.programs[chunk.program]
    if program.custom_first != NONE or step_key == START:
        return
    if program.tree_first != NONE:
        position = peer_of(run, chunk_row, step_key)
        if position == NONE:  # a switch sent it, for all members
            return
    else:
        first_step = first_step_of(run, chunk_row)
        last_step = first_step + (chunk.step - 1 if chunk.step > 0 else program.step_period - 1)
        while program.own_steps and last_step > first_step and run.plan.steps[last_step].incoming == 0:
            last_step -= 1
        if program.own_steps and run.plan.steps[last_step].incoming == 0:
            return
        position = peer_position(run, chunk_row, run.plan.steps[last_step].distance, -1)
    node = run.plan.actors[running.actor].node_first + running.node
    run.nodes[node].partner = run.plan.actor_of_rank[rank_at(run, chunk_row, position)]


@works_on_tables
def deliver(run: Run, channel_row: int, sender_node: int, sender: int) -> None:
    """Deliver a message of a rank: complete its send (if not before), and its receive if posted."""
    observe.message_delivered(run, sender)
    if not is_eager(run, run.plan.channels[channel_row].bytes):
        thread = observe.pause(run)
        complete(run, sender, sender_node)
        observe.resume(run, thread)
    _meet(run, channel_row, sender, sender_node)


@works_on_tables
def deliver_custom(run: Run, channel_row: int, sender_node: int, chunk_row: int) -> None:
    """Deliver a message of a custom collective."""
    sender = run.plan.actor_of_rank[run.plan.channels[channel_row].source]
    observe.message_delivered(run, sender)
    if not is_eager(run, run.plan.channels[channel_row].bytes):  # else the chunk may be gone
        thread = observe.pause(run)
        custom_done(run, chunk_row, sender_node)
        observe.resume(run, thread)
    _meet(run, channel_row, sender, NONE)


@works_on_tables
def _meet(run: Run, channel_row: int, sender: int, sender_node: int) -> None:
    """Complete the receive of a message; `sender_node` is NONE inside a custom collective."""
    met = match(run, channel_row)
    if met == NONE:
        return
    kind, receiver, node = run.events[met].kind, run.events[met].a, run.events[met].b
    if kind == CUSTOM_DONE:
        custom_done(run, receiver, node)
        return
    state = run.nodes[run.plan.actors[receiver].node_first + node]
    state.partner = sender
    state.number = sender_node
    complete(run, receiver, node)


@works_on_tables
def part_left(run: Run, branch_row: int) -> None:
    """Handle a part that has left for its switch; this ends the phase of the root of a broadcast."""
    chunk_row = branch_free(run, branch_row)
    if chunk_row != NONE:
        end_phase(run, chunk_row, START)


@works_on_tables(forceinline=True)
def receive_step(run: Run, chunk_row: int, step_key: int) -> None:
    """Receive a message that matched its posted receive."""
    chunk = run.chunks[chunk_row]
    chunk.received += 1
    observe.step_received(run, chunk_row)
    if run.plan.programs[chunk.program].tree_first == NONE:
        make_transfer(run, chunk_row)
    else:
        _receive_in_tree(run, chunk_row, step_key)


@works_on_tables
def _receive_in_tree(run: Run, chunk_row: int, step_key: int) -> None:
    if run.plan.programs[run.chunks[chunk_row].program].in_network:
        receive_from_switch(run, chunk_row)
    else:
        receive_in_tree(run, chunk_row, step_key)


@works_on_tables
def step_arrived(run: Run, member_row: int, step_key: int, phase_key: int) -> None:
    """Deliver a message of a collective, or keep it if its receive is not yet posted."""
    observe.message_delivered(run, run.plan.members[member_row].actor)
    chunk_row = chunk_expecting(run, member_row, step_key, phase_key)
    if chunk_row != NONE:
        observe.receive_met(run, chunk_row, step_key)
        receive_step(run, chunk_row, step_key)
    else:
        keep_unexpected(run, member_row, step_key, phase_key)
