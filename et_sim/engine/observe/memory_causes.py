"""Causes of transfers on the shared memory bus, and of requests to a memory pool.

Idle unless causes are recorded (`causes`). On the bus, requests wait for sides, and for gaps after transfers.
A stage of a pool passes the first piece of a transfer on, and later the last one: so a request has two causes
at a time.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe.causes import (
    BARRIER,
    BOUND,
    BUS,
    BUS_QUEUE,
    BUS_SIDE,
    LATENCY,
    PARENTS,
    SERIALISATION,
    SERVER,
    SERVER_QUEUE,
    current_cause,
    describes_causes,
    join_cause,
    new_causal_event,
    when_recorded,
)
from et_sim.engine.observe.message_causes import follow, next_event_flies, next_event_follows
from et_sim.engine.observe.observers import observes
from et_sim.engine.state.run import NONE, Run


@when_recorded
def bus_request_queued(run: Run, row: int) -> None:
    """Keep the cause of a request that waits at a side of a bus."""
    kept = run.causes.bus_requests[row]
    kept.cause, kept.node = current_cause(run), run.causes.now[0].node


@works_on_tables
def _needs_request(run: Run, row: int, side_row: int) -> None:
    kept = run.causes.bus_requests[row]
    run.causes.now[0].node = kept.node
    join_cause(run, kept.cause, BUS_QUEUE, side_row)


@observes(describes_causes, otherwise=NONE)
def bus_sends(run: Run, row: int, side_row: int, gap_ns: int, wait_ns: int) -> int:
    """Record that a side sends a request, after the side became free or after the gap behind its last
    transfer.

    Return the causal event that the transfer follows, `wait_ns` from now.
    """
    _needs_request(run, row, side_row)
    last, begin = run.causes.bus_sides[side_row].free, run.clock[0].now + wait_ns
    if wait_ns == 0 or last == NONE:
        join_cause(run, last, BUS_SIDE, side_row)
        return current_cause(run)
    over = new_causal_event(run, last, NONE, BUS, begin - gap_ns, begin)
    return new_causal_event(run, over, current_cause(run), BUS_SIDE, begin, begin)


@when_recorded
def bus_side_freed(run: Run, side_row: int) -> None:
    """Keep the cause by which a side of a bus became free to send."""
    run.causes.bus_sides[side_row].free = current_cause(run)


@when_recorded
def bus_side_processed(run: Run, side_row: int) -> None:
    """Keep the cause by which a side of a bus became free to process."""
    run.causes.bus_sides[side_row].processed = current_cause(run)


@when_recorded
def bus_processes(run: Run, row: int, side_row: int) -> None:
    """Record that a side processes a request, after the one before."""
    _needs_request(run, row, side_row)
    join_cause(run, run.causes.bus_sides[side_row].processed, BUS_SIDE, side_row)


@when_recorded
def next_event_ends_transfer(run: Run, cause: int, cause_ns: int) -> None:
    """Describe the next event as the end of a transfer that begins at a causal event."""
    follow(run, cause, cause_ns, BUS, NONE)


@when_recorded
def request_joins(run: Run, joint_row: int, is_first: bool) -> None:
    """Add the request of a member of a group to the causes of the joint request."""
    if not is_first:
        join_cause(run, run.causes.joints[joint_row], BARRIER, NONE)
    run.causes.joints[joint_row] = current_cause(run)


@when_recorded
def request_sets_out(run: Run, row: int) -> None:
    """Keep the cause at which all pieces of a transfer are ready for its first stage."""
    kept = run.causes.requests[row]
    kept.last = current_cause(run)
    kept.first_out = kept.last_out = NONE


@when_recorded
def unit_taken(
    run: Run, row: int, unit: int, link: int, begin: int, held: int, piece_ns: int, whole_ns: int, size: int
) -> None:
    """Record that a unit passes a transfer, a piece in `piece_ns`, from `begin` on if they have arrived."""
    now, kept = run.causes.now[0], run.causes.requests[row]
    free, start = run.causes.units[unit], now.cause
    now.resource = run.units[unit].resource
    if begin > run.clock[0].now:
        start = new_causal_event(run, free, start, SERVER_QUEUE, begin, begin)
    elif free != NONE and free != start:
        start = new_causal_event(run, start, free, SERVER, begin, begin)
    start = _takes(run, start, LATENCY, link, begin, begin + held)
    first = _takes(run, start, SERIALISATION, link, begin + held, begin + held + piece_ns)
    done = _takes(run, start, SERIALISATION, link, begin + held, begin + held + whole_ns)
    run.causes.units[unit] = done
    before = run.requests[row].last_ns
    last = _takes(run, kept.last, LATENCY, link, before, before + held)
    last = _takes(run, last, SERIALISATION, link, before + held, before + held + piece_ns)
    now.resource = NONE
    last = _later(run, done, begin + held + whole_ns, last, before + held + piece_ns, BOUND)
    if kept.first_out == NONE:
        kept.first_out, kept.last_out = first, last
        kept.first_ns = begin + held + piece_ns
        kept.last_ns = max(begin + held + whole_ns, before + held + piece_ns)
        return
    last_ns = max(begin + held + whole_ns, before + held + piece_ns)
    kept.first_out = _later(run, kept.first_out, kept.first_ns, first, begin + held + piece_ns, PARENTS)
    kept.last_out = _later(run, kept.last_out, kept.last_ns, last, last_ns, PARENTS)
    kept.first_ns = max(kept.first_ns, begin + held + piece_ns)
    kept.last_ns = max(kept.last_ns, last_ns)


@when_recorded
def stage_passed(run: Run, row: int, link: int, first: int, last: int, latency: int) -> None:
    """Record that a transfer is through a stage; its first piece at the next stage is the next event."""
    kept = run.causes.requests[row]
    kept.last = _takes(run, kept.last_out, LATENCY, link, last, last + latency)
    next_event_flies(run, kept.first_out, first, link)
    kept.first_out = kept.last_out = NONE


@observes(describes_causes, otherwise=NONE)
def transfer_shared(run: Run, row: int, link: int, begin: int) -> int:
    """Record that a transfer that shared units is through; return the cause of its end, its slowest stage."""
    return _takes(run, run.causes.requests[row].last, SERIALISATION, link, begin, run.clock[0].now)


@when_recorded
def request_ends(run: Run, row: int, time: int) -> None:
    """Describe the next event as the end of a requesting node."""
    next_event_follows(run, run.causes.requests[row].last, time)


@works_on_tables
def _takes(run: Run, cause: int, kind: int, link: int, begin: int, end: int) -> int:
    """Return the causal event after a stage's time, or the same one if it takes none."""
    if end == begin:
        return cause
    now = run.causes.now[0]
    now.link = link
    cause = new_causal_event(run, cause, NONE, kind, begin, end)
    now.link = NONE
    return cause


@works_on_tables
def _later(run: Run, first: int, first_ns: int, second: int, second_ns: int, kind: int) -> int:
    """Return the causal event that needs two others."""
    if first == second:
        return first
    if first_ns >= second_ns:
        return new_causal_event(run, first, second, kind, first_ns, first_ns)
    return new_causal_event(run, second, first, kind, second_ns, second_ns)
