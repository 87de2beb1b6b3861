"""Phases that are custom programs: a small graph of sends, receives and computations per member.

Every ready node is issued at once, in ascending order; the phase is complete when all nodes are. Sends and
receives use the same channels as the workload's.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule_own
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import CUSTOM_DONE, CUSTOM_MESSAGE
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.transport.point_to_point import post_receive, send
from et_sim.plan.records import Action

SEND, RECEIVE = int(Action.SEND), int(Action.RECEIVE)


@works_on_tables
def start_custom(run: Run, chunk_row: int) -> None:
    """Issue the nodes without parents; an empty program completes in an event of its own."""
    chunk = run.chunks[chunk_row]
    template = run.plan.templates[_custom(run, chunk).template]
    chunk.credit = template.nodes  # not yet completed
    for node in range(template.nodes):
        run.custom_waiting[chunk_row, node] = run.plan.nodes[template.node_first + node].indegree
        observe.custom_node_waits(run, chunk_row, node)
    for node in range(template.nodes):
        if run.plan.nodes[template.node_first + node].indegree == 0:
            _issue(run, chunk_row, node)
    if template.nodes == 0:
        schedule_own(run, chunk.actor, 0, CUSTOM_DONE, chunk_row, NONE, 0)


@works_on_tables
def end_custom_node(run: Run, chunk_row: int, node: int) -> bool:
    """End a node and issue its children that became ready; return whether the phase is complete."""
    chunk = run.chunks[chunk_row]
    if node == NONE:
        return True
    template = run.plan.templates[_custom(run, chunk).template]
    plan_node = run.plan.nodes[template.node_first + node]
    chunk.credit -= 1
    thread = observe.pause(run)
    for index in range(plan_node.children_first, plan_node.children_first + plan_node.children):
        child = run.plan.children[index]
        run.custom_waiting[chunk_row, child] -= 1
        observe.custom_parent_done(run, chunk_row, child)
        if run.custom_waiting[chunk_row, child] == 0:
            _issue(run, chunk_row, child)
        observe.resume(run, thread)
    return chunk.credit == 0


@works_on_tables
def _custom(run: Run, chunk: Any) -> Any:
    return run.plan.customs[run.plan.programs[chunk.program].custom_first + chunk.position]


@works_on_tables
def _issue(run: Run, chunk_row: int, node: int) -> None:
    chunk = run.chunks[chunk_row]
    custom = _custom(run, chunk)
    plan_node = run.plan.nodes[run.plan.templates[custom.template].node_first + node]
    if plan_node.action == SEND:
        channel = run.plan.actor_channels[custom.channel_first + plan_node.detail]
        send(run, channel, CUSTOM_MESSAGE, node, chunk_row)
    elif plan_node.action == RECEIVE:
        channel = run.plan.actor_channels[custom.channel_first + plan_node.detail]
        post_receive(run, channel, CUSTOM_DONE, chunk_row, node)
    else:
        schedule_own(run, chunk.actor, plan_node.duration_ns, CUSTOM_DONE, chunk_row, node, 0)
