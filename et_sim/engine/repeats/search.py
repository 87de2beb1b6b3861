"""What repeats itself is not simulated again and again: collectives whose steps are all alike.

While chunks go round a ring, everything is after some time as it was, but later by a period, and each chunk
further by as many steps. The rules of steps, transfers and links ask how far times and steps are apart, and
never what they are; so what follows is the same again, until a chunk comes to steps or transfers of another
kind, or near its end, or something else is due. All these periods are passed at once, to the nanosecond.

Now and then, at the beginning of an instant, a picture is taken of all that decides what happens next. At
later instants, what is there is compared with it. Nothing but transfers, steps and links happens in between:
whatever else happens, or ends a phase, begins the search anew (`looks_anew`). So queues, nodes and what waits
stay as they are. What else is on the calendar keeps its time, and nothing is passed beyond it.

The argument needs one list of steps, which all members of a phase follow, so that as much is sent to a chunk
in a period as it receives, and its peers come as far as it does. Other programs are simulated step by step,
and so are runs that are folded or recorded, and those with rendezvous, with a memory bus, or of 1.0.

Not here: what a network model keeps of messages under way (`describe_event` and the others, in its module).
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.observe import facade as observe
from et_sim.engine.repeats.passing import pass_periods
from et_sim.engine.repeats.picture import describe
from et_sim.engine.state.run import NEVER, Run

FEWEST_MESSAGES = 64  # before the first picture
MESSAGES_PER_EVENT = 4  # on the calendar, likewise
QUEUES_PER_MESSAGE, ENTRIES_PER_MESSAGE = 8, 8  # that may be looked at
PERIODS = 2  # that a picture waits for, at least, if each event delivers a message


@works_on_tables
def _never(_run: Run) -> bool:
    """Return a model of which is not known what decides what happens next."""
    return False


@works_on_tables
def _nothing_noted(_run: Run) -> None:
    return


# (run): whether the calendar and `describe_event` tell what messages decide.
may_repeat = chosen_by_tables("may_repeat", "network", _never)
# (run): note what has been counted until now.
note_counted = chosen_by_tables("note_counted", "network", _nothing_noted)


@works_on_tables
def looks_anew(run: Run) -> None:
    """Something has begun or ended: what happens from now on may repeat itself, in a while."""
    if observe.is_watched(run) or not run.repeats[0].is_on:
        return
    repeats = run.repeats[0]
    repeats.is_pictured = repeats.patience = 0
    repeats.since = run.clock[0].delivered
    repeats.due = repeats.since + FEWEST_MESSAGES


@works_on_tables
def look(run: Run) -> None:
    """At the beginning of an instant: see whether all is as on the picture, or take one, if it is time to."""
    if not observe.is_watched(run) and run.clock[0].delivered >= run.repeats[0].due:
        _look(run)


@works_on_tables
def _look(run: Run) -> None:
    repeats, clock = run.repeats[0], run.clock[0]
    if not may_repeat(run):
        repeats.is_on, repeats.due = 0, NEVER
        return
    pending = len(run.events) - clock.free_events.rows
    if repeats.is_pictured and clock.delivered < repeats.expires:
        if pending != repeats.pending or clock.times != repeats.times:
            return
        if describe(run, True):
            pass_periods(run)
            looks_anew(run)
        else:
            repeats.due = clock.delivered + repeats.entries // ENTRIES_PER_MESSAGE
        return
    least = MESSAGES_PER_EVENT * pending + len(run.queues) // QUEUES_PER_MESSAGE
    if clock.delivered < repeats.since + least:
        repeats.due = repeats.since + least
        return
    repeats.patience = max(2 * repeats.patience, PERIODS * least, FEWEST_MESSAGES)
    repeats.expires = clock.delivered + repeats.patience
    repeats.is_pictured = describe(run, False)
    if repeats.is_pictured:
        repeats.pending, repeats.times = pending, clock.times
        repeats.picture_ns, repeats.picture_delivered = clock.now, clock.delivered
        note_counted(run)
    else:
        repeats.due = repeats.expires
