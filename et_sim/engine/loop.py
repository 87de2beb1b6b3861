"""The event loop: take the next event, do what it says, until nothing is left.

It returns to Python now and then, so that pools can grow and progress can be shown; a return never
falls inside an event, and entering again goes on as if nothing had happened.
"""

from __future__ import annotations

from et_sim.compiled.decorators import works_on_tables
from et_sim.compiled.entry_points import entry
from et_sim.engine.calendar.clock import (
    advance,
    close_drained_bucket,
    take_from_bucket,
    take_from_slot,
)
from et_sim.engine.collectives.in_network import part_at_switch, switch_done
from et_sim.engine.collectives.queues import admit_over_limit, break_queue_deadlock
from et_sim.engine.collectives.rendezvous import inject_step, step_asked
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
    part_left,
    receive_step,
    step_arrived,
    transfer_at_endpoint,
    transfer_ready,
)
from et_sim.engine.observe import facade as observe
from et_sim.engine.state import kinds
from et_sim.engine.state.event_pool import release_event
from et_sim.engine.state.run import LATEST, NONE, Run
from et_sim.engine.transport.message_pool import release_message
from et_sim.engine.transport.network_seam import network_event, rows_left
from et_sim.engine.transport.point_to_point import message_asked, send_now

FINISHED, PAUSED, NEEDS_POOLS, TOO_LATE, TIED = range(5)

OPENS_BUCKET, MESSAGE, STEP, NETWORK = kinds.OPENS_BUCKET, kinds.MESSAGE, kinds.STEP, kinds.NETWORK
LATE_STEP = kinds.LATE_STEP
BUS_SENT, BUS_RECEIVED, BUS_PROCESSED = kinds.BUS_SENT, kinds.BUS_RECEIVED, kinds.BUS_PROCESSED
CUSTOM_MESSAGE, CUSTOM_DONE = kinds.CUSTOM_MESSAGE, kinds.CUSTOM_DONE
ASKED_MESSAGE, INJECT_MESSAGE = kinds.ASKED_MESSAGE, kinds.INJECT_MESSAGE
ASKED_CUSTOM, INJECT_CUSTOM = kinds.ASKED_CUSTOM, kinds.INJECT_CUSTOM
LATE_RECEIVE, SLOWED_DONE = kinds.LATE_RECEIVE, kinds.SLOWED_DONE
ASKED_STEP, INJECT_STEP = kinds.ASKED_STEP, kinds.INJECT_STEP
AT_SWITCH, SWITCH_DONE, BRANCH_FREE = kinds.AT_SWITCH, kinds.SWITCH_DONE, kinds.BRANCH_FREE
SERVER_FREE, ADMIT, START = kinds.SERVER_FREE, kinds.ADMIT, kinds.START
POOL_STAGE, POOL_SHARE, POOL_END = kinds.POOL_STAGE, kinds.POOL_SHARE, kinds.POOL_END
TRANSFER_AT_ENDPOINT, TRANSFER_READY = kinds.TRANSFER_AT_ENDPOINT, kinds.TRANSFER_READY


@entry(what="the engine")
def simulate(run: Run, reserve: int, collectives: int, block_reserve: int, budget: int) -> int:
    """Process up to `budget` events, while every pool has its reserve (see `pools`) left."""
    clock = run.clock[0]
    sure = 0  # events for which there is certainly room
    for _ in range(budget):
        if sure == 0:
            sure = _events_that_fit(run, reserve, collectives, block_reserve)
            if sure == 0:
                return NEEDS_POOLS
        sure -= 1
        if clock.bucket != NONE:
            event = take_from_bucket(run)
        elif clock.to_start < len(run.actors):
            clock.to_start += 1
            observe.actor_starts(run, clock.to_start - 1)
            if run.plan.actors[clock.to_start - 1].start_ns > 0:
                start_later(run, clock.to_start - 1)
            else:
                start_rank(run, clock.to_start - 1)
            continue
        else:
            event = take_from_slot(run)
            if event == NONE:
                if not advance(run) and not break_queue_deadlock(run):
                    return FINISHED
                if clock.now > run.plan.settings[LATEST]:
                    return TOO_LATE
                continue
        _happen(run, event)
        if clock.bucket != NONE:
            close_drained_bucket(run)
        if observe.is_tied(run):
            return TIED
    return PAUSED


