"""The step machinery of one phase: transfers, credits, packets.

Every transfer crosses the endpoint, may reduce, and then gives its chunk one credit, with which it may send
the next packet. Ring, direct and halving-doubling are nothing but different programs.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.collectives.bus import cross_endpoint
from et_sim.engine.collectives.custom import start_custom
from et_sim.engine.collectives.in_network import start_in_network
from et_sim.engine.collectives.matching import chunk_in, put_on_calendar, schedule_when_matched
from et_sim.engine.collectives.members import first_step_of, member_at, position_from, rank_at
from et_sim.engine.collectives.trees import start_tree
from et_sim.engine.collectives.unexpected import (
    OFFERED,
    find_unexpected,
    hold_step,
    inject_step,
    offer_step,
    request_step,
    take_unexpected_either_way,
)
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import INJECT_STEP, LATE_STEP, STEP
from et_sim.engine.state.run import NONE, PAIRS_EARLY, RENDEZVOUS, Run, setting_of
from et_sim.engine.transport.network_seam import (
    flight_ns,
    goes_round,
    inject,
    left_of_chunk,
    step_flight_ns,
)
from et_sim.machine.corrections import Correction
from et_sim.plan.records import NO_LIMIT

ENDS_WHEN_SENT = setting_of(Correction.ENDS_WHEN_SENT)


@works_on_tables
def start_phase(run: Run, chunk_row: int) -> None:
    """Make the first transfers; the chunk's phase fields are already set."""
    chunk = run.chunks[chunk_row]
    chunk.started = 1
    if run.plan.programs[chunk.program].tree_first != NONE:
        if run.plan.programs[chunk.program].in_network:
            start_in_network(run, chunk_row)
        else:
            start_tree(run, chunk_row)
        return
    if run.plan.programs[chunk.program].custom_first != NONE:
        start_custom(run, chunk_row)
        return
    if goes_round(run, chunk_row):
        return
    for _ in range(run.plan.programs[chunk.program].start_transfers):
        make_transfer(run, chunk_row)


@works_on_tables(forceinline=True)
def make_transfer(run: Run, chunk_row: int) -> None:
    """Queue the next packet, and send its transfer to the endpoint."""
    chunk = run.chunks[chunk_row]
    program = run.plan.programs[chunk.program]
    transfer = run.plan.transfers[program.transfer_first + chunk.transfer]
    chunk.transfers += 1
    chunk.transfer += 1
    if chunk.transfer == program.transfer_period:
        chunk.transfer = 0
    cross_endpoint(
        run, chunk_row, 0, transfer.bytes, transfer.reduction_ns, transfer.inward, transfer.returns
    )


@works_on_tables
def spend_transfer(run: Run, chunk_row: int) -> bool:
    """Count one more credit, and send packets if possible; return whether the phase is complete."""
    run.chunks[chunk_row].credit += 1
    return send_packets(run, chunk_row)


@works_on_tables
def send_packets(run: Run, chunk_row: int) -> bool:
    """Send as many packets as credits allow; return whether the phase is complete.

    A member that forwards bytes to one peer waits while a message to that peer is held.
    """
    chunk = run.chunks[chunk_row]
    program = run.plan.programs[chunk.program]
    if program.window != NO_LIMIT and program.step_period == 1 and run.visits[chunk_row].held > 0:
        return False
    burst = 1
    if program.half > 0 and program.sends - chunk.sent <= program.half:
        observe.second_half_tried(run, chunk_row)
        if chunk.received < program.half:
            return False  # the second half waits for all of the first
        burst = program.start_transfers
    while burst > 0 and chunk.credit > 0 and chunk.sent < min(chunk.transfers, program.sends):
        if send_packet(run, chunk_row):
            chunk.credit -= 1
            burst -= 1
            if program.window != NO_LIMIT and program.step_period == 1 and run.visits[chunk_row].held > 0:
                return False
        else:
            chunk.transfers += 1  # counts as received, as no message comes
    return chunk.sent == program.sends and chunk.credit == program.start_transfers


