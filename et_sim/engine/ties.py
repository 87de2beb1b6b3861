"""Ties: does the order of two events at the same time and actor decide anything?

Ranks of one actor see the same messages at the same times, but where several things happen to a rank within
one nanosecond, the order among them follows from rank numbers and may differ between these ranks. As long as
it decides nothing, one actor stands for all of them exactly. Where it would decide something, the functions
here note a tie, the run of actors is given up, and every rank is simulated by itself.

Whether the order of two events is the same for all ranks of an actor is traced through the run. What happens
to an actor within a nanosecond falls into *groups*, which follow each other in a certain order; within a
group, events of one *origin* do, too, and those of different origins may change places. Events that were
put on the calendar at different times are in different groups. Of those put there at the same time, the
entries of an actor's bucket keep the groups and origins of the events that did it; messages are all of one
group, and their origin is the peer that sent them, with the origin there. What needs several events (a step
its bundles, a node its parents) has an origin made of theirs.

A tie is noted when, within a nanosecond and a group, things of different origin
- make nodes ready for one lane, of which one is issued then, or would have been in another order;
- complete nodes, and one leaves ready nodes behind that the next one issues;
- issue collectives that run side by side;
- put chunks into a queue with no place left, or ahead of one started by priority (in other orders than by
  priority, every chunk counts as one that could be ahead);
- put messages on a link, receives on a channel, or messages held back by rendezvous between two ranks;
or when the second half of a direct exchange is tried and its first half completes, or when a message meets
a bucket that its receiver opened in the nanosecond in which it was sent, or when blocked queues let chunks
in over their limits. All else commutes.

All of this is idle unless actors stand for several ranks. Not here: which ranks share an actor (`fold`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.state import NONE, QUEUE_ORDER, Run

ANYBODY = 0  # the origin of what happens at the very beginning
OWN = -1  # in place of a peer
LOWEST_63_BITS = (1 << 63) - 1


@works_on_tables
def is_watched(run: Run) -> bool:
    """Whether ties matter at all."""
    return len(run.watch) > 0


@works_on_tables
def stamp(run: Run, event_row: int) -> None:
    """Note on an event when, and as part of what, it is put on the calendar."""
    if is_watched(run):
        clock = run.clock[0]
        mark = run.stamps[event_row]
        mark.posted_ns = clock.now
        mark.group = clock.group
        mark.origin = clock.origin


@works_on_tables
def begin_event(run: Run, event_row: int) -> None:
    """An event is taken off the calendar."""
    if is_watched(run):
        clock = run.clock[0]
        mark = run.stamps[event_row]
        clock.posted_ns = mark.posted_ns
        clock.posted_group = mark.group
        clock.posted_origin = mark.origin


@works_on_tables
def count_message(run: Run, actor_row: int) -> None:
    """A message was delivered; the actor at one of its ends says for how many ranks."""
    run.clock[0].delivered += 1
    if is_watched(run):
        run.actors[actor_row].messages += 1


@works_on_tables
def begin_rank(run: Run, actor_row: int) -> None:
    """An actor starts."""
    if is_watched(run):
        run.clock[0].posted_ns = NONE
        run.clock[0].posted_origin = ANYBODY
        _begin(run, actor_row, False)


@works_on_tables
def begin_own(run: Run, actor_row: int) -> None:
    """The event is a single one that an actor had put on the calendar for itself."""
    if is_watched(run):
        _begin(run, actor_row, False)
        run.clock[0].origin = mixed(run.clock[0].posted_origin, OWN)


@works_on_tables
def begin_bucket(run: Run, actor_row: int) -> None:
    """The event is an actor's bucket, whose entries will follow."""
    if is_watched(run):
        _begin(run, actor_row, True)


