"""Why transfers on the shared memory bus begin when they do: requests, sides, and gaps between transfers.

Idle unless causes are recorded (`causes`). Not here: the bus (`bus`).
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe.causes import (
    BUS,
    BUS_QUEUE,
    BUS_SIDE,
    current_cause,
    is_recorded,
    join_cause,
    new_causal_event,
)
from et_sim.engine.observe.message_causes import follow
from et_sim.engine.state.run import NONE, Run


@works_on_tables
def bus_request_queued(run: Run, row: int) -> None:
    """A request waits at a side of a bus."""
    if is_recorded(run):
        kept = run.causes.bus_requests[row]
        kept.cause, kept.node = current_cause(run), run.causes.now[0].node


@works_on_tables
def _needs_request(run: Run, row: int, side_row: int) -> None:
    kept = run.causes.bus_requests[row]
    run.causes.now[0].node = kept.node
    join_cause(run, kept.cause, BUS_QUEUE, side_row)


@works_on_tables
def bus_sends(run: Run, row: int, side_row: int, gap_ns: int, wait_ns: int) -> int:
    """A side sends a request. It must be free, and for a gap after its last transfer if that leaves a wait.

    Returns the causal event that the transfer follows, `wait_ns` from now.
    """
    if not is_recorded(run):
        return NONE
    _needs_request(run, row, side_row)
    last, begin = run.causes.bus_sides[side_row].free, run.clock[0].now + wait_ns
    if wait_ns == 0 or last == NONE:
        join_cause(run, last, BUS_SIDE, side_row)
        return current_cause(run)
    over = new_causal_event(run, last, NONE, BUS, begin - gap_ns, begin)
    return new_causal_event(run, over, current_cause(run), BUS_SIDE, begin, begin)


@works_on_tables
def bus_side_freed(run: Run, side_row: int) -> None:
    """A side of a bus has sent or received."""
    if is_recorded(run):
        run.causes.bus_sides[side_row].free = current_cause(run)


@works_on_tables
def bus_side_processed(run: Run, side_row: int) -> None:
    """A side of a bus has processed a request."""
    if is_recorded(run):
        run.causes.bus_sides[side_row].processed = current_cause(run)


@works_on_tables
def bus_processes(run: Run, row: int, side_row: int) -> None:
    """A side processes a request, when the one before is over."""
    if is_recorded(run):
        _needs_request(run, row, side_row)
        join_cause(run, run.causes.bus_sides[side_row].processed, BUS_SIDE, side_row)


@works_on_tables
def next_event_ends_transfer(run: Run, cause: int, cause_ns: int) -> None:
    """The next event is the end of a transfer that begins at this causal event."""
    if is_recorded(run):
        follow(run, cause, cause_ns, BUS, NONE)
