"""Bytes that ranks send and receive where each member has its own messages, and by receives, with times.

Such phases are trees, custom programs, parts that switches reduce, and exchanges with bytes for each pair.
The run decides which of two trees a chunk takes: the one in which a member has less counts. `network_load`
covers phases in which all members send alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

import numpy as np

from et_sim.basics.unique import groups_of
from et_sim.engine.outcome import Outcome
from et_sim.plan.records import IN_GROUP, NO_AXIS, Action, LoweredPlan


class ByteDirection(IntEnum):
    """Direction of the messages of a member."""

    OUT = 0
    IN = 1


Phases = list[tuple[int, int]]  # rows, with the number of chunks of each


def differs_by_member(program: Any) -> bool:
    """Return whether each member of a phase has its own messages."""
    return bool(program["tree_first"] >= 0 or program["custom_first"] >= 0 or program["own_steps"])


def together(plan: LoweredPlan, actor: Any, node: Any, start: Any, end: Any) -> tuple[Any, Any]:
    """Return the first start and the last end among the members of each node's collective, by the program."""
    is_collective = plan.nodes["action"][node] == Action.COLLECTIVE
    row = np.flatnonzero(is_collective)
    columns = [plan.nodes[name][node[row]] for name in ("detail", "occurrence")]
    group = plan.members["group"][_member(plan, actor[row], node[row])]
    joint = groups_of(group, *columns)
    begin, until = start.copy(), end.copy()
    begin[row], until[row] = -joint.most(-start[row])[joint.of_row], joint.most(end[row])[joint.of_row]
    return begin, until


def _member(plan: LoweredPlan, actor: Any, node: Any) -> Any:
    """Return the rows of members, for nodes that are collectives."""
    return plan.actor_members[plan.actors["first_member"][actor] + plan.nodes["member"][node]]


def by_members(
    plan: LoweredPlan, collectives: Iterable[tuple[int, Phases]], actor: Any, node: Any, way: ByteDirection
) -> dict[int, Any]:
    """Return by dimension (-1: several) the bytes that each node sends, or receives, in such phases."""
    sent_by_dimension: dict[int, Any] = {}
    members: dict[int, Any] = {}
    order = np.argsort(np.where(plan.nodes["action"] == Action.COLLECTIVE, plan.nodes["detail"], -1)[node])
    detail = np.where(plan.nodes["action"] == Action.COLLECTIVE, plan.nodes["detail"], -1)[node[order]]
    for collective, phases in collectives:
        differing = [
            phase for phase in phases if differs_by_member(plan.programs[plan.phases[phase[0]]["program"]])
        ]
        mine: Any = order[slice(*np.searchsorted(detail, [collective, collective + 1]))] if differing else []
        for row, chunks in differing if len(mine) else ():
            number = int(plan.phases[row]["program"])
            program = plan.programs[number]
            if number not in members:
                members[number] = _by_member(plan, program, way)
            member = _member(plan, actor[mine], node[mine])
            place = plan.members["position"][member]
            if not program["own_steps"]:
                place = _along(plan, int(plan.phases[row]["axis"]), member, actor[mine])
            sent = sent_by_dimension.setdefault(int(program["dimension"]), np.zeros(len(node)))
            sent[mine] += chunks * members[number][place]
    return sent_by_dimension


def _along(plan: LoweredPlan, axis: int, member: Any, actor: Any) -> Any:
    """Return the places of members along the axis of a phase."""
    if axis == NO_AXIS:
        return plan.members["position"][member]
    row, place = plan.axes[axis], plan.actors["rank"][actor]
    if row["members_first"] == IN_GROUP:
        place = plan.members["position"][member]
    place = place // row["stride"] % row["members"]
    if row["order_first"] >= 0:
        place = plan.orders[row["order_first"] + row["members"] + place]
    return place


def _by_member(plan: LoweredPlan, program: Any, way: ByteDirection) -> Any:
    """Return the bytes that each member sends, or receives, in one phase of a chunk."""
    members = int(program["members"])
    if program["custom_first"] >= 0:
        action = Action.SEND if way == ByteDirection.OUT else Action.RECEIVE
        sizes = np.where(plan.nodes["action"] == action, plan.nodes["bytes"], 0)
        summed = np.concatenate(([0], np.cumsum(sizes)))
        first = int(program["custom_first"])
        templates = plan.templates[plan.customs["template"][first : first + members]]
        return summed[templates["node_first"] + templates["nodes"]] - summed[templates["node_first"]]
    if program["own_steps"]:
        first, period = int(program["step_first"]), int(program["step_period"])
        steps = plan.steps[first : first + int(program["own_steps"]) * period]
        sizes = steps["bytes" if way == ByteDirection.OUT else "incoming"].reshape(-1, 2, period)
        return sizes.sum(axis=2).min(axis=1) * int(program["sends"]) // period
    first = int(program["tree_first"])
    if program["in_network"]:
        return plan.trees["up_bytes" if way == ByteDirection.OUT else "down_bytes"][first : first + members]
    trees = plan.trees[first : first + members * int(program["trees"])].reshape(-1, members)
    return np.min([_in_tree(tree, program, way) for tree in trees], axis=0)


def _in_tree(tree: Any, program: Any, way: ByteDirection) -> Any:
    """Return the bytes exchanged with parent and children: half of them go up, half down."""
    sent, child = np.zeros(len(tree), np.int64), np.flatnonzero(tree["parent"] >= 0)
    up, down = tree["up_bytes"] * program["goes_up"], tree["down_bytes"] * program["goes_down"]
    to_parent, to_child = (up, down) if way == ByteDirection.OUT else (down, up)
    sent[child] += to_parent[child]
    np.add.at(sent, tree["parent"][child], to_child[child])
    return sent


def received(outcome: Outcome, actor: Any, node: Any) -> tuple[Any, Any, Any]:
    """Return for each completed receive the time of its send, its row of the run, and its bytes.

    A channel delivers messages in order. Where actors stand for several ranks, there may be more sends than
    receives: then all begin with the first.
    """
    plan, state = outcome.plan, outcome.nodes
    is_done = (state["start_ns"] >= 0) & (state["end_ns"] >= 0)
    ends: list[tuple[Any, Any, Any]] = []
    for action in (Action.SEND, Action.RECEIVE):
        row = np.flatnonzero(is_done & (plan.nodes["action"][node] == action))
        first = plan.actors["channel_first"][actor[row]] + plan.nodes["detail"][node[row]]
        channel = plan.actor_channels[first]
        order = np.lexsort((state["start_ns"][row], channel))
        row, channel = row[order], channel[order]
        turn = np.arange(len(row)) - np.searchsorted(channel, channel)
        ends.append((row, channel, turn))
    (sends, of_send, _), (gets, of_get, get_turn) = ends
    if not len(sends) or not len(gets):
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    channels = len(plan.channels)
    alike = np.bincount(of_send, minlength=channels) == np.bincount(of_get, minlength=channels)
    at = np.searchsorted(of_send, of_get) + np.where(alike[of_get], get_turn, 0)
    at = np.minimum(at, len(sends) - 1)
    known = of_send[at] == of_get
    gets, at = gets[known], at[known]
    begin = np.minimum(state["start_ns"][sends[at]], state["start_ns"][gets])
    return begin, gets, plan.nodes["bytes"][node[gets]]
