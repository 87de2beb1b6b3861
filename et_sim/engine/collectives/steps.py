"""The step machinery of one phase: bundles, credits, packets.

Every bundle crosses the endpoint, perhaps reduces, and then gives its stream one credit and the chance
to send the next packet. Ring, direct and halving-doubling are nothing but different programs.

Not here: which stream may run (`streams`), and what follows the end of a phase (`progress`).
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.collectives.custom import start_custom
from et_sim.engine.collectives.endpoint import cross_endpoint
from et_sim.engine.collectives.matching import pair_step, put_on_calendar
from et_sim.engine.collectives.members import rank_at, seat_at, stage_of
from et_sim.engine.collectives.rendezvous import ask_for_step, offer_step
from et_sim.engine.collectives.trees import start_tree
from et_sim.engine.collectives.unexpected import take_parked_either_way
from et_sim.engine.observe.causes import is_recorded, needs_half, now_of, receive_posted, resume, was_early
from et_sim.engine.observe.message_causes import waits_for_early
from et_sim.engine.observe.tie_rules import note_half_tried, note_posted
from et_sim.engine.observe.traffic import COLLECTIVE, is_noted, tell_step
from et_sim.engine.state.kinds import LATE_STEP, STEP
from et_sim.engine.state.run import NONE, PAIRS_EARLY, RENDEZVOUS, Run
from et_sim.engine.transport.network_seam import flight_ns, inject, step_flight_ns


@works_on_tables
def start_phase(run: Run, stream_row: int) -> None:
    """Make the first bundles; the stream's phase fields are already set."""
    stream = run.streams[stream_row]
    stream.started = 1
    stream.running_ns = run.clock[0].now
    stream.waited_ns = 0
    if run.plan.programs[stream.program].tree_first != NONE:
        start_tree(run, stream_row)
        return
    if run.plan.programs[stream.program].custom_first != NONE:
        start_custom(run, stream_row)
        return
    for _ in range(run.plan.programs[stream.program].start_bundles):
        make_bundle(run, stream_row)


@works_on_tables
def make_bundle(run: Run, stream_row: int) -> None:
    """Queue the next packet, and send its bundle to the endpoint."""
    stream = run.streams[stream_row]
    program = run.plan.programs[stream.program]
    bundle = run.plan.bundles[program.bundle_first + stream.bundle]
    stream.bundles += 1
    stream.bundle += 1
    if stream.bundle == program.bundle_period:
        stream.bundle = 0
    cross_endpoint(run, stream_row, 0, bundle.bytes, bundle.reduction_ns, bundle.inward, bundle.returns)


@works_on_tables
def spend_bundle(run: Run, stream_row: int) -> bool:
    """One more credit: send what may be sent. True when the phase is complete."""
    stream = run.streams[stream_row]
    program = run.plan.programs[stream.program]
    stream.credit += 1
    burst = 1
    if program.half > 0 and program.sends - stream.sent <= program.half:
        note_half_tried(run, stream)
        if stream.received < program.half:
            return False  # the second half waits for all of the first
        needs_half(run, stream_row)
        burst = program.start_bundles
    while burst > 0 and stream.credit > 0 and stream.sent < min(stream.bundles, program.sends):
        send_packet(run, stream_row)
        stream.credit -= 1
        burst -= 1
    return stream.sent == program.sends and stream.credit == program.start_bundles


@works_on_tables
def send_packet(run: Run, stream_row: int) -> None:
    """Send the next packet to its peer, then post the receive that goes with it."""
    stream = run.streams[stream_row]
    program = run.plan.programs[stream.program]
    step_row = program.step_first + stream.step
    distance = run.plan.steps[step_row].distance
    position = peer_position(run, stream_row, distance, 1)
    label = stream.sent * 2 + (stream.direction < 0)
    stage = stage_of(stream)
    if run.plan.settings[RENDEZVOUS]:
        size = run.plan.steps[step_row].bytes
        offer_step(run, stream_row, position, size, label, stage)
        source = peer_position(run, stream_row, distance, -1)
        ask_for_step(run, stream_row, source, label, stage)
    else:
        _inject(run, stream_row, step_row, position, label, stage)
    _post_receive(run, stream_row, label, stage)
    stream.sent += 1
    stream.step += 1
    if stream.step == program.step_period:
        stream.step = 0


@works_on_tables
def _inject(run: Run, stream_row: int, step_row: int, position: int, label: int, stage: int) -> None:
    """Put a packet on the network; most flights are known from the plan's step alone."""
    target_seat = seat_at(run, stream_row, position)
    tell_step(run, stream_row, label >> 1, COLLECTIVE)
    flight = step_flight_ns(run, step_row)
    if flight == NONE or is_recorded(run) or is_noted(run):
        here, size = run.plan.actors[run.streams[stream_row].actor].rank, run.plan.steps[step_row].bytes
        there = rank_at(run, stream_row, position)
        if not run.plan.settings[PAIRS_EARLY]:
            inject(run, here, there, size, STEP, target_seat, label, stage, NONE)
            return
        flight = flight_ns(run, here, there, size)
    _fly(run, stream_row, flight, target_seat, label)


@works_on_tables
def _fly(run: Run, stream_row: int, flight: int, seat: int, label: int) -> None:
    arrival, stage = run.clock[0].now + flight, stage_of(run.streams[stream_row])
    if run.plan.settings[PAIRS_EARLY]:
        pair_step(run, arrival, seat, label, stage)
    else:
        schedule(run, arrival, STEP, seat, label, stage)


@works_on_tables
def _post_receive(run: Run, stream_row: int, label: int, stage: int) -> None:
    """A message that is already here is delivered as a new event at this time."""
    seat = run.streams[stream_row].seat
    note_posted(run, run.streams[stream_row])
    run.streams[stream_row].waited_ns -= run.clock[0].now
    receive_posted(run, stream_row, label)
    if run.seats[seat].parked == 0:
        return
    row = take_parked_either_way(run, seat, label, stage)
    if row == NONE:
        return
    moment = now_of(run)
    if run.plan.settings[PAIRS_EARLY]:
        arrival, its_label = max(run.parked[row].arrives_ns, run.clock[0].now), run.parked[row].step
        waits_for_early(run, row)
        put_on_calendar(run, arrival, seat, its_label, stage)
        resume(run, moment)
        return
    was_early(run, stream_row, row)
    schedule(run, run.clock[0].now, LATE_STEP, stream_row, 0, 0)
    resume(run, moment)


@works_on_tables
def peer_position(run: Run, stream_row: int, distance: int, towards: int) -> int:
    """Position of the member a packet goes to (`towards` 1) or comes from (-1)."""
    stream = run.streams[stream_row]
    program = run.plan.programs[stream.program]
    if program.pairs:
        shift = distance if (stream.position // distance) % 2 == 0 else -distance
    else:
        shift = distance * stream.direction * towards
    position = stream.position + shift
    if position >= program.members:
        position -= program.members
    elif position < 0:
        position += program.members
    return position
