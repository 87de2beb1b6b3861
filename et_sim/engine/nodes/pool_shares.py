"""Units of the stages of a memory pool: which ones a request passes, and how transfers share them fairly.

Where units share their time fairly among all transfers that pass them, a transfer is on all of its units at
once, at one rate, as messages of the flow network are on links: rates are max-min fair, and change only where
transfers begin or end, once per nanosecond. The last byte arrives when the transfer is through at its rate
and its pieces have passed the other stages.

A unit is shared by time, so that loads and stores of different bandwidths can share it: a transfer takes a
part of its time, which is its rate over the bandwidth in its direction.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule, schedule_at_end, schedule_own
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NODE_DONE, POOL_END, POOL_SHARE
from et_sim.engine.state.run import NONE, Run
from et_sim.machine.remote_memory import MOST_STAGES
from et_sim.plan.pool_tables import STORES


@works_on_tables
def unit_of(run: Run, row: int, hop: Any) -> int:
    """Return the unit of a stage that a request passes."""
    rank = run.plan.actors[run.requests[row].actor].rank
    return int(hop.unit_first + rank // hop.npus_per_unit)


@works_on_tables
def part_of(run: Run, joint_row: int, way_row: int, number: int) -> tuple[int, int]:
    """Return the number of units of a stage that a group passes, and the number of parts of its bytes."""
    way = run.plan.memory_ways[way_row]
    hop = run.plan.memory_hops[way.hop_first + number]
    stamp = stamp_of(joint_row, number)
    units = parts = _mark_units(run, joint_row, hop, -stamp - number - 1)
    stores = way_row % 2 == STORES
    for other in range(0 if stores else number + 1, number if stores else way.hops):  # nearer to the NPUs
        nearer = run.plan.memory_hops[way.hop_first + other]
        parts = min(parts, _mark_units(run, joint_row, nearer, -stamp - other - 1))
    return units, parts


@works_on_tables
def is_new_unit(run: Run, unit_row: int, joint_row: int, number: int) -> bool:
    """Return whether a unit is new among those of a group in a stage, and mark it."""
    unit, stamp = run.units[unit_row], stamp_of(joint_row, number) + 1
    is_new = unit.seen != stamp
    unit.seen = stamp
    return bool(is_new)


@works_on_tables
def stamp_of(joint_row: int, number: int) -> int:
    """Return a number for a group's request in a stage, followed by numbers for all stages."""
    return (joint_row * MOST_STAGES + number) * MOST_STAGES


@works_on_tables
def _mark_units(run: Run, joint_row: int, hop: Any, stamp: int) -> int:
    """Return the number of units of a stage that the members of a group pass."""
    count, at = 0, run.joints[joint_row].head - 1
    while at != NONE:
        unit = run.units[unit_of(run, at, hop)]
        if unit.seen != stamp:
            unit.seen = stamp
            count += 1
        at = run.requests[at].next
    return count


MOST_PLANS = (1 << 30) - 1  # the largest number of a plan
SAME_NS = 2.0**-11  # a transfer that ends so shortly before a nanosecond ends in it: rates are rounded
EQUAL = 1 + 2.0**-40  # shares that differ by no more are equal: they are sums of rounded numbers
ENDLESS = 1e300


