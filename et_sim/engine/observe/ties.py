"""Ties: whether the order of two events at the same time and actor has an effect.

Ranks of one actor see the same messages at the same times, but where several events happen to a rank within
one nanosecond, the order among them follows from rank numbers and may differ between these ranks. As long as
the order has no effect, one actor represents all of them exactly. Where it would have one, the functions here
count a tie, the folded run is abandoned, and every rank is simulated by itself.

The run tracks whether the order of two events is the same for all ranks of an actor. The events of an actor
within a nanosecond form *groups*, which follow each other in a certain order; within a group, events of one
*origin* do, too, and those of different origins may change places. Events that were put on the calendar at
different times are in different groups. If they were put there at the same time, entries of an actor's bucket
keep the groups and origins of the events that put them there; messages are all of one group, and their origin
is the peer that sent them, with the origin there. An effect of several events (a step of its transfers, a
node of its parents, a chunk of its place in a queue) has an origin made of theirs.

`docs/folding.md` has the argument, and the rule for every mechanism of the engine: where events that may
change places meet, they commute, or are needed together (`contribute`), or a tie is counted (`note_…`).

`event_happens` gives the actor of an event, and the peer of a message.

All of this is idle unless actors represent several ranks.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe.observers import observes
from et_sim.engine.state import kinds
from et_sim.engine.state.records import PHASE_BITS, PROGRAM_MASK
from et_sim.engine.state.run import NONE, Run

FIRST_ORIGIN = 0  # the origin of the first events
OWN = -1  # in place of a peer
# Kinds of effects of several events.
OF_NODE, OF_TRANSFER, OF_CHUNK, OF_LINK, OF_QUEUE, OF_LANE = range(6)
KINDS = 8
MOST_TRIES = 1 << 8
NOT_A_CHUNK = -2
TOLERANT = -(1 << 62)  # as the first number of ties: any number of them is accepted
LOWEST_63_BITS = (1 << 63) - 1


@works_on_tables
def is_watched(run: Run) -> bool:
    """Return whether ties matter: actors represent several ranks."""
    return len(run.turns) > 0


when_watched = observes(is_watched)


@when_watched
def event_made(run: Run, event_row: int) -> None:
    """Store with an event when, and in which event, it is put on the calendar."""
    clock, stamp = run.clock[0], run.stamps[event_row]
    note_moment(clock, stamp)
    stamp.turn, stamp.root = clock.turn, clock.root


@when_watched
def event_taken(run: Run, event_row: int) -> None:
    """Restore when, and in which event, the event was put on the calendar."""
    posted, stamp = run.clock[0].posted, run.stamps[event_row]
    posted.ns, posted.group, posted.origin = stamp.ns, stamp.group, stamp.origin
    posted.turn, posted.root = stamp.turn, stamp.root
    run.clock[0].root = posted.root
    if run.clock[0].bucket == NONE:
        _take_its_turn(run.clock[0])
    else:  # entries have the turn and the place of their bucket
        keep_root(run.clock[0], run.stamps[run.clock[0].bucket])


@when_watched
def entry_joins(run: Run, bucket_row: int) -> None:
    """Add an entry to a bucket, whose first entry it is on other ranks if it has the turn of the first."""
    opened, clock = run.stamps[bucket_row], run.clock[0]
    if opened.ns == clock.now and opened.turn == clock.turn:
        keep_root(opened, clock)


@works_on_tables
def _take_its_turn(clock: Any) -> None:
    """Begin another turn unless the event was put on the calendar at the same turn as the one before."""
    if clock.turn_ns != clock.now:
        clock.turn_ns, clock.turn = clock.now, 0
    elif clock.posted.ns == clock.turn_posted_ns and clock.posted.turn == clock.turn_posted:
        return
    clock.turn += 1
    clock.turn_posted_ns, clock.turn_posted = clock.posted.ns, clock.posted.turn


@works_on_tables
def message_delivered(run: Run, actor_row: int) -> None:
    """Count a delivered message, for the number of ranks of the actor at one of its ends."""
    run.clock[0].delivered += 1
    if is_watched(run):
        run.actors[actor_row].messages += 1


@when_watched
def actor_starts(run: Run, actor_row: int) -> None:
    """Begin the group of an actor's start."""
    clock = run.clock[0]
    clock.posted.ns, clock.posted.origin = NONE, FIRST_ORIGIN
    clock.turn_ns, clock.turn, clock.root = clock.now, 0, 0
    clock.turn_posted_ns = NONE
    _begin(run, actor_row, False)


