"""Whom an event happens to, and whom a message comes from: what watching for ties must know (`ties`).

Not here: what the events do (`loop`).
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe.ties import (
    NOT_A_CHUNK,
    begin_arrival,
    begin_arrival_from_anywhere,
    begin_entry,
    begin_own,
    is_watched,
    mixed,
)
from et_sim.engine.state import kinds
from et_sim.engine.state.phase_key import PHASE_BITS, PROGRAM_MASK
from et_sim.engine.state.run import NONE, Run

MESSAGE, STEP = kinds.MESSAGE, kinds.STEP
LATE_STEP, LATE_RECEIVE, NODE_DONE = kinds.LATE_STEP, kinds.LATE_RECEIVE, kinds.NODE_DONE
SLOWED_DONE = kinds.SLOWED_DONE
ASKED_MESSAGE, INJECT_MESSAGE = kinds.ASKED_MESSAGE, kinds.INJECT_MESSAGE
ASKED_STEP, INJECT_STEP = kinds.ASKED_STEP, kinds.INJECT_STEP
START = kinds.START
TRANSFER_AT_ENDPOINT, TRANSFER_READY = kinds.TRANSFER_AT_ENDPOINT, kinds.TRANSFER_READY


@works_on_tables
def event_happens(run: Run, kind: int, a: int, b: int, c: int) -> None:
    """Tell the watch for ties to whom an event happens; events of shared things do not occur there."""
    if not is_watched(run):
        return
    if kind in (TRANSFER_AT_ENDPOINT, TRANSFER_READY):
        begin_entry(run, run.chunks[a].actor, a)
    elif kind in (STEP, ASKED_STEP):
        _begin_step(run, a, b, c)
    elif kind in (NODE_DONE, SLOWED_DONE) and run.clock[0].bucket != NONE:
        begin_entry(run, a, NOT_A_CHUNK)
    elif kind == MESSAGE:
        begin_own(run, c)
    elif kind in (LATE_RECEIVE, NODE_DONE, START):  # an eager send stands in a slot
        begin_own(run, a)
    elif kind == LATE_STEP:
        begin_own(run, run.chunks[a].actor)
    elif kind == ASKED_MESSAGE:  # first its receive is posted
        begin_own(run, b)
    elif kind == INJECT_MESSAGE:
        begin_own(run, run.plan.actor_of_rank[run.plan.channels[a].source])
    elif kind == INJECT_STEP:
        begin_own(run, run.plan.members[a].actor)


@works_on_tables
def message_hops(run: Run, message_row: int, actor_row: int) -> None:
    """A message reached a switch, and is about to join the link to its target, an actor."""
    if not is_watched(run):
        return
    message = run.messages[message_row]
    if message.kind in (STEP, ASKED_STEP):
        _begin_step(run, message.a, message.b, message.c)
    elif message.kind in (MESSAGE, ASKED_MESSAGE):
        begin_arrival(run, actor_row, _pair_of(run, message.a))
    else:
        begin_arrival_from_anywhere(run, actor_row)


@works_on_tables
def _begin_step(run: Run, member: int, step_key: int, phase_key: int) -> None:
    """Steps of one program over equal distances come from the same peer."""
    actor_row = run.plan.members[member].actor
    program_row = (phase_key >> PHASE_BITS) & PROGRAM_MASK
    program = run.plan.programs[program_row]
    if program.tree_first != NONE:
        begin_arrival_from_anywhere(run, actor_row)
        return
    step = (step_key >> 1) % program.step_period
    if program.own_steps:  # whose period is as long as the program, whatever the distances
        step = run.plan.steps[program.step_first + step].distance
    place = step * 2 + (step_key & 1)
    begin_arrival(run, actor_row, mixed(mixed(member, program_row), place))


@works_on_tables
def message_at_target(run: Run, channel_row: int) -> None:
    """A message on a channel reached its target: another rank, perhaps of the same actor."""
    if is_watched(run):
        target = run.plan.actor_of_rank[run.plan.channels[channel_row].target]
        begin_arrival(run, target, _pair_of(run, channel_row))


@works_on_tables
def request_at_source(run: Run, channel_row: int) -> None:
    """The request for a message on a channel reached the source of the message."""
    if is_watched(run):
        source = run.plan.actor_of_rank[run.plan.channels[channel_row].source]
        begin_arrival(run, source, _pair_of(run, channel_row))


@works_on_tables
def _pair_of(run: Run, channel_row: int) -> int:
    """A number for the two ends of a channel, whatever its tag and bytes."""
    channel = run.plan.channels[channel_row]
    return mixed(channel.source, channel.target)
