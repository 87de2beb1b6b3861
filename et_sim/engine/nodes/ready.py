"""Ready nodes of an actor: one binary heap per lane, lowest node first.

The heaps of all lanes share one array; a lane's part is as long as the number of its nodes.
"""

from __future__ import annotations

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.run import LANES_IN_USE, NONE, Run
from et_sim.plan.tables import LANES, UNLIMITED_LANES

RECEIVE_LANE, COLLECTIVE_LANE, FREE_CPU_LANE, FREE_COMPUTE_LANE = (int(lane) for lane in UNLIMITED_LANES)


@works_on_tables
def is_unlimited(lane: int) -> bool:
    """Whether any number of nodes may be in the lane at a time."""
    return lane in (RECEIVE_LANE, COLLECTIVE_LANE, FREE_CPU_LANE, FREE_COMPUTE_LANE)


@works_on_tables
def heap_first(run: Run, actor_row: int, lane: int) -> int:
    """Where the lane's heap begins."""
    actor = run.plan.actors[actor_row]
    return actor.node_first + run.plan.templates[actor.template].lane_first[lane]


@works_on_tables
def push_ready(run: Run, actor_row: int, node: int) -> None:
    """A node may be issued from now on."""
    actor = run.plan.actors[actor_row]
    lane = run.plan.nodes[run.plan.templates[actor.template].node_first + node].lane
    state = run.lanes[actor_row * LANES + lane]
    if not is_unlimited(lane):
        observe.node_ready(run, actor_row * LANES + lane, node)
    first = heap_first(run, actor_row, lane)
    at = state.ready
    state.ready += 1
    while at > 0:
        above = (at - 1) >> 1
        if run.ready[first + above] < node:
            break
        run.ready[first + at] = run.ready[first + above]
        at = above
    run.ready[first + at] = node


@works_on_tables
def pop_ready(run: Run, actor_row: int, lane: int) -> int:
    """Take the lowest ready node of a lane, which must have one."""
    state = run.lanes[actor_row * LANES + lane]
    first = heap_first(run, actor_row, lane)
    lowest = run.ready[first]
    state.ready -= 1
    last = state.ready
    node = run.ready[first + last]
    at = 0
    while 2 * at + 1 < last:
        below = 2 * at + 1
        if below + 1 < last and run.ready[first + below + 1] < run.ready[first + below]:
            below += 1
        if node < run.ready[first + below]:
            break
        run.ready[first + at] = run.ready[first + below]
        at = below
    run.ready[first + at] = node
    return lowest


@works_on_tables
def lowest_free_lane(run: Run, actor_row: int) -> int:
    """The lane of the lowest node that could be issued now; NONE if there is none."""
    chosen, lowest = NONE, 0
    for lane in range(run.plan.settings[LANES_IN_USE]):
        state = run.lanes[actor_row * LANES + lane]
        if state.ready > 0 and not state.busy:
            node = run.ready[heap_first(run, actor_row, lane)]
            if chosen == NONE or node < lowest:
                chosen, lowest = lane, node
    return chosen
