"""The event loop: take the next event and handle it, until nothing is left.

It returns to Python now and then, so that pools can grow and progress can be shown; a return never falls
inside an event, and the next call continues where the last one stopped.
"""

from __future__ import annotations

from et_sim.compiled.decorators import works_on_tables
from et_sim.engine.calendar.clock import (
    advance,
    close_drained_bucket,
    take_from_bucket,
    take_from_slot,
)
from et_sim.engine.collectives.in_network import part_at_switch, switch_done
from et_sim.engine.collectives.queues import admit_over_limit, are_queues_blocked, break_queue_deadlock
from et_sim.engine.collectives.unexpected import step_requested
from et_sim.engine.containers import give_row
from et_sim.engine.entry import BLOCKED, FINISHED, NEEDS_POOLS, PAUSED, TIED, TOO_LATE
from et_sim.engine.nodes.issue import complete, free_server, slowed_done, start_later, start_rank
from et_sim.engine.nodes.pool import reach_stage
from et_sim.engine.nodes.pool_shares import end_transfer, share
from et_sim.engine.nodes.progress import (
    bus_processed,
    bus_received,
    bus_sent,
    custom_done,
    deliver,
    deliver_custom,
    evaluated_follows,
    held_step_starts,
    part_left,
    receive_step,
    step_arrived,
    step_left,
    transfer_at_endpoint,
    transfer_ready,
)
from et_sim.engine.observe import facade as observe
from et_sim.engine.prefetching import fetch_ahead, fetch_next_time
from et_sim.engine.repeats.search import look, looks_anew
from et_sim.engine.state import kinds
from et_sim.engine.state.run import LATEST, NONE, NOT_SEEN, SEEN, Run
from et_sim.engine.transport.network_seam import network_event, release_message, rows_left
from et_sim.engine.transport.point_to_point import (
    break_full_buffers,
    exceed_buffer,
    message_requested,
    send_held,
    send_now,
)

GOES_ON = -1


def simulate(run: Run, reserve: int, collectives: int, block_reserve: int, budget: int) -> int:
    """Process up to `budget` events, while every pool has its reserve (see `pools`) left."""
    status = GOES_ON
    while status == GOES_ON and budget > 0:
        sure = min(_events_that_fit(run, reserve, collectives, block_reserve), budget)
        status = _simulate(run, sure) if sure > 0 else NEEDS_POOLS
        budget -= sure
    return PAUSED if status == GOES_ON else status


@works_on_tables
def _simulate(run: Run, events: int) -> int:
    """Process this many events, for which the pools have room."""
    clock = run.clock[0]
    for _ in range(events):
        event = take_from_slot(run) if clock.bucket == NONE else take_from_bucket(run)
        if event != NONE:
            _happen(run, event)
            if clock.bucket != NONE:
                close_drained_bucket(run)
            if observe.is_tied(run):
                return TIED
        elif clock.to_start < len(run.actors):  # before there is a slot to take an event from
            _start_next(run)
        else:
            status = _next_time(run)
            if status != GOES_ON:
                return status
    return GOES_ON


@works_on_tables
def _next_time(run: Run) -> int:
    """Go on to the next time; where nothing is left to happen, let what blocks itself go on."""
    clock = run.clock[0]
    if not advance(run):
        if clock.blocked == NOT_SEEN and are_queues_blocked(run):
            return BLOCKED
        if clock.blocked == SEEN:
            clock.blocked = NOT_SEEN
        if not break_queue_deadlock(run) and not break_full_buffers(run):
            return FINISHED
    if clock.now > run.plan.settings[LATEST]:
        return TOO_LATE
    fetch_next_time(run)
    look(run)
    return GOES_ON


@works_on_tables
def _start_next(run: Run) -> None:
    """Start the next actor."""
    clock = run.clock[0]
    clock.to_start += 1
    observe.actor_starts(run, clock.to_start - 1)
    if run.plan.actors[clock.to_start - 1].start_ns > 0:
        start_later(run, clock.to_start - 1)
    else:
        start_rank(run, clock.to_start - 1)


