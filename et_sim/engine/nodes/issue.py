"""Ranks: issuing nodes when their parents are done and their lane is free, and completing them.

An issue pass visits the ready nodes in ascending order. A node that becomes ready during the pass waits for
the next one, which every completion triggers; if nothing is under way, the pass is repeated, so that no ready
node is ever left behind. With ISSUE_AT_ONCE, it joins the pass under way.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import new_event, schedule, schedule_own
from et_sim.engine.collectives.chunks import start_collective
from et_sim.engine.containers import give_row, join, leave
from et_sim.engine.nodes.pool import request_pool
from et_sim.engine.nodes.ready import lowest_free_lane, pop_ready, push_ready
from et_sim.engine.nodes.slowing import (
    ends_now,
    is_slowed,
    node_done,
    node_issued,
    plan_ends,
    take_slowed_time,
)
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.durations import duration_of
from et_sim.engine.state.kinds import LATE_RECEIVE, MESSAGE, NODE_DONE, SERVER_FREE, START
from et_sim.engine.state.lanes import is_unlimited, lane_row
from et_sim.engine.state.records import OCCUPIED
from et_sim.engine.state.run import NONE, Run, setting_of
from et_sim.engine.transport.network_seam import take_time
from et_sim.engine.transport.point_to_point import held_send_done, post_receive, send
from et_sim.machine.corrections import Correction
from et_sim.plan.records import Action

DELAY, COLLECTIVE, SEND = int(Action.DELAY), int(Action.COLLECTIVE), int(Action.SEND)
RECEIVE, MEMORY = int(Action.RECEIVE), int(Action.MEMORY)
ISSUE_AT_ONCE = setting_of(Correction.ISSUE_AT_ONCE)


@works_on_tables
def start_later(run: Run, actor_row: int) -> None:
    """Schedule the start of an actor that starts late."""
    schedule(run, run.plan.actors[actor_row].start_ns, START, actor_row, 0, 0)


@works_on_tables
def start_rank(run: Run, actor_row: int) -> None:
    """Find the nodes without parents, and issue those that can be issued."""
    actor = run.plan.actors[actor_row]
    template = run.plan.templates[actor.template]
    for node in range(template.nodes):
        state = run.nodes[actor.node_first + node]
        state.partner = run.plan.nodes[template.node_first + node].indegree
        state.start_ns = state.end_ns = state.admitted_ns = NONE
        state.caused_by = state.number = NONE
        if state.partner == 0:
            state.admitted_ns = run.clock[0].now
            observe.node_without_parents(run, actor.node_first + node)
            push_ready(run, actor_row, node)
    issue_ready(run, actor_row)


@works_on_tables
def issue_ready(run: Run, actor_row: int) -> None:
    """Run issue passes; the rank is finished when all its nodes are."""
    state = run.actors[actor_row]
    _issue_pass(run, actor_row)
    while state.running == 0 and lowest_free_lane(run, actor_row) != NONE:
        _issue_pass(run, actor_row)
    observe.issue_pass_ends(run, actor_row)
    plan_ends(run, actor_row)
    actor = run.plan.actors[actor_row]
    if state.completed == run.plan.templates[actor.template].nodes:
        state.finish_ns = run.clock[0].now


@works_on_tables
def _issue_pass(run: Run, actor_row: int) -> None:
    state = run.actors[actor_row]
    state.issuing = 1
    thread = observe.pause(run)
    lane = lowest_free_lane(run, actor_row)
    while lane != NONE:
        _issue(run, actor_row, pop_ready(run, actor_row, lane), lane)
        observe.resume(run, thread)
        lane = lowest_free_lane(run, actor_row)
    state.issuing = 0
    node = state.deferred
    state.deferred = NONE
    first = run.plan.actors[actor_row].node_first
    while node != NONE:
        after = run.nodes[first + node].number
        run.nodes[first + node].number = NONE
        push_ready(run, actor_row, node)
        node = after


@works_on_tables
def _issue(run: Run, actor_row: int, node: int, lane: int) -> None:
    actor = run.plan.actors[actor_row]
    plan_row = run.plan.templates[actor.template].node_first + node
    plan_node = run.plan.nodes[plan_row]
    state = run.nodes[actor.node_first + node]
    lane_state = run.lanes[lane_row(run, actor_row, lane)]
    state.start_ns = run.clock[0].now
    if state.start_ns > state.admitted_ns and lane_state.last != NONE:
        state.caused_by = OCCUPIED - lane_state.last
    observe.node_starts(run, actor_row, node, lane, not is_unlimited(run, lane))
    state.admitted_ns = state.partner = NONE
    lane_state.busy += 1
    run.actors[actor_row].running += 1
    node_issued(run, actor_row, plan_row)
    action = plan_node.action
    if action == DELAY and is_slowed(run, plan_row):
        take_slowed_time(run, actor_row, node, plan_row)
    elif action == DELAY:
        take_time(run, actor_row, node)
    elif action == COLLECTIVE:
        start_collective(run, actor_row, node)
    elif action == SEND:
        send(run, _channel(run, actor_row, plan_node.detail), MESSAGE, node, actor_row)
    elif action == RECEIVE:
        post_receive(run, _channel(run, actor_row, plan_node.detail), LATE_RECEIVE, actor_row, node)
    elif action == MEMORY:
        _request_memory(run, actor_row, node)
    else:
        _end_node(run, actor_row, node)


@works_on_tables
def _channel(run: Run, actor_row: int, detail: int) -> int:
    return run.plan.actor_channels[run.plan.actors[actor_row].channel_first + detail]


@works_on_tables
def _request_memory(run: Run, actor_row: int, node: int) -> None:
    """Request the pool, be served at once, or join the end of the server's queue."""
    if len(run.plan.memory_hops) > 0:
        request_pool(run, actor_row, node)
        return
    server_row = run.plan.actors[actor_row].memory_server
    if server_row == NONE:
        duration = duration_of(run, actor_row, node)
        schedule_own(run, actor_row, duration, NODE_DONE, actor_row, node, 0)
        return
    server = run.servers[server_row]
    if not server.busy:
        observe.server_taken(run, server_row)
        _serve(run, server_row, actor_row, node)
        return
    join(run.events, server, new_event(run, NODE_DONE, actor_row, node, 0))


