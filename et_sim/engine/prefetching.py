"""Fetching ahead: what the next events need is loaded into the processor's cache while this one happens.

Unlike ranks that do the same at one time take turns, and each needs lines of memory of its own. Waiting for
these takes most of the time of a run with many ranks. Nothing here has an effect on results.
"""

from __future__ import annotations

from et_sim.compiled.decorators import prefetch, works_on_tables
from et_sim.engine.state import kinds
from et_sim.engine.state.lanes import lane_row
from et_sim.engine.state.run import NONE, Run
from et_sim.plan.records import Action

LEAST_ACTORS = 1 << 10  # fewer stay in the cache
SHARED_NODES = 1 << 12  # of a plan: they stay in the cache
SEND = int(Action.SEND)
MESSAGE, ACTOR, NODE, CHILDREN = 4, 3, 2, 1  # how many events ahead; each needs what was fetched before


@works_on_tables
def fetch_ahead(run: Run, row: int) -> None:
    """Fetch what the events after the present one need, from this one on."""
    if len(run.actors) < LEAST_ACTORS:
        return
    for ahead in range(1, MESSAGE + 1):
        if row == NONE:
            return
        event = run.events[row]
        kind = event.kind & (kinds.OPENS_BUCKET - 1)
        if kind in (kinds.NODE_DONE, kinds.LATE_RECEIVE):
            fetch_of_node(run, ahead, event.a, event.b)
        elif kind >= kinds.NETWORK and event.a < len(run.messages):
            _fetch_of_message(run, ahead, event.a)
        row = event.next
    prefetch(run.events, row)


@works_on_tables
def fetch_next_time(run: Run) -> None:
    """Fetch what the first event of the next time needs if it ends a node, alone or as a collective."""
    if len(run.actors) < LEAST_ACTORS or run.clock[0].times == 0:
        return
    row = run.slots[run.heap_slot[0]].head
    if row == NONE:
        return
    event = run.events[row]
    kind = event.kind & (kinds.OPENS_BUCKET - 1)
    if kind in (kinds.NODE_DONE, kinds.SLOWED_DONE):
        _fetch_of_children(run, event.a, event.b)
    elif kind in (kinds.TRANSFER_READY, kinds.LATE_STEP):
        running = run.running[run.visits[event.a].running]
        _fetch_of_children(run, running.actor, running.node)


@works_on_tables
def _fetch_of_children(run: Run, actor_row: int, node: int) -> None:
    """Fetch a node and its first child."""
    actor = run.plan.actors[actor_row]
    plan_node = run.plan.nodes[run.plan.templates[actor.template].node_first + node]
    prefetch(run.nodes, actor.node_first + node)
    if plan_node.children > 0:
        child = run.plan.children[plan_node.children_first]
        prefetch(run.nodes, actor.node_first + child)
        if actor.pace_first != NONE:
            prefetch(run.plan.paces, actor.pace_first + child)


@works_on_tables
def fetch_of_node(run: Run, ahead: int, actor_row: int, node: int) -> None:
    """Fetch the actor of a node, the node with its place in the plan, or its children."""
    actor = run.plan.actors[actor_row]
    if ahead == ACTOR:
        prefetch(run.plan.actors, actor_row)
        prefetch(run.actors, actor_row)
        prefetch(run.lanes, lane_row(run, actor_row, 0))
    elif ahead == NODE:
        prefetch(run.nodes, actor.node_first + node)
        prefetch(run.nodes, actor.node_first)  # the first heap
        prefetch(run.plan.nodes, run.plan.templates[actor.template].node_first + node)
        prefetch(run.plan.actor_channels, actor.channel_first + node)  # about: messages alone have one
    else:
        _fetch_of_child(run, actor_row, node)


@works_on_tables
def _fetch_of_child(run: Run, actor_row: int, node: int) -> None:
    """Fetch the children of a node, the first of them, and its channel if it sends."""
    actor = run.plan.actors[actor_row]
    first = run.plan.templates[actor.template].node_first
    plan_node = run.plan.nodes[first + node]
    prefetch(run.plan.children, plan_node.children_first)
    if len(run.plan.nodes) > SHARED_NODES or plan_node.children == 0:
        return
    child = run.plan.children[plan_node.children_first]
    plan_child = run.plan.nodes[first + child]
    prefetch(run.nodes, actor.node_first + child)
    if plan_child.action == SEND:
        prefetch(run.plan.channels, run.plan.actor_channels[actor.channel_first + plan_child.detail])


@works_on_tables
def _fetch_of_message(run: Run, ahead: int, row: int) -> None:
    """Fetch a message, its channel, the receive that waits there, or the actor and the node of this."""
    if ahead == MESSAGE:
        prefetch(run.messages, row)
        return
    if run.messages[row].kind != kinds.MESSAGE:
        return
    channel_row = run.messages[row].a
    if ahead == ACTOR:
        prefetch(run.channels, channel_row)
        prefetch(run.plan.channels, channel_row)
        return
    event_row = run.channels[channel_row].head
    if ahead == NODE:
        prefetch(run.events, event_row)
    elif event_row != NONE and run.events[event_row].kind == kinds.LATE_RECEIVE:
        fetch_of_node(run, ACTOR, run.events[event_row].a, run.events[event_row].b)
        fetch_of_node(run, NODE, run.events[event_row].a, run.events[event_row].b)