@works_on_tables
def begin_entry(run: Run, actor_row: int) -> None:
    """The event is an entry of the actor's bucket that is being drained."""
    if not is_watched(run):
        return
    clock, actor = run.clock[0], run.actors[actor_row]
    if actor.entry_ns != clock.posted_ns or actor.entry_group != clock.posted_group:
        actor.entry_ns = clock.posted_ns
        actor.entry_group = clock.posted_group
        actor.group += 1
    clock.group = actor.group
    clock.origin = clock.posted_origin


@works_on_tables
def begin_arrival(run: Run, actor_row: int, peer: int) -> None:
    """The event is a message to an actor; `peer` is a number for whom it comes from, as seen from there."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    _begin(run, actor_row, False)
    clock.origin = mixed(mixed(clock.posted_origin, peer), clock.posted_ns + 1)


@works_on_tables
def begin_arrival_from_anywhere(run: Run, actor_row: int) -> None:
    """The same where nothing is known about the sender."""
    if is_watched(run):
        run.clock[0].strangers += 1
        begin_arrival(run, actor_row, -run.clock[0].strangers)


@works_on_tables
def _begin(run: Run, actor_row: int, is_bucket: bool) -> None:
    clock, actor = run.clock[0], run.actors[actor_row]
    if actor.group_ns != clock.now:
        actor.group_ns = clock.now
        actor.group = 0
        actor.cluster_ns = NONE - 1
    if actor.cluster_ns != clock.posted_ns:
        actor.cluster_ns = clock.posted_ns
        actor.group += 1
    else:  # entries are told apart among themselves, but not from what else was put there at that time
        clock.ties += is_bucket or actor.cluster_is_bucket
    actor.cluster_is_bucket = is_bucket
    actor.entry_ns = NONE - 1
    clock.group = actor.group
    clock.origin = clock.posted_origin


@works_on_tables
def mixed(one: int, two: int) -> int:
    """A number for two numbers in this order."""
    # Compiled, products wrap at 64 bits; uncompiled, they grow. The lowest 63 bits are the same.
    x = (int(one) * 6364136223846793005 + int(two) * 1442695040888963407 + 0x2545F491) & LOWEST_63_BITS
    return x ^ (x >> 29)


@works_on_tables
def contribute(run: Run, mark: Any) -> None:
    """The event is one of several that something needs; what follows has an origin made of theirs."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    if mark.mark_ns == clock.now and mark.mark_group == clock.group and mark.mark_origin != clock.origin:
        clock.origin = mixed(mark.mark_origin, clock.origin)
    mark.mark_ns = clock.now
    mark.mark_group = clock.group
    mark.mark_origin = clock.origin


@works_on_tables
def _may_change_places(clock: Any, ns: int, group: int, origin: int) -> bool:
    """Whether what was noted may come later than what happens now, for other ranks."""
    return ns == clock.now and group == clock.group and origin != clock.origin


@works_on_tables
def note_ready(run: Run, lane: Any, node: int) -> None:
    """A node becomes ready on a lane that holds one node at a time."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    if _may_change_places(clock, lane.issued_ns, lane.issued_group, lane.issued_origin):
        came_later_anyway = lane.issued_freed and lane.busy and node > lane.issued_node
        clock.ties += not came_later_anyway
    if lane.readied_ns != clock.now or lane.readied_group != clock.group:
        lane.readied_ns = clock.now
        lane.readied_group = clock.group
        lane.readied_origin = clock.origin
        lane.readied_apart = 0
    elif lane.readied_origin != clock.origin:
        lane.readied_apart = 1


@works_on_tables
def note_issue(run: Run, lane: Any, node: int, ready_ns: int) -> None:
    """A node is issued on such a lane; it has been taken from the lane's heap."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    in_group = lane.readied_ns == clock.now and lane.readied_group == clock.group
    apart = in_group and (lane.readied_apart or lane.readied_origin != clock.origin)
    clock.ties += apart and ready_ns == clock.now and lane.ready > 0
    lane.issued_ns = clock.now
    lane.issued_group = clock.group
    lane.issued_origin = clock.origin
    lane.issued_node = node
    lane.issued_freed = lane.freed_ns == clock.now and not _may_change_places(
        clock, lane.freed_ns, lane.freed_group, lane.freed_origin
    )