@when_watched
def begin_own(run: Run, actor_row: int) -> None:
    """Begin the group of a single event that an actor had scheduled for itself."""
    _begin(run, actor_row, False)
    run.clock[0].origin = mixed(run.clock[0].posted.origin, OWN)


@when_watched
def bucket_taken(run: Run, actor_row: int) -> None:
    """Begin the group of an actor's bucket, whose entries follow."""
    _begin(run, actor_row, True)


@when_watched
def begin_entry(run: Run, actor_row: int, which: int) -> None:
    """Begin an entry, about chunk `which`, of the actor's bucket that is being drained."""
    clock, actor = run.clock[0], run.actor_marks[actor_row]
    if actor.entry_ns != clock.posted.ns or actor.entry_group != clock.posted.group:
        actor.entry_ns = clock.posted.ns
        actor.entry_group = clock.posted.group
        actor.group += 1
    clock.group = actor.group
    clock.origin = clock.posted.origin
    clock.part += 1
    if which == NOT_A_CHUNK:
        clock.not_chunks += 1
        which = NOT_A_CHUNK - clock.not_chunks
    take_turn(run, actor_row, which)


@when_watched
def begin_arrival(run: Run, actor_row: int, peer: int) -> None:
    """Begin the group of a message to an actor; `peer` identifies its sender as seen from there."""
    clock = run.clock[0]
    _begin(run, actor_row, False)
    clock.origin = mixed(mixed(clock.posted.origin, peer), clock.posted.ns + 1)


@when_watched
def begin_arrival_from_anywhere(run: Run, actor_row: int) -> None:
    """Begin the group of a message from an unknown sender."""
    run.clock[0].not_chunks += 1
    begin_arrival(run, actor_row, -run.clock[0].not_chunks)


@when_watched
def message_shares(run: Run, row: int) -> None:
    """Set the origin of a message that ends in an event of the network, where targets decide its turn."""
    clock, message = run.clock[0], run.messages[row]
    message.origin = mixed(mixed(mixed(clock.origin, clock.group), clock.now), message.target)


@when_watched
def message_through(run: Run, message: Any) -> None:
    """Continue an event of the network with the origin of its message."""
    run.clock[0].origin = message.origin


@when_watched
def links_differ(run: Run) -> None:
    """Record a tie that no order of events resolves: links of one record carry different numbers of
    messages.
    """
    run.clock[0].ties = 1


@works_on_tables
def _begin(run: Run, actor_row: int, is_bucket: bool) -> None:
    clock, actor = run.clock[0], run.actor_marks[actor_row]
    if actor.group_ns != clock.now:
        actor.group_ns = clock.now
        actor.group = 0
        actor.cluster_ns = NONE - 1
    if actor.cluster_ns != clock.posted.ns:
        actor.cluster_ns = clock.posted.ns
        actor.group += 1
    else:  # entries are ordered among themselves, but not with other events scheduled at that time
        clock.ties += is_bucket or actor.cluster_is_bucket
    actor.cluster_is_bucket = is_bucket
    actor.entry_ns = NONE - 1
    clock.group = actor.group
    clock.origin = clock.posted.origin
    clock.part += 1


@works_on_tables
def mixed(first: int, second: int) -> int:
    """Return a number for two numbers in this order."""
    # Compiled, products wrap at 64 bits; uncompiled, they grow. The lowest 63 bits are the same.
    x = (int(first) * 6364136223846793005 + int(second) * 1442695040888963407 + 0x2545F491) & LOWEST_63_BITS
    return x ^ (x >> 29)


@when_watched
def contribute(run: Run, mark: Any, kind: int) -> None:
    """Add the event to several that an effect needs; the effect has an origin made of theirs.

    Two effects of one kind that need the same parts of the same events come in the same order whichever of
    these events is the last. `kind` separates effects that may come in another order then.
    """
    clock = run.clock[0]
    if may_change_places(clock, mark):
        before = mixed(mark.origin, mark.part)
        clock.origin = mixed(mixed(before, mixed(clock.origin, clock.part)), kind)
        keep_root(clock, mark)
    mark_now(clock, mark)


@works_on_tables
def has_origins(clock: Any, origin: int) -> None:
    """Set an origin made of several, any of which may be that of the last event on other ranks."""
    clock.origin, clock.root = origin, NONE