@works_on_tables
def _events_that_fit(run: Run, reserve: int, collectives: int, block_reserve: int) -> int:
    """Return the number of events for which all pools have room."""
    clock = run.clock[0]
    rows = min(clock.free_events.rows, clock.free_slots.rows, clock.free_unexpecteds.rows, rows_left(run))
    rows = min(rows, observe.rows_left(run, reserve), clock.free_bus_requests.rows, clock.free_joins.rows)
    if collectives == 0:
        return rows // reserve
    blocks = (len(run.chunks) - clock.chunks_top) // block_reserve
    return min(rows // reserve, clock.free_runnings.rows // collectives, blocks)


@works_on_tables
def _happen(run: Run, event_row: int) -> None:
    """Take an event off the calendar and handle it."""
    event = run.events[event_row]
    kind, a, b, c = event.kind, event.a, event.b, event.c
    fetch_ahead(run, event.next)
    observe.event_taken(run, event_row)
    if kind >= kinds.OPENS_BUCKET:
        kind -= kinds.OPENS_BUCKET
        run.clock[0].bucket = event_row  # freed when the bucket is closed
        observe.bucket_taken(run, run.buckets[event_row].actor)
    elif event.more > 0:
        event.more -= 1
    else:
        give_row(run.events, run.clock[0].free_events, event_row)
    if kind >= kinds.NETWORK:
        row = network_event(run, kind - kinds.NETWORK, a, b)
        if row == NONE:
            return
        message = run.messages[row]
        kind, a, b, c = message.kind, message.a, message.b, message.c
        observe.message_arrives(run, row)
        release_message(run, row)
    observe.event_happens(run, kind, a, b, c)
    if kind == kinds.TRANSFER_AT_ENDPOINT:
        transfer_at_endpoint(run, a, b, c)
    elif kind == kinds.TRANSFER_READY:
        transfer_ready(run, a, b)
    elif kind == kinds.STEP:
        step_arrived(run, a, b, c)
    elif kind == kinds.LATE_STEP:
        receive_step(run, a, b)
    elif kind == kinds.STEP_LEFT:
        step_left(run, a)
    elif kind == kinds.EVALUATED:
        evaluated_follows(run, a, b, c)
    else:
        _happen_to_node(run, kind, a, b, c)


@works_on_tables
def _happen_to_node(run: Run, kind: int, a: int, b: int, c: int) -> None:
    """Handle the rarer events."""
    looks_anew(run)
    if kind == kinds.MESSAGE:
        deliver(run, a, b, c)
    elif kind == kinds.CUSTOM_MESSAGE:
        deliver_custom(run, a, b, c)
    elif kind == kinds.CUSTOM_DONE:
        custom_done(run, a, b)
    elif kind == kinds.AT_SWITCH:
        part_at_switch(run, a, b, c)
    elif kind == kinds.SWITCH_DONE:
        switch_done(run, a, b, c)
    elif kind == kinds.BRANCH_FREE:
        part_left(run, b)
    elif kind == kinds.REQUESTED_MESSAGE:
        message_requested(run, a, kinds.LATE_RECEIVE, b, c)
    elif kind == kinds.REQUESTED_CUSTOM:
        message_requested(run, a, kinds.CUSTOM_DONE, b, c)
    elif kind == kinds.INJECT_MESSAGE:
        send_now(run, a, kinds.MESSAGE, b, c)
    elif kind == kinds.HELD_MESSAGE:
        send_held(run, b)
    elif kind == kinds.INJECT_CUSTOM:
        send_now(run, a, kinds.CUSTOM_MESSAGE, b, c)
    elif kind == kinds.REQUESTED_STEP:
        step_requested(run, a, b, c)
    elif kind == kinds.INJECT_STEP:
        held_step_starts(run, a, b, c)
    elif kind == kinds.BUS_SENT:
        bus_sent(run, a)
    elif kind == kinds.BUS_RECEIVED:
        bus_received(run, a)
    elif kind == kinds.BUS_PROCESSED:
        bus_processed(run, a)
    elif kind == kinds.SLOWED_DONE:
        slowed_done(run, a, b, c)
    elif kind == kinds.SERVER_FREE:
        free_server(run, a)
    elif kind == kinds.POOL_STAGE:
        reach_stage(run, a, b)
    elif kind == kinds.POOL_SHARE:
        share(run)
    elif kind == kinds.POOL_END:
        end_transfer(run, a)
    elif kind == kinds.ADMIT:
        admit_over_limit(run, a)
    elif kind == kinds.EXCEED:
        exceed_buffer(run, a)
    elif kind == kinds.START:
        start_rank(run, a)
    else:  # NODE_DONE, LATE_RECEIVE
        complete(run, a, b)
