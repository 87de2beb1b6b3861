"""The event loop: take the next event, do what it says, until nothing is left.

It returns to Python now and then, so that pools can grow and progress can be shown; a return never
falls inside an event, and entering again goes on as if nothing had happened.
"""

from __future__ import annotations

from et_sim.engine import kinds
from et_sim.engine.clock import advance, release_event, take_from_bucket, take_from_slot
from et_sim.engine.progress import bundle_at_endpoint, bundle_ready, receive_step, step_arrived
from et_sim.engine.ranks import complete, deliver, free_server, start_rank
from et_sim.engine.state import NONE, Run
from et_sim.tables_by_reference import entry_on_tables, works_on_tables

# An arrival may complete a node at either end, and each may start a collective.
COLLECTIVES_PER_EVENT = 2

FINISHED, PAUSED, NEEDS_ROOM = 0, 1, 2

DRAIN, MESSAGE, STEP = kinds.DRAIN, kinds.MESSAGE, kinds.STEP
LATE_RECEIVE, LATE_STEP = kinds.LATE_RECEIVE, kinds.LATE_STEP
NODE_DONE, SERVER_FREE = kinds.NODE_DONE, kinds.SERVER_FREE
BUNDLE_AT_ENDPOINT, BUNDLE_READY = kinds.BUNDLE_AT_ENDPOINT, kinds.BUNDLE_READY


@entry_on_tables
def simulate(run: Run, reserve: int, block_reserve: int, budget: int) -> int:
    """Process up to `budget` events, while every pool has `reserve` rows left."""
    clock = run.clock[0]
    for _ in range(budget):
        if not _has_room(run, reserve, block_reserve):
            return NEEDS_ROOM
        if clock.bucket != NONE:
            event = take_from_bucket(run)
        elif clock.to_start < len(run.actors):
            clock.to_start += 1
            start_rank(run, clock.to_start - 1)
            continue
        else:
            event = take_from_slot(run)
            if event == NONE and not advance(run):
                return FINISHED
        if event != NONE:
            _happen(run, event)
    return PAUSED


@works_on_tables
def _has_room(run: Run, reserve: int, block_reserve: int) -> bool:
    clock = run.clock[0]
    return (
        clock.free_events >= reserve
        and clock.free_slots >= reserve
        and clock.free_buckets >= reserve
        and clock.free_parkeds >= 1
        and clock.free_runnings >= COLLECTIVES_PER_EVENT
        and clock.streams_top + block_reserve <= len(run.streams)
    )


@works_on_tables
def _happen(run: Run, event_row: int) -> None:
    event = run.events[event_row]
    kind, a, b, c = event.kind, event.a, event.b, event.c
    release_event(run, event_row)
    if kind == DRAIN:
        run.clock[0].bucket = a
    elif kind == BUNDLE_AT_ENDPOINT:
        bundle_at_endpoint(run, a, c)
    elif kind == BUNDLE_READY:
        bundle_ready(run, a)
    elif kind == STEP:
        step_arrived(run, a, b, c)
    elif kind == NODE_DONE:
        complete(run, a, b)
    elif kind == MESSAGE:
        deliver(run, a, b, c)
    elif kind == LATE_STEP:
        receive_step(run, a)
    elif kind == LATE_RECEIVE:
        complete(run, a, b)
    elif kind == SERVER_FREE:
        free_server(run, a)