@works_on_tables
def keep_root(one: Any, other: Any) -> None:
    """Keep a root if another one is the same: the order of the two is certain."""
    if one.root != other.root:
        one.root = NONE


@works_on_tables
def mark_now(clock: Any, mark: Any) -> None:
    """Store the present moment and part of the event."""
    note_moment(clock, mark)
    mark.part, mark.root = clock.part, clock.root


@observes(is_watched, otherwise=NONE)
def current_origin(run: Run) -> int:
    """Return the origin of the present."""
    return run.clock[0].origin


@when_watched
def restore_origin(run: Run, origin: int, root: int) -> None:
    """Restore the origin and the root for the rest of the event."""
    run.clock[0].origin, run.clock[0].root = origin, root


@observes(is_watched, otherwise=NONE)
def current_root(run: Run) -> int:
    """Return the root of the present."""
    return run.clock[0].root


@observes(is_watched, otherwise=NONE)
def current_group(run: Run) -> int:
    """Return the group of the present."""
    return run.clock[0].group


@when_watched
def restore_group(run: Run, group: int) -> None:
    """Restore the group after a part of the event at a link."""
    run.clock[0].group = group


@when_watched
def message_passes_on(run: Run) -> None:
    """Continue, at the end of a link that ranks share, with the origin from its beginning."""
    clock = run.clock[0]
    clock.origin, clock.group = clock.posted.origin, clock.turn
    clock.part += 1


@when_watched
def message_goes_round(run: Run, distance: int, blocks: int) -> None:
    """Count how far a message goes round the blocks; 0 blocks: equal messages do not go equally far."""
    clock = run.clock[0]
    clock.root = (clock.root + distance) % blocks if blocks > 0 and clock.root != NONE else NONE


@when_watched
def leaves_rank(run: Run) -> None:
    """Continue at another rank, perhaps of another block, to which no message goes."""
    run.clock[0].root = NONE


@when_watched
def note_turn(run: Run, chunk_row: int) -> None:
    """Add the event to several, any of which lets a chunk do its next step.

    The first of them does the next step, the second the one after, in whichever order they come. The steps of
    two chunks come in a certain order if the same chunk is before the other among the events of every origin.
    """
    clock, marks = run.clock[0], run.chunk_marks[chunk_row]
    if marks.turn_ns != clock.now or marks.turn_group != clock.group:
        marks.turn_ns = clock.now
        marks.turn_group = clock.group
        marks.turn_before = clock.before
    else:
        clock.ties += clock.before != chunk_row and clock.before != marks.turn_before
    if may_change_places(clock, marks.mark):
        has_origins(clock, mixed(mixed(marks.mark.origin, clock.origin), OF_TRANSFER))
    mark_now(clock, marks.mark)


@when_watched
def take_turn(run: Run, actor_row: int, which: int) -> None:
    """Find the predecessor of `which` among the events of the present origin."""
    clock = run.clock[0]
    tag = mixed(mixed(actor_row, clock.now), clock.group)
    last = len(run.turns) - 1
    at = mixed(tag, clock.origin) & last
    for _ in range(MOST_TRIES):
        turn = run.turns[at]
        if turn.tag != tag:  # of another group, and no longer needed
            turn.tag, turn.origin, turn.last = tag, clock.origin, NONE
        if turn.origin == clock.origin:
            clock.before = turn.last
            turn.last = which
            return
        at = (at + 1) & last
    clock.ties += 1


@works_on_tables
def note_moment(clock: Any, moment: Any) -> None:
    """Store the present moment."""
    moment.ns, moment.group, moment.origin = clock.now, clock.group, clock.origin


@works_on_tables
def in_group(clock: Any, moment: Any) -> bool:
    """Return whether a stored moment is of the present group."""
    return moment.ns == clock.now and moment.group == clock.group


@works_on_tables
def may_change_places(clock: Any, moment: Any) -> bool:
    """Return whether a stored moment may come later than the present on other ranks."""
    return in_group(clock, moment) and moment.origin != clock.origin


