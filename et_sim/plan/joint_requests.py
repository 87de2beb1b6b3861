"""Requests that members of a group make of a memory pool together: all of them must ask for the same.

Not here: which requests these are (`pool_tables`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.errors import TraceError
from et_sim.basics.units import format_bytes
from et_sim.plan.pool_tables import ALONE, STORES
from et_sim.plan.tables import Action

NOBODY = -1


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What the first member that was looked at asks for, a row for each request of a group."""

    actor: Any
    bytes: Any
    way: Any


def refuse_unequal_requests(plan: Any, tiers: tuple[str, ...]) -> None:
    """Refuse requests of which members give different sizes, tiers or directions."""
    rows = len(plan.joint_requests)
    if not rows:
        return
    asked = Asked(np.full(rows, NOBODY), np.zeros(rows, np.int64), np.zeros(rows, np.int64))
    for actor in range(len(plan.actors)):
        joints, size, way = _requests_of(plan, actor)
        is_first = asked.actor[joints] == NOBODY
        wrong = ~is_first & ((asked.bytes[joints] != size) | (asked.way[joints] != way))
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            _refuse(plan, tiers, asked, int(joints[at]), actor, int(size[at]), int(way[at]))
        new = joints[is_first]
        asked.actor[new], asked.bytes[new], asked.way[new] = actor, size[is_first], way[is_first]


def _requests_of(plan: Any, actor: int) -> tuple[Any, Any, Any]:
    """(row, bytes, way) of all requests that an actor makes with others."""
    template = plan.templates[plan.actors["template"][actor]]
    nodes = plan.nodes[template["node_first"] : template["node_first"] + template["nodes"]]
    nodes = nodes[(nodes["action"] == Action.MEMORY) & (nodes["member"] != ALONE)]
    member = plan.actor_members[plan.actors["first_member"][actor] + nodes["member"]]
    joints = plan.first_joint[plan.members["group"][member]] + nodes["occurrence"]
    return joints, nodes["bytes"], nodes["detail"]


def _refuse(
    plan: Any, tiers: tuple[str, ...], asked: Asked, joint: int, actor: int, size: int, way: int
) -> None:
    group = int(np.searchsorted(plan.first_joint, joint, side="right")) - 1
    number = joint - int(plan.first_joint[group]) + 1
    first = int(asked.actor[joint])
    one = _described(tiers, int(asked.bytes[joint]), int(asked.way[joint]))
    other = _described(tiers, size, way)
    ranks = plan.actors["rank"]
    raise TraceError(
        f"request {number} of communicator group {plan.group_names[group] or 'all'} to the memory: rank "
        f"{int(ranks[first])} {one}, and rank {int(ranks[actor])} {other}",
        place="workload",
        remedy="have all members ask for the same, in the same order of node ids",
    )


def _described(tiers: tuple[str, ...], size: int, way: int) -> str:
    tier = tiers[way // 2]
    verb = f"stores {format_bytes(size)} to" if way % 2 == STORES else f"loads {format_bytes(size)} from"
    return f"{verb} tier {tier}"
