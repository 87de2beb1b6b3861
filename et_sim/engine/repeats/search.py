"""Skipping of repeated periods: collectives whose steps, or chunks, are all alike.

While chunks go round a ring, the state after some time is the same, but later by a period, and each chunk has
advanced by as many steps. The rules of steps, transfers and links only use differences of times and steps; so
the same follows again, until a chunk comes to steps or transfers of another kind, or near its end, or another
event is due. On several dimensions, the state is the same when each chunk has the place that an earlier one
of its collective had; then the same follows until no chunk is left that waits. All these periods are skipped
at once, to the nanosecond.

Now and then, at the beginning of an instant, a picture is taken of the state that determines the next events.
At later instants, the state is compared with it. Only transfers, steps and links may happen in between: any
other event, and any end of a collective, begins the search anew (`looks_anew`). So nodes stay as they are.
Other events on the calendar keep their time, and no period beyond them is skipped.

The argument needs one list of steps, which all members of a phase follow, so that a chunk is sent as much in
a period as it receives, and its peers advance as far as it does. Other programs are simulated step by step,
and so are runs that are folded or recorded, and those with rendezvous, with a memory bus, or of 1.0. Where
phases are logged, or chunks do not wait in turn, only steps are skipped.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.observe import facade as observe
from et_sim.engine.repeats.advance import may_advance, note_collectives
from et_sim.engine.repeats.description import not_described
from et_sim.engine.repeats.passing import pass_periods
from et_sim.engine.repeats.picture import describe
from et_sim.engine.state.run import NEVER, Run

FEWEST_MESSAGES = 64  # before the first picture
MESSAGES_PER_EVENT = 4  # on the calendar, likewise
QUEUES_PER_MESSAGE, ENTRIES_PER_MESSAGE = 8, 8  # limits of a comparison
PERIODS = 2  # least length of a picture's life, if each event delivers a message


# (run): return whether the calendar and `describe_event` describe the whole state of messages.
may_repeat = chosen_by_tables("may_repeat", "network", not_described)
# (run): store the present counts.
note_counted = chosen_by_tables("note_counted", "network", not_described)


@works_on_tables
def looks_anew(run: Run) -> None:
    """Begin the search anew after a begin or an end of something else."""
    if observe.is_watched(run) or not run.repeats[0].is_on:
        return
    repeats = run.repeats[0]
    repeats.is_pictured = repeats.patience = 0
    repeats.since = run.clock[0].delivered
    repeats.due = repeats.since + FEWEST_MESSAGES


@works_on_tables
def look(run: Run) -> None:
    """Compare the state with the picture at the beginning of an instant, or take one if it is time."""
    if not observe.is_watched(run) and run.clock[0].delivered >= run.repeats[0].due:
        _look(run)


@works_on_tables
def _look(run: Run) -> None:
    repeats, clock = run.repeats[0], run.clock[0]
    if not may_repeat(run):
        repeats.is_on, repeats.due = 0, NEVER
        return
    pending = len(run.events) - clock.free_events.rows
    if repeats.is_pictured and clock.delivered - repeats.skipped < repeats.expires:
        if pending == repeats.pending and clock.times == repeats.times:
            _compare(run)
        return
    least = MESSAGES_PER_EVENT * pending + len(run.queues) // QUEUES_PER_MESSAGE
    if clock.delivered < repeats.since + least:
        repeats.due = repeats.since + least
        return
    repeats.patience = max(2 * repeats.patience, PERIODS * least, FEWEST_MESSAGES)
    repeats.expires = clock.delivered - repeats.skipped + repeats.patience
    repeats.is_pictured = describe(run, False)
    if repeats.is_pictured:
        repeats.pending, repeats.times = pending, clock.times
        repeats.picture_ns, repeats.picture_delivered = clock.now, clock.delivered
        note_counted(run)
        note_collectives(run)
    else:
        repeats.due = clock.delivered + repeats.patience


@works_on_tables
def _compare(run: Run) -> None:
    """Skip periods if the state equals the picture.

    If steps have repeated themselves less often than chunks are left, the picture stays for these.
    """
    repeats = run.repeats[0]
    if describe(run, True):
        pass_periods(run)
        if repeats.advances or repeats.periods >= repeats.chunks_left or not may_advance(run):
            looks_anew(run)
            return
    repeats.due = run.clock[0].delivered + repeats.entries // ENTRIES_PER_MESSAGE
