"""Transport: carrying one message from its source to its target, on whichever network model runs.

What arrives is the event that was handed in. Analytical: it is scheduled for the end of the flight. Link:
the message becomes a transit that takes one link after the other; each link serves one message at a time
and queues the others. A message to oneself arrives at once, unless there is a switch to pass.

Not here: what an arrival leads to (`loop`), and routes and speeds (`network`).
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.causes import LATENCY, NOTHING, now_of, resume
from et_sim.engine.causes_of_messages import (
    flies,
    follows,
    leaves,
    link_freed,
    needs_link,
    needs_transit,
    remember_transit,
    serialises,
)
from et_sim.engine.clock import schedule
from et_sim.engine.kinds import HOP_DONE, LINK_FREE
from et_sim.engine.lines import join, leave
from et_sim.engine.state import NONE, Run, setting_of
from et_sim.engine.ties import note_second
from et_sim.engine.traffic import (
    message_flies,
    message_goes_on,
    message_queues,
    message_sets_out,
    message_takes_link,
)
from et_sim.machine.corrections import Correction
from et_sim.network.analytical import flight_ns, leaving_ns
from et_sim.network.link import take_hop
from et_sim.network.speeds import SWITCH
from et_sim.network.tables import Model

LINK_MODEL = int(Model.LINK)
WHOLE_PATH = setting_of(Correction.WHOLE_PATH)
REQUEST_BYTES = 8192  # of the message that asks for another, with rendezvous


@works_on_tables
def carry(run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int) -> None:
    """Send a message between two ranks; (kind, a, b, c) happens on arrival."""
    if run.network.model[0] != LINK_MODEL:
        flight = flight_ns(run.network, source, target, size, run.plan.settings[WHOLE_PATH])
        flies(run, source, target, size, run.plan.settings[WHOLE_PATH])
        message_flies(run, source, target, size, flight)
        schedule(run, run.clock[0].now + flight, kind, a, b, c)
    elif _stays_at_home(run, source, target):
        message_flies(run, source, target, size, 0)
        schedule(run, run.clock[0].now, kind, a, b, c)
    else:
        enter_link(run, _new_transit(run, source, target, size, kind, a, b, c))


@works_on_tables
def carry_and_tell(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """Like `carry`; and (done, c, b) happens when the last byte has left the source."""
    if run.network.model[0] == LINK_MODEL and not _stays_at_home(run, source, target):
        row = _new_transit(run, source, target, size, kind, a, b, c)
        run.transits[row].done = done
        enter_link(run, row)
        return
    leaving = leaving_ns(run.network, source, target, size)
    leaves(run, source, target)
    schedule(run, run.clock[0].now + leaving, done, c, b, 0)
    carry(run, source, target, size, kind, a, b, c)


@works_on_tables
def _stays_at_home(run: Run, source: int, target: int) -> bool:
    return source == target and run.network.dimensions[0].wiring != SWITCH


@works_on_tables
def _new_transit(run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int) -> int:
    clock = run.clock[0]
    row = clock.free_transit
    transit = run.transits[row]
    clock.free_transit = transit.next
    clock.free_transits -= 1
    transit.at, transit.target, transit.bytes = source, target, size
    transit.via_switch = 0
    transit.kind, transit.a, transit.b, transit.c = kind, a, b, c
    transit.done = NONE
    message_sets_out(run, row)
    return row


@works_on_tables
def release_transit(run: Run, row: int) -> None:
    """Give back a transit that has arrived."""
    clock = run.clock[0]
    run.transits[row].next = clock.free_transit
    clock.free_transit = row
    clock.free_transits += 1


@works_on_tables
def has_arrived(run: Run, row: int) -> bool:
    """Whether a transit is at its target, as opposed to a stop on its way."""
    transit = run.transits[row]
    return transit.at == transit.target and not transit.via_switch


@works_on_tables
def enter_link(run: Run, row: int) -> None:
    """Take the next link, or queue for it."""
    link_row = take_hop(run.network, run.transits[row])
    link = run.network.links[link_row]
    note_second(run, link)
    if not link.busy:
        moment = now_of(run)
        needs_link(run, link_row)
        _occupy(run, link_row, row)
        resume(run, moment)
    else:
        remember_transit(run, row)
        message_queues(run, row, link_row)
        join(run.transits, link, row)


@works_on_tables
def _occupy(run: Run, link_row: int, row: int) -> None:
    """Start a message on a free link: it arrives, and then the link is free (in this order)."""
    link = run.network.links[link_row]
    speed = run.network.speeds[link.speed]
    transit = run.transits[row]
    serial = transit.bytes / speed.bytes_per_ns
    link.busy = 1
    now = run.clock[0].now
    message_takes_link(run, row, link_row, int(serial))
    through = serialises(run, link_row, link.speed, int(serial))
    follows(run, through, now + int(serial), LATENCY, link.speed)
    schedule(run, now + int(speed.latency_ns + serial), HOP_DONE, row, 0, 0)
    follows(run, through, now + int(serial), NOTHING, NONE)
    schedule(run, now + int(serial), LINK_FREE, link_row, 0, 0)
    if transit.done != NONE:
        follows(run, through, now + int(serial), NOTHING, NONE)
        schedule(run, now + int(serial), transit.done, transit.c, transit.b, 0)
        transit.done = NONE


@works_on_tables
def free_link(run: Run, link_row: int) -> None:
    """A link is free again: the first message in its queue starts."""
    link = run.network.links[link_row]
    link.busy = 0
    link_freed(run, link_row)
    row = leave(run.transits, link)
    if row != NONE:
        needs_transit(run, row, link_row)
        message_goes_on(run, row, link_row)
        _occupy(run, link_row, row)
