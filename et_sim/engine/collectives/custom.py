"""Phases that are custom programs: a small graph of sends, receives and computations per member.

Every ready node is issued at once, in ascending order; the phase is complete when all nodes are. Sends and
receives use the same channels as the workload's.

Not here: what a completed phase leads to (`progress`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule_own
from et_sim.engine.observe.causes import custom_parent_done, custom_starts, now_of, resume
from et_sim.engine.state.kinds import CUSTOM_DONE, CUSTOM_MESSAGE
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.point_to_point import post_receive, send
from et_sim.plan.tables import Action

SEND, RECEIVE = int(Action.SEND), int(Action.RECEIVE)


@works_on_tables
def start_custom(run: Run, stream_row: int) -> None:
    """Issue the nodes without parents; an empty program completes in an event of its own."""
    stream = run.streams[stream_row]
    template = run.plan.templates[_custom(run, stream).template]
    stream.credit = template.nodes  # not yet completed
    for node in range(template.nodes):
        run.custom_waiting[stream_row, node] = run.plan.nodes[template.node_first + node].indegree
        custom_starts(run, stream_row, node)
    for node in range(template.nodes):
        if run.plan.nodes[template.node_first + node].indegree == 0:
            _issue(run, stream_row, node)
    if template.nodes == 0:
        schedule_own(run, stream.actor, 0, CUSTOM_DONE, stream_row, NONE, 0)


@works_on_tables
def end_custom_node(run: Run, stream_row: int, node: int) -> bool:
    """A node is done: issue what became ready. True when the phase is complete."""
    stream = run.streams[stream_row]
    if node == NONE:
        return True
    template = run.plan.templates[_custom(run, stream).template]
    plan_node = run.plan.nodes[template.node_first + node]
    stream.credit -= 1
    moment = now_of(run)
    for index in range(plan_node.children_first, plan_node.children_first + plan_node.children):
        child = run.plan.children[index]
        run.custom_waiting[stream_row, child] -= 1
        custom_parent_done(run, stream_row, child)
        if run.custom_waiting[stream_row, child] == 0:
            _issue(run, stream_row, child)
        resume(run, moment)
    return stream.credit == 0


@works_on_tables
def _custom(run: Run, stream: Any) -> Any:
    return run.plan.customs[run.plan.programs[stream.program].custom_first + stream.position]


@works_on_tables
def _issue(run: Run, stream_row: int, node: int) -> None:
    stream = run.streams[stream_row]
    custom = _custom(run, stream)
    plan_node = run.plan.nodes[run.plan.templates[custom.template].node_first + node]
    if plan_node.action == SEND:
        channel = run.plan.actor_channels[custom.channel_first + plan_node.detail]
        send(run, channel, CUSTOM_MESSAGE, node, stream_row)
    elif plan_node.action == RECEIVE:
        channel = run.plan.actor_channels[custom.channel_first + plan_node.detail]
        post_receive(run, channel, CUSTOM_DONE, stream_row, node)
    else:
        schedule_own(run, stream.actor, plan_node.duration_ns, CUSTOM_DONE, stream_row, node, 0)