@works_on_tables
def send_packet(run: Run, chunk_row: int) -> bool:
    """Send the next packet, then post its receive; return whether a message comes."""
    chunk = run.chunks[chunk_row]
    program = run.plan.programs[chunk.program]
    step_row = first_step_of(run, chunk_row) + chunk.step
    is_sent = program.own_steps == 0 or run.plan.steps[step_row].bytes > 0
    is_coming = program.own_steps == 0 or run.plan.steps[step_row].incoming > 0
    step_key = chunk.sent * 2 + (chunk.direction < 0)
    phase_key = chunk.phase_key
    if program.window != NO_LIMIT and not run.plan.settings[RENDEZVOUS]:
        _send_into_buffer(run, chunk_row, step_row, step_key, phase_key)
        return True
    if run.plan.settings[RENDEZVOUS]:
        if is_sent:
            target = _position_of_peer(run, chunk_row, step_row, 1)
            done = done_of_last(run, chunk_row, chunk.sent)
            offer_step(run, chunk_row, target, run.plan.steps[step_row].bytes, step_key, phase_key, done)
        if is_coming:
            source = _position_of_peer(run, chunk_row, step_row, -1)
            request_step(run, chunk_row, source, step_key, phase_key)
    elif is_sent:
        _inject(run, chunk_row, step_row, step_key, phase_key)
    if is_coming:
        _post_receive(run, chunk_row, step_key, phase_key)
    _count_step(run, chunk_row)
    return is_coming


@works_on_tables
def _count_step(run: Run, chunk_row: int) -> None:
    """Go on to the next packet of the program."""
    chunk = run.chunks[chunk_row]
    chunk.sent += 1
    chunk.step += 1
    if chunk.step == run.plan.programs[chunk.program].step_period:
        chunk.step = 0


@works_on_tables
def _send_into_buffer(run: Run, chunk_row: int, step_row: int, step_key: int, phase_key: int) -> None:
    """Post a receive, which frees room for a later message of its sender; send a packet if there is room.

    The buffer of a receiver holds the messages of `window` steps. If the room may change within the same
    nanosecond, an event of the sender decides, so that the order of the two events does not matter.
    """
    chunk, visit, now = run.chunks[chunk_row], run.visits[chunk_row], run.clock[0].now
    step, program = chunk.sent, run.plan.programs[chunk.program]
    _post_receive(run, chunk_row, step_key, phase_key)
    visit.posted_ns = now
    _count_step(run, chunk_row)
    thread = observe.pause(run)
    _free_room(run, chunk_row, step_row, step + program.window)
    observe.resume(run, thread)
    target = chunk.peer
    if target == NONE:
        target = _find_peer(run, chunk_row, step_row)
    room = step - program.window  # the receive that must have been posted
    peer_row = chunk_in(run, target, phase_key) if room >= 0 else NONE
    posted = NONE if peer_row == NONE else run.chunks[peer_row].sent - 1
    if room > posted or (room >= 0 and _is_posted_now(run, peer_row, room, posted)):
        position = _position_of_peer(run, chunk_row, step_row, 1)
        size, done = run.plan.steps[step_row].bytes, done_of_last(run, chunk_row, step)
        hold_step(run, chunk_row, position, size, step_key, phase_key, done)
        visit.held += 1
        if room <= posted:
            schedule(run, now, INJECT_STEP, chunk.member, step_key, phase_key)
            observe.resume(run, thread)
    else:
        _inject(run, chunk_row, step_row, step_key, phase_key)


@works_on_tables
def _is_posted_now(run: Run, peer_row: int, room: int, posted: int) -> bool:
    """Return whether a peer's receive may have been posted in this nanosecond, as the last ones were."""
    burst = run.plan.programs[run.chunks[peer_row].program].start_transfers
    return bool(run.visits[peer_row].posted_ns == run.clock[0].now and room > posted - burst)


@works_on_tables
def _free_room(run: Run, chunk_row: int, step_row: int, step: int) -> None:
    """Start the message of a later step if its sender holds it."""
    chunk = run.chunks[chunk_row]
    if step >= run.plan.programs[chunk.program].sends:
        return
    source = member_at(run, chunk_row, _position_of_peer(run, chunk_row, step_row, -1))
    if run.members[source].unexpected == 0:
        return
    step_key = step * 2 + (chunk.direction < 0)
    if find_unexpected(run, source, step_key | OFFERED, chunk.phase_key) != NONE:
        observe.leaves_rank(run)
        schedule(run, run.clock[0].now, INJECT_STEP, source, step_key, chunk.phase_key)


@works_on_tables
def start_held_step(run: Run, member: int, step_key: int, phase_key: int) -> int:
    """Send a message that was held; return the chunk whose phase that completes, or NONE."""
    chunk_row = chunk_in(run, member, phase_key)
    is_sent = inject_step(run, member, step_key, phase_key)
    if not is_sent or chunk_row == NONE or run.visits[chunk_row].held == 0:
        return NONE
    run.visits[chunk_row].held -= 1
    return chunk_row if send_packets(run, chunk_row) else NONE


