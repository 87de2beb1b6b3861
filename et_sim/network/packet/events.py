"""Events of the packet model: messages begin, the kernel runs, and messages have left or arrived.

The engine's calendar has one event for the kernel's next one: there the kernel runs until the engine's next
event, or until a message has arrived or left. At equal times, packets come before the engine's events, and
messages that are sent then begin after both, in the order of sending.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import chosen_by_tables, works_on_tables
from et_sim.engine.calendar.clock import is_last, schedule, schedule_first
from et_sim.engine.containers import leave
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NETWORK
from et_sim.engine.state.run import LATEST, NONE, Run
from et_sim.engine.transport.network_seam import message_leaves_at, new_message, sending_end
from et_sim.network.link import arrive_at_once
from et_sim.network.packet.flows import flow_begins, flow_ends, new_flow, until_arrived, until_left
from et_sim.network.packet.kernel import go_on, next_ps
from et_sim.network.packet.records import NEVER
from et_sim.network.packet.repeats import restart_search

GO_ON, BEGIN, ARRIVAL = 0, 1, 2  # the kernel runs; messages begin; a message is at its target
MOST_PLANS = (1 << 30) - 1  # the largest number of a plan

begin_flow = chosen_by_tables("begin_flow", "transport")  # (network, flow): begin a message


@works_on_tables
def _joins_nothing(_network: Any, _flow: int) -> None:
    """Ignore a message: the transport has no connections."""


@works_on_tables
def _counts_as_itself(_network: Any, _messages: Any, _flow: int) -> None:
    """Keep a message: the transport delivers each one separately."""


@works_on_tables
def _ends_its_own(_network: Any, _run: Run, row: int) -> int:
    """Return the message itself: its receive ends with it."""
    return row


@works_on_tables
def _flows_left(network: Any) -> int:
    """Return the number of free flows: one per message."""
    return int(network.state[0].free_flows.rows)


joins = chosen_by_tables("joins", "transport", _joins_nothing)  # (network, flow): join a connection
# (network, messages, flow): count the message of a flow as delivered, or as another one
counts_as = chosen_by_tables("counts_as", "transport", _counts_as_itself)
# (network, run, message): the message that an arrived one counts as; NONE: its receive has ended
ends_receives = chosen_by_tables("ends_receives", "transport", _ends_its_own)
flows_left = chosen_by_tables("flows_left", "transport", _flows_left)  # (network): messages that fit


@works_on_tables
def rows_left(run: Run) -> int:
    """Return the number of messages that fit in the free rows; 0 if there are too few packets."""
    state = run.network.state[0]
    if state.free_packets.rows < run.network.spare[0] or observe.queue_rows_left(run.network) == 0:
        return 0
    return min(run.clock[0].free_messages.rows, flows_left(run.network))


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """Queue a message that begins after all other events of this nanosecond."""
    if source == target:
        arrive_at_once(run, target, size, kind, a, b, c, done)
        return
    message_row = new_message(run, target, size, kind, a, b, c, done)
    observe.message_shares(run, message_row)
    run.messages[message_row].begin_ns = run.clock[0].now
    run.messages[message_row].left_ns = NONE
    joins(run.network, new_flow(run, source, target, message_row))
    state = run.network.state[0]
    if state.is_due == 0:
        state.is_due = 1
        schedule(run, run.clock[0].now, NETWORK + BEGIN, 0, 0, 0)


@works_on_tables
def network_event(run: Run, kind: int, row: int, version: int) -> int:
    """Begin messages, or run the kernel; return a message that is at its target, or NONE."""
    if kind == ARRIVAL:
        return ends_receives(run.network, run, row)
    network, arrived = run.network, NONE
    state = network.state[0]
    state.logs = observe.notes_traffic(run)
    if kind == BEGIN:
        _begin_all(run)
    elif state.planned_ns == NONE or version != state.plans:  # another event was planned later
        return NONE
    else:
        state.planned_ns = NONE
        go_on(network, _until_ps(run))
        arrived = state.arrived
        state.arrived = NONE
    _record_links(run)
    plan_next(run)
    if state.left != NONE:
        _message_left(run, state.left)
        state.left = NONE
    if arrived != NONE:
        _message_arrived(run, arrived)
    return NONE


@works_on_tables
def _begin_all(run: Run) -> None:
    """Begin the messages that were sent in this nanosecond."""
    network = run.network
    state = network.state[0]
    state.is_due = 0
    state.now_ps = max(state.now_ps, _ps(network, run.clock[0].now))
    state.now_order = state.order
    row = leave(network.flows, state)
    while row != NONE:
        network.flows[row].begin_ps = state.now_ps
        flow_begins(network, row)
        begin_flow(network, row)
        row = leave(network.flows, state)
    restart_search(network)


@works_on_tables
def _until_ps(run: Run) -> int:
    """Return the last time before which no rank can send."""
    clock = run.clock[0]
    if not is_last(run):
        return _last_ps_before(run.network, clock.now + 1)
    until = _last_ps_before(run.network, run.heap_time[0]) if clock.times > 0 else NEVER
    if len(run.network.fails) > 0:  # the next change comes after the latest time
        until = min(until, _last_ps_before(run.network, run.plan.settings[LATEST] + 1))
    return until


@works_on_tables
def _record_links(run: Run) -> None:
    """Record which links are busy with what ports have sent."""
    network = run.network
    state = network.state[0]
    for row in range(state.logged):
        sending = network.log[row]
        begin, end = _engine_time(network, sending.begin_ps), _engine_time(network, sending.end_ps)
        observe.link_passed(run, sending.port, begin, end - begin, sending.bytes)
    state.logged = 0


@works_on_tables
def _message_left(run: Run, row: int) -> None:
    """Report that the last byte of a message has been sent."""
    _note_left(run, row)
    message = run.messages[run.network.flows[row].message]
    message_leaves_at(run, message, message.left_ns, message.through, message.left_ns)


@works_on_tables
def _note_left(run: Run, row: int) -> None:
    """Record what delayed a message: the slowest link of its path."""
    network = run.network
    flow = network.flows[row]
    message = run.messages[flow.message]
    at = row * network.stride[0]
    slowest, rate = NONE, NEVER
    while network.ways[at] != NONE:
        port = network.ports[network.ways[at]]
        if port.bits_per_s < rate:
            slowest, rate = network.ways[at], port.bits_per_s
        at += 1
    hops = network.hops
    message.left_ns = max(_engine_time(network, flow.left_ps), message.begin_ns)
    alone_ns = int(message.bytes / hops.fabric.graph.speeds[hops.fabric.graph.speed_of[slowest]].bytes_per_ns)
    observe.message_waited(
        run, flow.message, slowest, hops.tier[flow.port], message.begin_ns, message.left_ns, alone_ns
    )
    message.through = until_left(run, row)


@works_on_tables
def _message_arrived(run: Run, row: int) -> None:
    """Report that a message has arrived; with completion by acknowledgement, it has left, too."""
    counts_as(run.network, run.messages, row)
    flow, now = run.network.flows[row], run.clock[0].now
    message = run.messages[flow.message]
    arrives = max(_engine_time(run.network, flow.arrived_ps), now)
    if message.left_ns == NONE:
        _note_left(run, row)
    flow_ends(run.network, row)
    cause = until_arrived(run, row, arrives)
    if message.done != NONE:
        observe.next_event_follows(run, cause, arrives)
        kind, first, second = sending_end(message.done, message.b, message.c)
        schedule_first(run, arrives, kind, first, second, 0)
        message.done = NONE
    observe.next_event_follows(run, cause, arrives)
    schedule_first(run, arrives, NETWORK + ARRIVAL, flow.message, 0, 0)


@works_on_tables
def plan_next(run: Run) -> None:
    """Schedule the next run of the kernel."""
    network = run.network
    state, clock = network.state[0], run.clock[0]
    if state.moving == 0:
        return
    time = max(_engine_time(network, next_ps(network)), clock.now)
    if state.planned_ns == NONE or time < state.planned_ns:
        state.planned_ns = time
        state.plans = (state.plans + 1) & MOST_PLANS
        observe.next_event_follows(run, 0, time)  # the causes of a message are recorded when it arrives
        if time == clock.now and next_ps(network) > _ps(network, clock.now):
            schedule(run, time, NETWORK + GO_ON, 0, state.plans, 0)  # a part of this nanosecond is left
        else:
            schedule_first(run, time, NETWORK + GO_ON, 0, state.plans, 0)


@works_on_tables
def _ps(network: Any, time: int) -> int:
    """Convert a time of the engine to picoseconds."""
    return time * network.units[1] // network.units[0]


@works_on_tables
def _last_ps_before(network: Any, time: int) -> int:
    """Return the last picosecond before a time of the engine, whose unit may be less than a picosecond."""
    return (time * network.units[1] - 1) // network.units[0]


@works_on_tables
def _engine_time(network: Any, time: int) -> int:
    """Convert a time of the kernel to the engine's unit."""
    return time * network.units[0] // network.units[1]