@works_on_tables
def begin_sharing(run: Run, row: int, joint_row: int, plan_node: Any) -> None:
    """Start a transfer after all other events of this nanosecond."""
    request, way = run.requests[row], run.plan.memory_ways[plan_node.detail]
    request.left, request.rate, request.begin_ns = plan_node.bytes, 0.0, run.clock[0].now
    pieces = max((plan_node.bytes + way.chunk - 1) // way.chunk, 1)
    request.fill_ns, longest = 0.0, 0.0
    for number in range(way.hops):
        hop = run.plan.memory_hops[way.hop_first + number]
        part = _use_units(run, row, joint_row, plan_node.detail, number)
        share_ns = plan_node.bytes / pieces * part / hop.bytes_per_ns
        request.fill_ns += hop.latency_ns + share_ns
        if share_ns > longest or number == 0:
            longest, request.link = share_ns, hop.link
    request.fill_ns -= longest
    state = run.pool_state[0]
    run.pool_flows[state.flows] = row
    state.flows += 1
    _share_later(run)


@works_on_tables
def _use_units(run: Run, row: int, joint_row: int, way_row: int, number: int) -> float:
    """Set the units of a stage that a transfer passes, and return the largest part of it on one unit."""
    way = run.plan.memory_ways[way_row]
    hop = run.plan.memory_hops[way.hop_first + number]
    at, largest = row, 0.0
    units = parts = 1
    if joint_row != NONE:
        units, parts = part_of(run, joint_row, way_row, number)
    while at != NONE:
        unit_row = unit_of(run, at, hop)
        use = run.unit_uses[at * run.pool_state[0].most_hops + number]
        use.unit, use.part, use.time = unit_row, 0.0, 0.0
        if joint_row == NONE or is_new_unit(run, unit_row, joint_row, number):
            use.part = parts / units
            use.time = use.part / hop.bytes_per_ns
            largest = max(largest, use.part)
        at = run.requests[at].next
    return largest


@works_on_tables
def share(run: Run) -> None:
    """Set the rates after all other events of this nanosecond."""
    state, clock = run.pool_state[0], run.clock[0]
    state.is_due = 0
    state.changes_ns = max(state.changes_ns, float(clock.now))
    _pass_bytes(run, state.changes_ns)
    _set_rates(run)
    _plan_next(run)


@works_on_tables
def end_transfer(run: Run, version: int) -> None:
    """End the first transfer, unless a later plan replaced this event."""
    state, now = run.pool_state[0], run.clock[0].now
    if version != state.plans or state.flows == 0:
        return
    first = 0
    for at in range(1, state.flows):
        if _ends_ns(run, run.pool_flows[at]) < _ends_ns(run, run.pool_flows[first]):
            first = at
    row = run.pool_flows[first]
    ends = max(_ends_ns(run, row), state.since_ns)
    _pass_bytes(run, ends)
    state.changes_ns = max(state.changes_ns, ends)
    state.flows -= 1
    for at in range(first, state.flows):
        run.pool_flows[at] = run.pool_flows[at + 1]
    _arrive(run, row, ends)
    _share_later(run)
    for at in range(state.flows):
        if int(_ends_ns(run, run.pool_flows[at]) + SAME_NS) <= now:
            _plan_next(run)
            return


@works_on_tables
def _arrive(run: Run, row: int, ends: float) -> None:
    """Complete the nodes of a finished transfer when its last piece arrives."""
    now, request = run.clock[0].now, run.requests[row]
    arrives = max(int(ends + request.fill_ns + SAME_NS), now)
    cause = observe.transfer_shared(run, row, request.link, request.begin_ns)
    at = row
    while at != NONE:
        asking = run.requests[at]
        observe.next_event_flies(run, cause, now, request.link)
        schedule_own(run, asking.actor, arrives - now, NODE_DONE, asking.actor, asking.node, 0)
        at = asking.next


@works_on_tables
def _share_later(run: Run) -> None:
    state = run.pool_state[0]
    if state.is_due == 0:
        state.is_due = 1
        schedule_at_end(run, POOL_SHARE, 0, 0, 0)


@works_on_tables
def _ends_ns(run: Run, row: int) -> float:
    """Return when a transfer is through at its rate."""
    request, since = run.requests[row], run.pool_state[0].since_ns
    if request.left <= 0:
        return float(since)
    return since + request.left / request.rate if request.rate > 0 else ENDLESS


@works_on_tables
def _plan_next(run: Run) -> None:
    """Schedule the next end of a transfer."""
    state, ends = run.pool_state[0], ENDLESS
    for at in range(state.flows):
        ends = min(ends, _ends_ns(run, run.pool_flows[at]))
    if ends < ENDLESS:
        state.plans = (state.plans + 1) & MOST_PLANS
        schedule(run, max(int(ends + SAME_NS), run.clock[0].now), POOL_END, state.plans, 0, 0)


@works_on_tables
def _pass_bytes(run: Run, until: float) -> None:
    """Move the bytes of all transfers at their rates."""
    state = run.pool_state[0]
    for at in range(state.flows):
        row = run.pool_flows[at]
        moved = min(run.requests[row].rate * (until - state.since_ns), run.requests[row].left)
        run.requests[row].left -= moved
        while row != NONE and moved > 0:
            for place in range(row * state.most_hops, (row + 1) * state.most_hops):
                use = run.unit_uses[place]
                if use.part > 0:
                    run.units[use.unit].passing += moved * use.part
            row = run.requests[row].next
    for unit_row in range(len(run.units)):
        unit = run.units[unit_row]
        if unit.passing > 0:
            after = unit.passed + unit.passing
            observe.link_carries(run, unit.resource, state.since_ns, until, unit.passed, after)
            unit.passed, unit.passing = after, 0.0
    state.since_ns = until


@works_on_tables
def _set_rates(run: Run) -> None:
    """Fill all units together: the unit with the smallest share sets the rate of its transfers."""
    state = run.pool_state[0]
    for unit_row in range(len(run.units)):
        run.units[unit_row].left, run.units[unit_row].open = 1.0, 0.0
    for at in range(state.flows):
        run.requests[run.pool_flows[at]].rate = NONE
        _add(run, run.pool_flows[at], 1.0, 0.0)
    unset = state.flows
    while unset > 0:
        least = ENDLESS
        for unit_row in range(len(run.units)):
            unit = run.units[unit_row]
            if unit.open > 0:
                least = min(least, max(unit.left, 0.0) / unit.open)
        before = unset
        for unit_row in range(len(run.units)):
            unit = run.units[unit_row]
            unit.is_full = int(unit.open > 0 and max(unit.left, 0.0) / unit.open <= least * EQUAL)
        for at in range(state.flows):
            row = run.pool_flows[at]
            if run.requests[row].rate == NONE and _is_held(run, row):
                run.requests[row].rate = least
                unset -= 1
        if unset == before:  # only where rounding leaves nothing on any unit
            break
        for unit_row in range(len(run.units)):
            run.units[unit_row].left, run.units[unit_row].open = 1.0, 0.0
        for at in range(state.flows):
            row = run.pool_flows[at]
            rate = run.requests[row].rate
            if rate == NONE:
                _add(run, row, 1.0, 0.0)
            else:
                _add(run, row, 0.0, rate)


@works_on_tables
def _add(run: Run, row: int, is_open: float, rate: float) -> None:
    """Add a transfer's demand to its units, or subtract its rate from them."""
    most = run.pool_state[0].most_hops
    while row != NONE:
        for place in range(row * most, (row + 1) * most):
            use = run.unit_uses[place]
            if use.part > 0:
                run.units[use.unit].open += is_open * use.time
                run.units[use.unit].left -= rate * use.time
        row = run.requests[row].next


@works_on_tables
def _is_held(run: Run, row: int) -> bool:
    """Return whether one of a transfer's units is full."""
    most = run.pool_state[0].most_hops
    while row != NONE:
        for place in range(row * most, (row + 1) * most):
            use = run.unit_uses[place]
            if use.part > 0 and run.units[use.unit].is_full:
                return True
        row = run.requests[row].next
    return False