@works_on_tables
def done_of_last(run: Run, chunk_row: int, step: int) -> int:
    """Return the `done` of a step's message; the phase ends after its last message to each peer has left."""
    program = run.plan.programs[run.chunks[chunk_row].program]
    if not run.plan.settings[ENDS_WHEN_SENT] or step < program.sends - program.step_period:
        return NONE
    if run.plan.settings[PAIRS_EARLY]:
        return NONE
    run.visits[chunk_row].leaving += 1
    return left_of_chunk(chunk_row)


@works_on_tables
def _inject(run: Run, chunk_row: int, step_row: int, step_key: int, phase_key: int) -> None:
    """Put a packet on the network; the time of most flights depends on the plan's step alone."""
    target_member = run.chunks[chunk_row].peer
    if target_member == NONE:
        target_member = _find_peer(run, chunk_row, step_row)
    observe.step_sent(run, chunk_row, step_key)
    done = done_of_last(run, chunk_row, step_key >> 1)
    flight = step_flight_ns(run, step_row)
    if flight == NONE or done != NONE or observe.is_recording(run):
        here, size = run.plan.actors[run.chunks[chunk_row].actor].rank, run.plan.steps[step_row].bytes
        there = run.visits[chunk_row].tree_or_rank
        if run.chunks[chunk_row].peer == NONE:
            there = rank_at(run, chunk_row, _position_of_peer(run, chunk_row, step_row, 1))
        if not run.plan.settings[PAIRS_EARLY]:
            inject(run, here, there, size, STEP, target_member, step_key, phase_key, done)
            return
        flight = flight_ns(run, here, there, size)
    _fly(run, chunk_row, flight, target_member, step_key)


@works_on_tables
def _find_peer(run: Run, chunk_row: int, step_row: int) -> int:
    """Return the member that receives a packet, and store it if all packets of the phase have the same."""
    chunk = run.chunks[chunk_row]
    position = _position_of_peer(run, chunk_row, step_row, 1)
    peer = member_at(run, chunk_row, position)
    if run.plan.programs[chunk.program].step_period == 1:
        chunk.peer = peer
        run.visits[chunk_row].tree_or_rank = rank_at(run, chunk_row, position)
    return peer


@works_on_tables
def _position_of_peer(run: Run, chunk_row: int, step_row: int, towards: int) -> int:
    return peer_position(run, chunk_row, run.plan.steps[step_row].distance, towards)


@works_on_tables
def _fly(run: Run, chunk_row: int, flight: int, member: int, step_key: int) -> None:
    arrival, phase_key = run.clock[0].now + flight, run.chunks[chunk_row].phase_key
    if run.plan.settings[PAIRS_EARLY]:
        schedule_when_matched(run, arrival, member, step_key, phase_key)
    else:
        schedule(run, arrival, STEP, member, step_key, phase_key)


@works_on_tables
def _post_receive(run: Run, chunk_row: int, step_key: int, phase_key: int) -> None:
    """Post a receive; a message that has arrived is delivered in a new event, after it is copied."""
    member = run.chunks[chunk_row].member
    observe.receive_posted(run, chunk_row, step_key)
    if run.members[member].unexpected == 0:
        return
    row = take_unexpected_either_way(run, member, step_key, phase_key)
    if row == NONE:
        return
    thread = observe.pause(run)
    if run.plan.settings[PAIRS_EARLY]:
        arrival, its_key = max(run.unexpected[row].arrives_ns, run.clock[0].now), run.unexpected[row].step_key
        observe.early_step_scheduled(run, row)
        put_on_calendar(run, arrival, member, its_key, phase_key)
        observe.resume(run, thread)
        return
    observe.early_step_received(run, chunk_row, row)
    copy_ns = run.plan.programs[run.chunks[chunk_row].program].copy_ns
    if copy_ns > 0:
        copy_ns = min(copy_ns, run.clock[0].now - run.unexpected[row].arrives_ns)
    if copy_ns > 0:
        observe.library_paces(run)
    schedule(run, run.clock[0].now + copy_ns, LATE_STEP, chunk_row, 0, 0)
    observe.resume(run, thread)


@works_on_tables
def peer_position(run: Run, chunk_row: int, distance: int, towards: int) -> int:
    """Return the position of the member a packet goes to (`towards` 1) or comes from (-1)."""
    chunk = run.chunks[chunk_row]
    program = run.plan.programs[chunk.program]
    return position_from(program, chunk.position, distance, chunk.direction * towards)