@works_on_tables
def _events_that_fit(run: Run, reserve: int, collectives: int, block_reserve: int) -> int:
    """How many events can take place before a pool may run short."""
    clock = run.clock[0]
    rows = min(clock.free_events.rows, clock.free_slots.rows, clock.free_unexpecteds.rows, rows_left(run))
    rows = min(rows, observe.rows_left(run, reserve))
    if len(run.bus_sides) > 0:
        rows = min(rows, clock.free_bus_requests.rows)
    if len(run.switches) > 0:
        rows = min(rows, clock.free_joins.rows)
    if collectives == 0:
        return rows // reserve
    blocks = (len(run.chunks) - clock.chunks_top) // block_reserve
    return min(rows // reserve, clock.free_runnings.rows // collectives, blocks)


@works_on_tables
def _happen(run: Run, event_row: int) -> None:
    """Take an event off the calendar and let it happen."""
    event = run.events[event_row]
    kind, a, b, c = event.kind, event.a, event.b, event.c
    observe.event_taken(run, event_row)
    if kind >= OPENS_BUCKET:
        kind -= OPENS_BUCKET
        run.clock[0].bucket = event_row  # it is given back when the bucket is closed
        observe.bucket_taken(run, run.buckets[event_row].actor)
    else:
        release_event(run, event_row)
    if kind >= NETWORK:
        row = network_event(run, kind - NETWORK, a, b)
        if row == NONE:
            return
        message = run.messages[row]
        kind, a, b, c = message.kind, message.a, message.b, message.c
        observe.message_arrives(run, row)
        release_message(run, row)
    observe.event_happens(run, kind, a, b, c)
    if kind == TRANSFER_AT_ENDPOINT:
        transfer_at_endpoint(run, a, b, c)
    elif kind == TRANSFER_READY:
        transfer_ready(run, a, b)
    elif kind == STEP:
        step_arrived(run, a, b, c)
    else:
        _happen_to_node(run, kind, a, b, c)


@works_on_tables
def _happen_to_node(run: Run, kind: int, a: int, b: int, c: int) -> None:
    """The rarer events."""
    if kind == MESSAGE:
        deliver(run, a, b, c)
    elif kind == CUSTOM_MESSAGE:
        deliver_custom(run, a, b, c)
    elif kind == CUSTOM_DONE:
        custom_done(run, a, b)
    elif kind == AT_SWITCH:
        part_at_switch(run, a, b, c)
    elif kind == SWITCH_DONE:
        switch_done(run, a, b, c)
    elif kind == BRANCH_FREE:
        part_left(run, b)
    elif kind == LATE_STEP:
        receive_step(run, a, b)
    elif kind == ASKED_MESSAGE:
        message_asked(run, a, LATE_RECEIVE, b, c)
    elif kind == ASKED_CUSTOM:
        message_asked(run, a, CUSTOM_DONE, b, c)
    elif kind == INJECT_MESSAGE:
        send_now(run, a, MESSAGE, b, c)
    elif kind == INJECT_CUSTOM:
        send_now(run, a, CUSTOM_MESSAGE, b, c)
    elif kind == ASKED_STEP:
        step_asked(run, a, b, c)
    elif kind == INJECT_STEP:
        inject_step(run, a, b, c)
    elif kind == BUS_SENT:
        bus_sent(run, a)
    elif kind == BUS_RECEIVED:
        bus_received(run, a)
    elif kind == BUS_PROCESSED:
        bus_processed(run, a)
    elif kind == SLOWED_DONE:
        slowed_done(run, a, b, c)
    elif kind == SERVER_FREE:
        free_server(run, a)
    elif kind == POOL_STAGE:
        reach_stage(run, a, b)
    elif kind == POOL_SHARE:
        share(run)
    elif kind == POOL_END:
        end_transfer(run, a)
    elif kind == ADMIT:
        admit_over_limit(run, a)
    elif kind == START:
        start_rank(run, a)
    else:  # NODE_DONE, LATE_RECEIVE
        complete(run, a, b)
