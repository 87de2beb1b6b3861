"""Kernels and copies that take longer while communication of their rank is under way.

The remaining work of a node is counted in units, of which it does a whole number per nanosecond, and fewer of
them beside communication. So nothing is rounded when communication begins or ends, however often, and an end
is the first whole nanosecond at which all is done. Ends are planned anew when communication begins or ends;
the event of a replaced end has an old version, and is ignored.

All of this is idle unless the plan slows nodes (`plan.slowing`).
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule_own
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.durations import duration_of
from et_sim.engine.state.kinds import SLOWED_DONE
from et_sim.engine.state.run import NONE, Run
from et_sim.plan.records import FIRST_FACTOR


@works_on_tables
def is_slowed(run: Run, plan_row: int) -> bool:
    """Return whether a node, of that row of the plan, takes longer beside communication."""
    return len(run.plan.slowing) > 0 and run.plan.slowing[plan_row] >= FIRST_FACTOR


@works_on_tables
def node_issued(run: Run, actor_row: int, plan_row: int) -> None:
    """Count a node that begins if it is communication."""
    if len(run.plan.slowing) > 0 and run.plan.slowing[plan_row] < 0:
        run.slowed_actors[actor_row].under_way -= run.plan.slowing[plan_row]
        observe.slowing_changes(run, actor_row)


@works_on_tables
def node_done(run: Run, actor_row: int, plan_row: int) -> None:
    """Remove a node that ends from the count if it is communication."""
    if len(run.plan.slowing) > 0 and run.plan.slowing[plan_row] < 0:
        run.slowed_actors[actor_row].under_way += run.plan.slowing[plan_row]
        observe.slowing_changes(run, actor_row)


@works_on_tables
def take_slowed_time(run: Run, actor_row: int, node: int, plan_row: int) -> None:
    """Start a node that takes longer beside communication."""
    actor = run.slowed_actors[actor_row]
    row = actor.free
    slowed = run.slowed_nodes[row]
    actor.free = slowed.after
    slowed.node, slowed.factor = node, run.plan.slowing[plan_row] - FIRST_FACTOR
    slowed.left = duration_of(run, actor_row, node) * run.plan.slowdowns[slowed.factor].alone
    slowed.since_ns = run.clock[0].now
    slowed.after = actor.head
    actor.head = row
    observe.slowing_changes(run, actor_row)
    observe.slowed_starts(run, run.plan.actors[actor_row].node_first + node)
    slowed.ends_ns, slowed.version = NONE, 0
    _plan_end(run, actor_row, row)


@works_on_tables
def plan_ends(run: Run, actor_row: int) -> None:
    """Plan ends anew after an issue pass if communication began or ended."""
    if len(run.plan.slowing) == 0:
        return
    actor, now = run.slowed_actors[actor_row], run.clock[0].now
    beside = actor.under_way if run.plan.slowdowns[0].each else int(actor.under_way > 0)
    if beside == actor.beside:
        return
    row = actor.head
    while row != NONE:
        slowed = run.slowed_nodes[row]
        slowed.left -= (now - slowed.since_ns) * _rate(run, actor_row, slowed.factor)
        slowed.since_ns = now
        row = slowed.after
    actor.beside = beside
    row = actor.head
    while row != NONE:
        if run.slowed_nodes[row].ends_ns > now:
            _plan_end(run, actor_row, row)
        row = run.slowed_nodes[row].after


@works_on_tables
def ends_now(run: Run, actor_row: int, node: int, version: int) -> bool:
    """Return whether the planned end with this version is valid; if it is, remove the node from the list."""
    actor = run.slowed_actors[actor_row]
    before, row = NONE, actor.head
    while row != NONE and run.slowed_nodes[row].node != node:
        before, row = row, run.slowed_nodes[row].after
    if row == NONE or run.slowed_nodes[row].version != version:
        return False
    after = run.slowed_nodes[row].after
    if before == NONE:
        actor.head = after
    else:
        run.slowed_nodes[before].after = after
    run.slowed_nodes[row].after = actor.free
    actor.free = row
    return True


@works_on_tables
def _rate(run: Run, actor_row: int, factor: int) -> int:
    """Return the units of work per nanosecond."""
    slowdown, beside = run.plan.slowdowns[factor], run.slowed_actors[actor_row].beside
    if beside == 0:
        return slowdown.alone
    if slowdown.each == 0:
        return slowdown.beside
    return max(slowdown.alone - slowdown.each * beside, slowdown.beside)


@works_on_tables
def _plan_end(run: Run, actor_row: int, row: int) -> None:
    slowed, now = run.slowed_nodes[row], run.clock[0].now
    rate = _rate(run, actor_row, slowed.factor)
    ends = now + (slowed.left + rate - 1) // rate
    if ends == slowed.ends_ns:
        return
    slowed.ends_ns = ends
    slowed.version += 1
    observe.slowed_end_planned(run, run.plan.actors[actor_row].node_first + slowed.node, ends)
    schedule_own(run, actor_row, ends - now, SLOWED_DONE, actor_row, slowed.node, slowed.version)