@works_on_tables
def _serve(run: Run, server_row: int, actor_row: int, node: int) -> None:
    """Schedule the end of the request before that of the server, so that the next request may queue first."""
    run.servers[server_row].busy = 1
    duration = duration_of(run, actor_row, node)
    schedule_own(run, actor_row, duration, NODE_DONE, actor_row, node, 0)
    schedule_own(run, actor_row, duration, SERVER_FREE, server_row, 0, 0)


@works_on_tables
def free_server(run: Run, server_row: int) -> None:
    """Free a server that is done with a request, and begin the next one in its queue."""
    server = run.servers[server_row]
    server.busy = 0
    observe.server_freed(run, server_row)
    row = leave(run.events, server)
    if row == NONE:
        return
    observe.request_served(run, row, server_row)
    actor_row, node = run.events[row].a, run.events[row].b
    give_row(run.events, run.clock[0].free_events, row)
    _serve(run, server_row, actor_row, node)


@works_on_tables
def complete(run: Run, actor_row: int, node: int) -> None:
    """Complete a node: free its lane, release its children, and issue nodes that became possible."""
    _end_node(run, actor_row, node)
    issue_ready(run, actor_row)


@works_on_tables
def slowed_done(run: Run, actor_row: int, node: int, version: int) -> None:
    """Complete a node that is slowed by communication, unless its end was planned anew."""
    if ends_now(run, actor_row, node, version):
        row = run.plan.actors[actor_row].node_first + node
        observe.slowed_ends(run, row, run.nodes[row].start_ns, duration_of(run, actor_row, node))
        complete(run, actor_row, node)


@works_on_tables
def _end_node(run: Run, actor_row: int, node: int) -> None:
    actor = run.plan.actors[actor_row]
    plan_row = run.plan.templates[actor.template].node_first + node
    plan_node = run.plan.nodes[plan_row]
    state = run.actors[actor_row]
    node_done(run, actor_row, plan_row)
    observe.node_ends(run, actor_row, node, plan_node.lane)
    lane = run.lanes[lane_row(run, actor_row, plan_node.lane)]
    lane.busy -= 1
    lane.last = node
    state.running -= 1
    state.completed += 1
    run.clock[0].completed += 1
    if plan_node.busy and (is_slowed(run, plan_row) or len(run.plan.spans) > 0):
        state.busy_ns += run.clock[0].now - run.nodes[actor.node_first + node].start_ns
    elif plan_node.busy:
        state.busy_ns += duration_of(run, actor_row, node)
    run.nodes[actor.node_first + node].end_ns = run.clock[0].now
    if plan_node.action == SEND and run.nodes[actor.node_first + node].admitted_ns != NONE:
        held_send_done(run, actor_row)
    thread = observe.pause(run)
    for index in range(plan_node.children_first, plan_node.children_first + plan_node.children):
        _release(run, actor_row, run.plan.children[index], node)
        observe.resume(run, thread)


@works_on_tables
def _release(run: Run, actor_row: int, node: int, parent: int) -> None:
    """Count a parent of `node` as done; after the last one the node is ready, or deferred during a pass."""
    first, now = run.plan.actors[actor_row].node_first, run.clock[0].now
    state = run.nodes[first + node]
    state.partner -= 1
    before = state.caused_by
    if before == NONE or parent < before or run.nodes[first + before].end_ns != now:
        state.caused_by = parent
    is_deferred = run.actors[actor_row].issuing and not run.plan.settings[ISSUE_AT_ONCE]
    observe.parent_done(run, first + node, is_deferred)
    if state.partner > 0:
        return
    state.admitted_ns = now
    if is_deferred:
        state.number = run.actors[actor_row].deferred
        run.actors[actor_row].deferred = node
    else:
        push_ready(run, actor_row, node)
