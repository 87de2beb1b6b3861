"""Why messages come when they do: links, flights, and what waits for a message or for a link.

Idle unless causes are recorded (`causes`). Not here: what the messages are about.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe.causes import (
    LINK,
    LINK_QUEUE,
    NOTHING,
    RECEIVE,
    REQUEST,
    SERIALISATION,
    current_cause,
    is_recorded,
    join_cause,
    moment_at,
    moment_of,
)
from et_sim.engine.state.kinds import STEP
from et_sim.engine.state.run import NONE, Run


@works_on_tables
def takes_first(run: Run, what: int, link: int, time: int) -> None:
    """Before the next event can take its time, something else takes until `time`."""
    if not is_recorded(run):
        return
    now = run.causes.now[0]
    if now.after == NONE:
        now.after, now.after_ns = now.moment, run.clock[0].now
    now.link = link
    now.after = moment_of(run, now.after, NONE, what, now.after_ns, time)
    now.after_ns = time


@works_on_tables
def serialises(run: Run, link_row: int, speed: int, serial_ns: int) -> int:
    """A message occupies a link from now on; returns the moment at which it is through."""
    now = run.causes.now[0]
    if not is_recorded(run):
        return NONE
    begin = run.clock[0].now
    now.link, now.place = speed, link_row
    through = moment_of(run, now.moment, NONE, SERIALISATION, begin, begin + serial_ns)
    now.link = now.place = NONE
    return through


@works_on_tables
def continue_from(run: Run, moment: int, moment_ns: int, what: int, link: int) -> None:
    """The next event follows another moment than the present one; `what` takes the rest of the time."""
    if is_recorded(run):
        now = run.causes.now[0]
        now.after, now.after_ns, now.what, now.link = moment, moment_ns, what, link


@works_on_tables
def is_spent(run: Run, what: int, link: int) -> None:
    """The time until the next event is spent like this."""
    if is_recorded(run):
        run.causes.now[0].what, run.causes.now[0].link = what, link


@works_on_tables
def said_so_far(run: Run) -> int:
    """The moment to which what has been said leads."""
    now = run.causes.now[0]
    return now.moment if now.after == NONE else now.after


@works_on_tables
def said_until(run: Run) -> int:
    """The time of that moment."""
    now = run.causes.now[0]
    return run.clock[0].now if now.after == NONE else now.after_ns


@works_on_tables
def start_from(run: Run, moment: int, moment_ns: int) -> None:
    """What is said next begins at another moment."""
    run.causes.now[0].after, run.causes.now[0].after_ns = moment, moment_ns


@works_on_tables
def after_both(run: Run, what: int, moment: int, moment_ns: int) -> None:
    """The next event follows what has been said and another moment, whichever is later."""
    now = run.causes.now[0]
    now.link = NONE
    if now.after_ns > moment_ns:
        now.after = moment_of(run, now.after, moment, what, now.after_ns, now.after_ns)
    else:
        now.after = moment_of(run, moment, now.after, what, moment_ns, moment_ns)
        now.after_ns = moment_ns


@works_on_tables
def remember_message(run: Run, row: int) -> None:
    """A message waits for a link from now on."""
    if is_recorded(run):
        cause = run.causes.messages[row]
        cause.moment, cause.node = run.causes.now[0].moment, run.causes.now[0].node


@works_on_tables
def needs_message(run: Run, row: int, link_row: int) -> None:
    """A message goes on, over a link that it had to wait for."""
    if is_recorded(run):
        cause = run.causes.messages[row]
        run.causes.now[0].node = cause.node
        join_cause(run, cause.moment, LINK_QUEUE, link_row)


@works_on_tables
def link_freed(run: Run, link_row: int) -> None:
    """A link is free."""
    if is_recorded(run):
        run.causes.links[link_row] = current_cause(run)


@works_on_tables
def needs_link(run: Run, link_row: int) -> None:
    """What happens next needs a link, which is free."""
    if is_recorded(run):
        join_cause(run, run.causes.links[link_row], LINK, link_row)


@works_on_tables
def remember_unexpected(run: Run, row: int) -> None:
    """A message, an offer or a request of a step waits for its counterpart from now on."""
    if is_recorded(run):
        cause = run.causes.unexpected[row]
        cause.moment, cause.node = run.causes.now[0].moment, run.causes.now[0].node


@works_on_tables
def arrives_early(run: Run, row: int, arrival: int) -> None:
    """A step's message that nobody waits for yet will arrive then."""
    if is_recorded(run):
        run.causes.unexpected[row].moment = moment_at(run, arrival, STEP)


@works_on_tables
def waits_for_early(run: Run, row: int) -> None:
    """The next event is the arrival of such a message, which may have been some time ago."""
    if not is_recorded(run):
        return
    arrival = run.unexpected[row].arrives_ns
    if arrival > run.clock[0].now:
        continue_from(run, run.causes.unexpected[row].moment, arrival, NOTHING, NONE)
    else:
        needs_unexpected(run, row, RECEIVE)


@works_on_tables
def needs_unexpected(run: Run, row: int, what: int) -> None:
    """What happens next needs what was unexpected."""
    if is_recorded(run):
        join_cause(run, run.causes.unexpected[row].moment, what, NONE)


@works_on_tables
def needs_offer(run: Run, row: int) -> None:
    """The same; and it is done for whoever offered."""
    if is_recorded(run):
        run.causes.now[0].node = run.causes.unexpected[row].node
        needs_unexpected(run, row, REQUEST)
