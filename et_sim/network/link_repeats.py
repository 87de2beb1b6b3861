"""Repeats on the link network: the state that determines what follows, and how periods pass.

Idle links are skipped. A message on its last link arrives, whichever link that is; the next message from
there follows from its place. Two links may exchange places if they are equally fast, have carried as much,
and have empty queues.
"""

from __future__ import annotations

import numpy as np

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.containers import NONE, give_row, take_row
from et_sim.engine.repeats.description import put
from et_sim.engine.repeats.passing import chunk_after, pass_step
from et_sim.engine.repeats.picture import put_chunk, put_step, put_turned
from et_sim.engine.repeats.turns import comes_to, turn
from et_sim.engine.state.kinds import STEP
from et_sim.engine.state.run import Run
from et_sim.engine.transport.network_seam import chunk_that_waits, left_of_chunk
from et_sim.network.fabric import next_ports, set_out, take_hop
from et_sim.network.link import HOP_DONE, is_there


@works_on_tables
def may_repeat(run: Run) -> bool:
    """Return whether no path depends on the number of earlier messages."""
    return len(run.network.sent) == 0


@works_on_tables
def describe_event(run: Run, at: int, kind: int, row: int) -> int:
    """Describe a message at the end of a link, or a busy link with its queue."""
    if kind == HOP_DONE:
        return _describe_message(run, at, row)
    link = run.network.links[row]
    if at == NONE or (run.repeats[0].compares and not _turns(run, run.picture[at], row)):
        return NONE
    at = put_turned(run, run.network.links, at, row)
    at = put(run, at, link.free_ns - run.clock[0].now, _bits(link.free_rest))
    waits = link.head
    while waits != NONE and at != NONE:
        at = _describe_message(run, at, waits)
        waits = run.messages[waits].next
    return put(run, at, NONE)


@works_on_tables
def _describe_message(run: Run, at: int, row: int) -> int:
    """Describe a message of a step: its bytes and place. Other messages are not described."""
    message = run.messages[row]
    if message.kind != STEP:
        return NONE
    is_last = is_there(run, row)
    at = put(run, put_step(run, at, message.a, message.b, message.c), int(is_last), message.bytes)
    at = put_chunk(run, at, chunk_that_waits(message.done))
    if run.network.cuts_through[0]:
        at = put(run, at, message.slowest, message.first_ns - run.clock[0].now)
        at = put(run, at, _bits(message.first_rest), _bits(message.last_later))
    if is_last:
        return at
    run.repeats[0].stays = 1
    at = put(run, at, message.source, message.target, message.ports, message.at)
    return put(run, at, message.via_switch, message.device, message.stop)


@works_on_tables
def _turns(run: Run, before: int, now: int) -> bool:
    """Return whether a link may take the place of another one, and record it."""
    links = run.network.links
    earlier, later = links[before], links[now]
    if before != now:
        if (
            earlier.speed != later.speed
            or earlier.busy != later.busy
            or earlier.head != NONE
            or later.head != NONE
        ):
            return False
        if earlier.busy and (earlier.free_ns != later.free_ns or earlier.free_rest != later.free_rest):
            return False
        if earlier.bytes - earlier.bytes_before != later.bytes - later.bytes_before:
            return False
    return turn(run, links, before, now)


@works_on_tables
def ways_turn(run: Run, source: int, target: int, other_source: int, other_target: int, _size: int) -> bool:
    """Return whether two messages take links that exchange places, one after the other."""
    free = run.clock[0].free_messages
    row, other_row = take_row(run.messages, free), take_row(run.messages, free)
    _set_out(run, row, source, target)
    _set_out(run, other_row, other_source, other_target)
    turns = True
    while turns and not is_there(run, row):
        if is_there(run, other_row):
            turns = False
        else:
            link_row, other = (
                take_hop(run.network, run.messages[row]),
                take_hop(run.network, run.messages[other_row]),
            )
            turns = _turns(run, link_row, other)
    turns = turns and is_there(run, other_row)
    give_row(run.messages, free, other_row)
    give_row(run.messages, free, row)
    return turns


@works_on_tables
def _set_out(run: Run, row: int, source: int, target: int) -> None:
    run.messages[row].target = target
    set_out(run.network, run.messages[row], source, next_ports(run.network, source, target))


@works_on_tables
def _bits(number: float) -> int:
    """Return the bits of a floating-point number."""
    return int(np.float64(number).view(np.int64))


@works_on_tables
def pass_event(run: Run, kind: int, row: int, periods: int, time: int) -> int:
    """Advance the messages of an event by periods; return its row, which may be that of another link."""
    if kind == HOP_DONE:
        _pass_message(run, row, periods, time)
        return row
    link = run.network.links[row]
    link.free_ns += time
    waits = link.head
    while waits != NONE:
        _pass_message(run, waits, periods, time)
        waits = run.messages[waits].next
    return comes_to(run, run.network.links, row)


@works_on_tables
def _pass_message(run: Run, row: int, periods: int, time: int) -> None:
    message = run.messages[row]
    message.first_ns += time
    pass_step(run, message, periods)
    if message.done != NONE:
        message.done = left_of_chunk(chunk_after(run, chunk_that_waits(message.done)))


@works_on_tables
def note_counted(run: Run) -> None:
    """Record the bytes of links, from which the increase per period follows."""
    for row in range(len(run.network.links)):
        link = run.network.links[row]
        link.bytes_before = link.bytes


@works_on_tables
def pass_counted(run: Run, periods: int) -> None:
    """Add the bytes of a period to each link, once for each period."""
    for row in range(len(run.network.links)):
        link = run.network.links[row]
        link.bytes += periods * (link.bytes - link.bytes_before)
