"""Ready nodes of an actor: one binary heap per lane, lowest node first.

The heaps of all lanes share one column of the nodes; a lane's part is as long as the number of its nodes.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.lanes import can_issue, is_unlimited, lane_row
from et_sim.engine.state.run import LANES_IN_USE, NONE, Run


@works_on_tables
def heap_first(run: Run, actor_row: int, lane: int) -> int:
    """Return where the lane's heap begins."""
    actor = run.plan.actors[actor_row]
    return actor.node_first + run.plan.lane_first[actor.template, lane]


@works_on_tables
def push_ready(run: Run, actor_row: int, node: int) -> None:
    """Add a node that may be issued."""
    actor = run.plan.actors[actor_row]
    lane = run.plan.nodes[run.plan.templates[actor.template].node_first + node].lane
    row = lane_row(run, actor_row, lane)
    state = run.lanes[row]
    if not is_unlimited(run, lane):
        observe.node_ready(run, row, lane, node)
    first = heap_first(run, actor_row, lane)
    at = state.ready
    state.ready += 1
    run.actors[actor_row].ready += 1
    while at > 0:
        above = (at - 1) >> 1
        if run.nodes[first + above].heap < node:
            break
        run.nodes[first + at].heap = run.nodes[first + above].heap
        at = above
    run.nodes[first + at].heap = node


@works_on_tables
def pop_ready(run: Run, actor_row: int, lane: int) -> int:
    """Take the lowest ready node of a lane, which must have one."""
    state = run.lanes[lane_row(run, actor_row, lane)]
    first = heap_first(run, actor_row, lane)
    lowest = run.nodes[first].heap
    state.ready -= 1
    run.actors[actor_row].ready -= 1
    last = state.ready
    node = run.nodes[first + last].heap
    at = 0
    while 2 * at + 1 < last:
        below = 2 * at + 1
        if below + 1 < last and run.nodes[first + below + 1].heap < run.nodes[first + below].heap:
            below += 1
        if node < run.nodes[first + below].heap:
            break
        run.nodes[first + at].heap = run.nodes[first + below].heap
        at = below
    run.nodes[first + at].heap = node
    return lowest


@works_on_tables
def lowest_free_lane(run: Run, actor_row: int) -> int:
    """Return the lane of the lowest node that could be issued now; NONE if there is none."""
    chosen, lowest = NONE, 0
    if run.actors[actor_row].ready == 0:
        return chosen
    for lane in range(run.plan.settings[LANES_IN_USE]):
        if can_issue(run, actor_row, lane):
            node = run.nodes[heap_first(run, actor_row, lane)].heap
            if chosen == NONE or node < lowest:
                chosen, lowest = lane, node
    return chosen
