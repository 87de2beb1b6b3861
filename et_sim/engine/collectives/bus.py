"""The endpoint that a transfer must cross: a fixed delay, or the shared memory bus of the actor.

The bus is two LogGP buses, one inside the other. The outer bus joins the NPU and the memory side; every
request that passes the NPU side also makes a trip on the inner bus. A side sends or receives one request at a
time, and processes one at a time; a side that has sent a long streak yields to its partner. A request ends at
its last side, and only then has its transfer crossed the endpoint.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule_own
from et_sim.engine.containers import give_row, join, leave, take_row
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import BUS_PROCESSED, BUS_RECEIVED, BUS_SENT, TRANSFER_AT_ENDPOINT
from et_sim.engine.state.records import BUS_FIFOS, BUS_SIDES
from et_sim.engine.state.run import NONE, Run

NPU, MEMORY, INNER_NPU, INNER_MEMORY = range(BUS_SIDES)
FREE, SENDING, RECEIVING = range(3)
TO_SEND, TO_RECEIVE, TO_PROCESS = range(BUS_FIFOS)
# The continuation of an outer request after its trip on the inner bus.
THEN_SEND, THEN_PROCESS, THEN_END = range(3)
INNER_GAP_PER_BYTE = 0.0038
LONGEST_STREAK = 8  # a side that sent more yields to a waiting partner
FIXED_PROCESSING_NS = 50


@works_on_tables
def enter_bus(
    run: Run, chunk_row: int, step_key: int, size: int, reduction_ns: int, inward: int, returns: int
) -> None:
    """Send a transfer over its actor's bus."""
    first = run.chunks[chunk_row].actor * BUS_SIDES
    row = _new_request(run, size)
    request = run.bus_requests[row]
    request.chunk, request.step_key, request.reduction_ns = chunk_row, step_key, reduction_ns
    request.outer = NONE
    if inward:
        request.reduces = request.returns = 0
        _inner_trip(run, first + INNER_MEMORY, row, 0, THEN_SEND)
    else:
        request.reduces = reduction_ns != NONE
        request.returns = returns
        _queue_send(run, first + MEMORY, row)
        consider_sending(run, first + MEMORY)


@works_on_tables
def _new_request(run: Run, size: int) -> int:
    row = take_row(run.bus_requests, run.clock[0].free_bus_requests)
    request = run.bus_requests[row]
    request.next = NONE
    request.bytes = size
    return row


@works_on_tables
def release_request(run: Run, row: int) -> None:
    """Return a request that has ended to its pool."""
    give_row(run.bus_requests, run.clock[0].free_bus_requests, row)


@works_on_tables
def _inner_trip(run: Run, side_row: int, outer: int, returns: int, after: int) -> None:
    """Start a trip on the inner bus on behalf of an outer request."""
    row = _new_request(run, run.bus_requests[outer].bytes)
    request = run.bus_requests[row]
    request.outer, request.after = outer, after
    request.reduces, request.returns = 0, returns
    _queue_send(run, side_row, row)
    consider_sending(run, side_row)


@works_on_tables
def _fifo(run: Run, side_row: int, which: int) -> Any:
    return run.bus_fifos[side_row * BUS_FIFOS + which]


@works_on_tables
def _queue_send(run: Run, side_row: int, row: int) -> None:
    observe.bus_request_queued(run, row)
    join(run.bus_requests, _fifo(run, side_row, TO_SEND), row)


@works_on_tables
def _partner(side_row: int) -> int:
    return side_row ^ 1


@works_on_tables
def consider_sending(run: Run, side_row: int) -> None:
    """Send a request if the side is free and has one, or yield to the partner; ends each event of a side."""
    side = run.bus_sides[side_row]
    if side.state != FREE or _fifo(run, side_row, TO_SEND).head == NONE:
        return
    partner = run.bus_sides[_partner(side_row)]
    yields = side.streak > LONGEST_STREAK and partner.streak <= LONGEST_STREAK
    if yields and _fifo(run, _partner(side_row), TO_SEND).head != NONE:
        if partner.state == FREE:
            _send(run, _partner(side_row))
    else:
        _send(run, side_row)