MESSAGE, STEP = kinds.MESSAGE, kinds.STEP
LATE_STEP, LATE_RECEIVE, NODE_DONE = kinds.LATE_STEP, kinds.LATE_RECEIVE, kinds.NODE_DONE
STEP_LEFT = kinds.STEP_LEFT
SLOWED_DONE = kinds.SLOWED_DONE
REQUESTED_MESSAGE, INJECT_MESSAGE = kinds.REQUESTED_MESSAGE, kinds.INJECT_MESSAGE
HELD_MESSAGE = kinds.HELD_MESSAGE
REQUESTED_STEP, INJECT_STEP = kinds.REQUESTED_STEP, kinds.INJECT_STEP
START = kinds.START
TRANSFER_AT_ENDPOINT, TRANSFER_READY = kinds.TRANSFER_AT_ENDPOINT, kinds.TRANSFER_READY


@when_watched
def event_happens(run: Run, kind: int, a: int, b: int, c: int) -> None:
    """Begin the group of an event at its actor; events of shared resources do not occur in folded runs."""
    if kind in (TRANSFER_AT_ENDPOINT, TRANSFER_READY):
        begin_entry(run, run.chunks[a].actor, a)
    elif kind in (STEP, REQUESTED_STEP):
        _begin_step(run, a, b, c)
    elif kind in (NODE_DONE, SLOWED_DONE) and run.clock[0].bucket != NONE:
        begin_entry(run, a, NOT_A_CHUNK)
    elif kind == MESSAGE:
        begin_own(run, c)
    elif kind in (LATE_RECEIVE, NODE_DONE, START):  # an eager send is in a slot
        begin_own(run, a)
    elif kind in (LATE_STEP, STEP_LEFT):
        begin_own(run, run.chunks[a].actor)
    elif kind == REQUESTED_MESSAGE:  # first its receive is posted
        begin_own(run, b)
    elif kind == INJECT_MESSAGE:
        begin_own(run, run.plan.actor_of_rank[run.plan.channels[a].source])
    elif kind == HELD_MESSAGE:  # its receiver, another rank, decides when
        begin_arrival(run, run.plan.actor_of_rank[run.plan.channels[a].source], pair_of(run, a))
        leaves_rank(run)
    elif kind == INJECT_STEP:
        begin_own(run, run.plan.members[a].actor)


@when_watched
def message_hops(run: Run, message_row: int, actor_row: int) -> None:
    """Begin the group of a message that leaves a switch for the link to its target, an actor."""
    message = run.messages[message_row]
    if message.kind in (STEP, REQUESTED_STEP):
        _begin_step(run, message.a, message.b, message.c)
    elif message.kind in (MESSAGE, REQUESTED_MESSAGE):
        begin_arrival(run, actor_row, pair_of(run, message.a))
    else:
        begin_arrival_from_anywhere(run, actor_row)


@works_on_tables
def flow_of(run: Run, message: Any) -> int:
    """Return a number for the two ends of a message on a link, as for all links of its class."""
    source = run.plan.actor_of_rank[message.source]
    if message.kind in (MESSAGE, REQUESTED_MESSAGE):
        return mixed(pair_of(run, message.a), source)
    program_row = (message.c >> PHASE_BITS) & PROGRAM_MASK
    if message.kind not in (STEP, REQUESTED_STEP) or run.plan.programs[program_row].tree_first != NONE:
        run.clock[0].not_chunks += 1
        return -int(run.clock[0].not_chunks)
    return mixed(_sender_of_step(run, message.a, message.b, program_row), source)


@works_on_tables
def _sender_of_step(run: Run, member: int, step_key: int, program_row: int) -> int:
    """Return a number for the sender of a step's message as seen by a member, at its place in a program."""
    program = run.plan.programs[program_row]
    step = (step_key >> 1) % program.step_period
    if program.own_steps:  # the period is the whole program then
        step = run.plan.steps[program.step_first + step].distance
    return mixed(mixed(member, program_row), step * 2 + (step_key & 1))


@works_on_tables
def _begin_step(run: Run, member: int, step_key: int, phase_key: int) -> None:
    """Begin the group of a step's message; equal programs and distances have the same peer."""
    actor_row = run.plan.members[member].actor
    program_row = (phase_key >> PHASE_BITS) & PROGRAM_MASK
    program = run.plan.programs[program_row]
    if program.tree_first != NONE:
        begin_arrival_from_anywhere(run, actor_row)
        return
    begin_arrival(run, actor_row, _sender_of_step(run, member, step_key, program_row))


@works_on_tables
def pair_of(run: Run, channel_row: int) -> int:
    """Return a number for the two ends of a channel, without its tag and bytes."""
    channel = run.plan.channels[channel_row]
    return mixed(channel.source, channel.target)