@works_on_tables
def note_beside(run: Run, lane: Any) -> None:
    """A node is issued on a lane without a limit, where the order of issue still decides."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    clock.ties += _may_change_places(clock, lane.issued_ns, lane.issued_group, lane.issued_origin)
    lane.issued_ns = clock.now
    lane.issued_group = clock.group
    lane.issued_origin = clock.origin


@works_on_tables
def note_freed(run: Run, lane: Any) -> None:
    """A lane becomes free."""
    if is_watched(run):
        lane.freed_ns = run.clock[0].now
        lane.freed_group = run.clock[0].group
        lane.freed_origin = run.clock[0].origin


@works_on_tables
def note_pass(run: Run, actor_row: int, leaves: bool) -> None:
    """An actor has issued what it could, but for nodes that became ready meanwhile if it `leaves` some."""
    clock, actor = run.clock[0], run.actors[actor_row]
    if actor.passed_ns != clock.now or actor.passed_group != clock.group:
        actor.passed_ns = clock.now
        actor.passed_group = clock.group
        actor.passed_apart = 0
        actor.passed_leaving = 0
    elif actor.passed_origin != clock.origin:
        actor.passed_apart = 1
    actor.passed_origin = clock.origin
    actor.passed_leaving |= leaves
    clock.ties += actor.passed_apart and actor.passed_leaving


@works_on_tables
def note_queued(run: Run, queue: Any, priority: int, limit: int) -> None:
    """A chunk is about to join a queue."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    second = _may_change_places(clock, queue.joined_ns, queue.joined_group, queue.joined_origin)
    if queue.joined_ns != clock.now or queue.joined_group != clock.group:
        queue.joined_apart = 0
    queue.joined_apart |= second
    overtakes = _may_change_places(clock, queue.started_ns, queue.started_group, queue.started_origin) and (
        queue.started_priority < priority or run.plan.settings[QUEUE_ORDER] != 0
    )
    clock.ties += (queue.joined_apart and queue.running >= limit) or overtakes
    queue.joined_ns = clock.now
    queue.joined_group = clock.group
    queue.joined_origin = clock.origin


@works_on_tables
def note_started(run: Run, queue: Any, priority: int, next_priority: int) -> None:
    """A chunk of a queue starts; `next_priority` is that of the one behind it, or its own."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    apart = _may_change_places(clock, queue.joined_ns, queue.joined_group, queue.joined_origin)
    clock.ties += apart and (next_priority != priority or run.plan.settings[QUEUE_ORDER] != 0)
    queue.started_ns = clock.now
    queue.started_group = clock.group
    queue.started_origin = clock.origin
    queue.started_priority = priority


@works_on_tables
def note_standstill(run: Run) -> None:
    """Blocked queues are about to let chunks in, one queue after the other."""
    run.clock[0].ties += 1


@works_on_tables
def note_half_tried(run: Run, stream: Any) -> None:
    """The second half of a direct exchange is tried, whether or not its first half has arrived."""
    if is_watched(run):
        stream.half_tried_ns = run.clock[0].now
        run.clock[0].ties += stream.half_done_ns == stream.half_tried_ns


@works_on_tables
def note_received(run: Run, stream: Any) -> None:
    """A stream received a message, perhaps the last of the first half of a direct exchange."""
    if is_watched(run) and stream.received == run.plan.programs[stream.program].half:
        stream.half_done_ns = run.clock[0].now
        run.clock[0].ties += stream.half_done_ns == stream.half_tried_ns


@works_on_tables
def note_second(run: Run, line: Any) -> None:
    """Something joins a line in which order matters: a link's, a channel's."""
    if not is_watched(run):
        return
    clock = run.clock[0]
    clock.ties += _may_change_places(clock, line.joined_ns, line.joined_group, line.joined_origin)
    line.joined_ns = clock.now
    line.joined_group = clock.group
    line.joined_origin = clock.origin