@works_on_tables
def _send(run: Run, side_row: int) -> None:
    """Put the first waiting request on the bus."""
    side, partner = run.bus_sides[side_row], run.bus_sides[_partner(side_row)]
    bus, now = run.plan.bus[0], run.clock[0].now
    row = leave(run.bus_requests, _fifo(run, side_row, TO_SEND))
    thread, wait_ns = observe.pause(run), 0
    offset = bus.overhead_ns
    if side.before == SENDING and offset + (now - side.last_ns) <= bus.gap_ns:
        offset = wait_ns = bus.gap_ns - (now - side.last_ns)
    begin = observe.bus_sends(run, row, side_row, bus.gap_ns, wait_ns)
    is_inner = side_row % BUS_SIDES >= INNER_NPU
    per_byte = INNER_GAP_PER_BYTE if is_inner else bus.gap_per_byte
    train = (run.bus_requests[row].bytes - 1) * per_byte
    join(run.bus_requests, _fifo(run, _partner(side_row), TO_RECEIVE), row)
    partner.before, partner.state, partner.streak = partner.state, RECEIVING, 0
    actor = side_row // BUS_SIDES
    arrival = int(offset + train + bus.latency_ns + bus.overhead_ns)
    observe.next_event_ends_transfer(run, begin, now + wait_ns)
    schedule_own(run, actor, arrival, BUS_RECEIVED, _partner(side_row), 0, 0)
    side.state = SENDING
    observe.next_event_ends_transfer(run, begin, now + wait_ns)
    schedule_own(run, actor, int(offset + train), BUS_SENT, side_row, 0, 0)
    observe.resume(run, thread)


@works_on_tables
def end_sending(run: Run, side_row: int) -> None:
    """Free a side that has sent a request."""
    side = run.bus_sides[side_row]
    side.last_ns = run.clock[0].now
    side.before, side.state = side.state, FREE
    side.streak += 1
    observe.bus_side_freed(run, side_row)


@works_on_tables
def end_receiving(run: Run, side_row: int) -> int:
    """Free a side that has received a request; return the request if it ends here, else NONE."""
    side = run.bus_sides[side_row]
    side.last_ns = run.clock[0].now
    side.before = side.state
    observe.bus_side_freed(run, side_row)
    row = leave(run.bus_requests, _fifo(run, side_row, TO_RECEIVE))
    if _fifo(run, side_row, TO_RECEIVE).head == NONE:
        side.state = FREE
    request = run.bus_requests[row]
    if request.reduces:
        request.reduces = 0
        return _go_on(run, side_row, row, THEN_PROCESS)
    if request.returns:
        request.returns = 0
        return _go_on(run, side_row, row, THEN_SEND)
    return _go_on(run, side_row, row, THEN_END)


@works_on_tables
def end_processing(run: Run, side_row: int) -> int:
    """End the processing of a request, and begin the next; return the request if it ends here."""
    side = run.bus_sides[side_row]
    row = leave(run.bus_requests, _fifo(run, side_row, TO_PROCESS))
    side.processing = 0
    observe.bus_side_processed(run, side_row)
    request = run.bus_requests[row]
    after = THEN_SEND if request.returns else THEN_END
    request.returns = 0
    ended = _go_on(run, side_row, row, after)
    _consider_processing(run, side_row)
    return ended


@works_on_tables
def _go_on(run: Run, side_row: int, row: int, after: int) -> int:
    """Continue a request; at the NPU it first makes a trip on the inner bus, and back unless it ends."""
    if side_row % BUS_SIDES == NPU:
        _inner_trip(run, side_row + INNER_NPU, row, after != THEN_END, after)
        return NONE
    return go_on_after(run, side_row, row, after)


@works_on_tables
def go_on_after(run: Run, side_row: int, row: int, after: int) -> int:
    """Queue a request to be sent or processed by a side; return it if it ends here."""
    if after == THEN_SEND:
        _queue_send(run, side_row, row)
        return NONE
    if after == THEN_PROCESS:
        observe.bus_request_queued(run, row)
        join(run.bus_requests, _fifo(run, side_row, TO_PROCESS), row)
        _consider_processing(run, side_row)
        return NONE
    return row


@works_on_tables
def _consider_processing(run: Run, side_row: int) -> None:
    side = run.bus_sides[side_row]
    first = _fifo(run, side_row, TO_PROCESS).head
    if side.processing or first == NONE:
        return
    side.processing = 1
    thread = observe.pause(run)
    observe.bus_processes(run, first, side_row)
    size = run.bus_requests[first].bytes
    duration = (size // 100) * run.plan.bus[0].reduction_delay_ns + FIXED_PROCESSING_NS
    schedule_own(run, side_row // BUS_SIDES, duration, BUS_PROCESSED, side_row, 0, 0)
    observe.resume(run, thread)


@works_on_tables
def cross_endpoint(
    run: Run, chunk_row: int, step_key: int, size: int, reduction_ns: int, inward: int, returns: int
) -> None:
    """Send a transfer across the endpoint; collectives along a list of ranks never use the bus."""
    chunk = run.chunks[chunk_row]
    axis = run.plan.axes[chunk.axis]
    if len(run.bus_sides) > 0 and axis.members_first < 0:
        enter_bus(run, chunk_row, step_key, size, reduction_ns, inward, returns)
    else:
        schedule_own(
            run, chunk.actor, axis.endpoint_ns, TRANSFER_AT_ENDPOINT, chunk_row, step_key, reduction_ns
        )
