"""Requests to a memory pool: how they pass its stages, and wait for each other there.

Units of a stage, such as switches, serve transfers in the order in which their first pieces arrive. A unit
has finished a transfer when it has finished all earlier ones, and its bytes at its bandwidth, but not before
it has forwarded the last piece, which it may have to wait for. Stages work at the same time, each on the
pieces that have arrived so far.

Members of a group that make a request together wait for the last of them, and then go on in step: every unit
on the way of any of them passes the bytes once. Where joined ways part again, on the side of the memory, each
unit passes a part of the bytes: the shards that lie behind it.

With the correction PORT_BANDWIDTH, transfers that a unit passes without a break are cut to whole nanoseconds
together; else each transfer is.
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.tables_by_reference import works_on_tables
from et_sim.engine.calendar.clock import schedule_own
from et_sim.engine.nodes.pool_shares import begin_sharing, is_new_unit, part_of, unit_of
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.kinds import NODE_DONE, POOL_STAGE
from et_sim.engine.state.run import NONE, Run, setting_of
from et_sim.machine.corrections import Correction

PORT_BANDWIDTH = setting_of(Correction.PORT_BANDWIDTH)


@works_on_tables
def request_pool(run: Run, actor_row: int, node: int) -> None:
    """Start the request of a node; the last member of a group's request starts it for all."""
    row = run.plan.actors[actor_row].node_first + node
    request = run.requests[row]
    request.actor, request.node, request.hop, request.next = actor_row, node, 0, NONE
    joint_row = joint_of(run, actor_row, node)
    if joint_row != NONE:
        joint = run.joints[joint_row]
        observe.request_joins(run, joint_row, joint.arrived == 0)
        joint.arrived += 1
        request.next = joint.head - 1
        joint.head = row + 1
        if joint.arrived < run.plan.joint_requests[joint_row].members:
            return
    request.last_ns = run.clock[0].now
    observe.request_sets_out(run, row)
    if len(run.pool_state) > 0:
        plan_node = run.plan.nodes[run.plan.templates[run.plan.actors[actor_row].template].node_first + node]
        begin_sharing(run, row, joint_row, plan_node)
    else:
        reach_stage(run, actor_row, node)


@works_on_tables
def joint_of(run: Run, actor_row: int, node: int) -> int:
    """Return the request of a group that a node is a part of; NONE if it is a request of its own."""
    actor = run.plan.actors[actor_row]
    plan_node = run.plan.nodes[run.plan.templates[actor.template].node_first + node]
    if plan_node.member == NONE:
        return NONE
    member = run.plan.actor_members[actor.first_member + plan_node.member]
    return int(run.plan.first_joint[run.plan.members[member].group] + plan_node.occurrence)


@works_on_tables
def reach_stage(run: Run, actor_row: int, node: int) -> None:
    """Handle the first piece at a stage, and compute when all pieces have passed it."""
    actor = run.plan.actors[actor_row]
    plan_node = run.plan.nodes[run.plan.templates[actor.template].node_first + node]
    way = run.plan.memory_ways[plan_node.detail]
    row, joint_row = actor.node_first + node, joint_of(run, actor_row, node)
    request = run.requests[row]
    hop = run.plan.memory_hops[way.hop_first + request.hop]
    pieces = max((plan_node.bytes + way.chunk - 1) // way.chunk, 1)
    if joint_row == NONE:
        first, last = _take_unit(run, row, row, hop, pieces, plan_node.bytes)
    else:
        first, last = _take_units(run, row, joint_row, plan_node, hop, pieces)
    latency = 0 if hop.is_occupied else hop.latency_ns
    request.hop += 1
    request.last_ns = last + latency
    observe.stage_passed(run, row, hop.link, first, last, latency)
    delay = first + latency - run.clock[0].now
    if request.hop < way.hops:
        schedule_own(run, actor_row, delay, POOL_STAGE, actor_row, node, 0)
    else:
        _end_all(run, row)


@works_on_tables
def _take_units(run: Run, row: int, joint_row: int, plan_node: Any, hop: Any, pieces: int) -> tuple[int, int]:
    """Return the times of the first and last piece over all units of a stage for a group's request."""
    number, first, last, so_far = run.requests[row].hop, 0, 0, 0
    units, parts = part_of(run, joint_row, plan_node.detail, number)
    at = row
    while at != NONE:
        if is_new_unit(run, unit_of(run, at, hop), joint_row, number):
            size = _up_to(plan_node.bytes, parts * (so_far + 1), units)
            size -= _up_to(plan_node.bytes, parts * so_far, units)
            own_first, own_last = _take_unit(run, row, at, hop, pieces, size)
            first, last = max(first, own_first), max(last, own_last)
            so_far += 1
        at = run.requests[at].next
    return first, last


@works_on_tables
def _up_to(size: int, part: int, parts: int) -> int:
    """Return the bytes of `part` of `parts` equal parts, in whole bytes."""
    return size // parts * part + size % parts * part // parts


@works_on_tables
def _take_unit(run: Run, row: int, asking: int, hop: Any, pieces: int, size: int) -> tuple[int, int]:
    """Return when the first and the last piece have passed a unit."""
    unit_row, now = unit_of(run, asking, hop), run.clock[0].now
    unit, before = run.units[unit_row], run.requests[row].last_ns
    held = hop.latency_ns if hop.is_occupied else 0
    begin = max(now, unit.free_ns)
    exact = size / hop.bytes_per_ns
    if run.plan.settings[PORT_BANDWIDTH] and begin == unit.free_ns:
        exact += unit.free_rest
    piece_ns, whole_ns = int(size / pieces / hop.bytes_per_ns), int(exact)
    unit.free_ns, unit.free_rest = begin + held + whole_ns, exact - whole_ns
    observe.unit_taken(run, row, unit_row, hop.link, begin, held, piece_ns, whole_ns, size)
    return begin + held + piece_ns, max(unit.free_ns, before + held + piece_ns)


@works_on_tables
def _end_all(run: Run, row: int) -> None:
    """Complete all nodes of a request when its last piece arrives."""
    request, now = run.requests[row], run.clock[0].now
    at = row
    while at != NONE:
        asking = run.requests[at]
        observe.request_ends(run, row, request.last_ns)
        schedule_own(run, asking.actor, request.last_ns - now, NODE_DONE, asking.actor, asking.node, 0)
        at = asking.next
