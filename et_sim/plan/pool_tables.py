"""The stages of a memory pool as tables, and requests to it: their ways, and the groups that make them.

Members of a group that make a request together must all give the same size, tier and direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.basics.unique import unique
from et_sim.basics.units import format_bytes
from et_sim.machine.remote_memory import MemoryPool
from et_sim.memory.registry import per_npu, tiers_of
from et_sim.plan.groups import GroupTable
from et_sim.plan.records import Action, record, table
from et_sim.trace.columns import CollectiveKind, NodeKind, Trace
from et_sim.trace.group_attributes import read_process_groups
from et_sim.trace.stack import Stack

LOADS, STORES = 0, 1
SHARED = -1  # a unit of several NPUs
ALONE = -1  # a request that is not made together with others
COLLECTIVES = {
    NodeKind.MEM_LOAD: CollectiveKind.ALL_GATHER,
    NodeKind.MEM_STORE: CollectiveKind.REDUCE_SCATTER,
}

WAY = record(("hop_first", "i4"), ("hops", "i4"), ("chunk", "i8"))  # to a tier, or from it
HOP = record(  # a stage on a way
    ("link", "i4"),  # link number of the stage for classes of links
    ("unit_first", "i4"),
    ("npus_per_unit", "i4"),
    ("is_occupied", "u1"),  # during the latency
    ("latency_ns", "i8"),
    ("bytes_per_ns", "f8"),  # of one transfer at a time
)
JOINT = record(("members", "i4"))  # a request of a group


class PoolUnits(Struct, frozen=True, eq=False):
    """The units of all stages, for reports."""

    stages: tuple[str, ...]
    stage: Any  # per unit
    names: tuple[str, ...]
    bytes_per_ns: Any  # the higher of both directions
    npu: Any  # that owns the unit; -1: several share it
    are_shared: bool = False  # by all transfers that pass them, each with a fair share


class PoolTables(Struct, frozen=True):
    """The tables of a pool in a plan."""

    ways: Any
    hops: Any
    units: PoolUnits


def pool_tables(pool: MemoryPool | None, ranks: int, switch_classes: int) -> PoolTables:
    """Return the ways in the order of tiers, loads before stores; empty tables without a pool."""
    if pool is None:
        return PoolTables(
            table(WAY, 0),
            table(HOP, 0),
            PoolUnits((), np.zeros(0, np.int32), (), np.zeros(0), np.zeros(0, np.int32)),
        )
    first, units = _units(pool, ranks)
    ways = table(WAY, 2 * len(pool.tiers))
    hops = table(HOP, 2 * sum(len(tier.stages) for tier in pool.tiers))
    at = 0
    for row, way in enumerate(ways):
        stages, stores = pool.tiers[row // 2].stages, row % 2 == STORES
        way.hop_first, way.hops, way.chunk = at, len(stages), pool.chunk_bytes
        for number in stages if stores else stages[::-1]:
            stage, hop = pool.stages[number], hops[at]
            hop.link = -2 - switch_classes - number  # behind the classes of switches that reduce
            hop.unit_first = first[number, int(stores)]
            hop.npus_per_unit = max(ranks // stage.count, 1)
            hop.latency_ns, hop.is_occupied = int(stage.latency_ns), stage.is_occupied
            hop.bytes_per_ns = per_npu(stage, ranks) * stage.bandwidth(stores=stores)
            at += 1
    return PoolTables(ways, hops, units)


def _units(pool: MemoryPool, ranks: int) -> tuple[Any, PoolUnits]:
    """Return where the units of each stage begin, by direction; several units of one NPU are one row."""
    first = np.zeros((len(pool.stages), 2), np.int64)
    names: list[str] = []
    of_stage: list[int] = []
    rates: list[float] = []
    npus: list[int] = []
    for number, stage in enumerate(pool.stages):
        several = per_npu(stage, ranks)
        ways = ((" loads", stage.load_bandwidth), (" stores", stage.store_bandwidth))
        both = (("", max(stage.load_bandwidth, stage.store_bandwidth)),)
        for way, (suffix, rate) in enumerate(ways if stage.is_duplex else both):
            first[number, way:] = len(names)
            for unit in range(min(stage.count, ranks)):
                which = unit if several == 1 else f"{several * unit}-{several * (unit + 1) - 1}"
                names.append(f"{stage.name} {which}{suffix}")
            count = min(stage.count, ranks)
            of_stage += [number] * count
            rates += [rate * several] * count
            npus += range(ranks) if count == ranks else [SHARED] * count
    stages = tuple(stage.name for stage in pool.stages)
    return first, PoolUnits(
        stages,
        np.array(of_stage, np.int32),
        tuple(names),
        np.array(rates),
        np.array(npus, np.int32),
        pool.is_shared,
    )


class JointRequests:
    """Requests that members of groups make together, in the order of their programs."""

    def __init__(self, groups: GroupTable, *, communicates: bool) -> None:
        self._groups, self._communicates = groups, communicates  # if not, each member makes its own request
        self._most: dict[str, int] = {}  # of any member, by canonical name of the group

    @property
    def are_any(self) -> bool:
        """Return whether there are any."""
        return bool(self._most)

    def lower(
        self,
        nodes: Any,
        stack: Stack,
        lowest: Any,
        pool: MemoryPool | None,
        used: list[list[str]],
        places: Sequence[str],
    ) -> None:
        """Set the ways of the requests of templates, and number those of groups.

        `lowest`, `used` and `places` hold, of each template, the lowest rank that runs it, its groups and its
        place.
        """
        templates = unique(stack.of_row[nodes["action"] == Action.MEMORY]).tolist()
        for at in templates:
            rows = stack.rows(at)
            self._lower(nodes[rows], stack.traces[at], int(lowest[at]), pool, used[at], places[at])

    def _lower(
        self, nodes: Any, trace: Trace, rank: int, pool: MemoryPool | None, used: list[str], place: str
    ) -> None:
        rows = np.flatnonzero(nodes["action"] == Action.MEMORY)
        if pool is None:
            _refuse_without_pool(trace, rows, place)
            return
        tiers = tiers_of(pool, trace, rows)
        names = ", ".join(f"{number} ({tier.name})" for number, tier in enumerate(pool.tiers))
        _refuse_first(
            rows[(tiers < 0) | (tiers >= len(pool.tiers))],
            trace,
            place,
            "names a memory_tier that the memory does not have",
            f"known: {names}",
        )
        nodes["detail"][rows] = 2 * tiers + (trace.kind[rows] == NodeKind.MEM_STORE)
        nodes["member"][rows] = ALONE
        if self._communicates:
            self._lower_joint(nodes, trace, rank, rows[trace.has("comm_type", rows)], used, place)

    def _lower_joint(
        self, nodes: Any, trace: Trace, rank: int, rows: Any, used: list[str], place: str
    ) -> None:
        _refuse_other_collectives(trace, rows, place)
        own_groups = read_process_groups(trace) if len(rows) else {}
        counts: dict[str, int] = {}
        for row in rows.tolist():
            where = f"{place}, {trace.describe(row)}"
            group = self._groups.canonical(trace.group_names[trace.group[row]], where, own_groups)
            self._groups.row(group, rank)
            if group not in used:
                used.append(group)
            nodes["member"][row], nodes["occurrence"][row] = used.index(group), counts.get(group, 0)
            counts[group] = counts.get(group, 0) + 1
        for group, count in counts.items():
            self._most[group] = max(self._most.get(group, 0), count)

    def tables(self) -> tuple[Any, Any]:
        """Return the joint requests, and where those of each group begin."""
        counts = np.array([self._most.get(name, 0) for name in self._groups.canonical_names], np.int64)
        sizes = np.array([len(self._groups.members(row)) for row in range(len(self._groups))], np.int64)
        joint = table(JOINT, int(counts.sum()))
        joint["members"] = np.repeat(sizes, counts)
        return joint, (np.cumsum(counts) - counts).astype(np.int32)


def _refuse_without_pool(trace: Trace, rows: Any, place: str) -> None:
    """Refuse attributes that only pools support."""
    for attribute, fault in (
        ("comm_type", "is a request of a group, but this memory has no switches"),
        ("memory_tier", "names a tier, but this memory has none"),
    ):
        remedy = f'take "memory-type": "HIERARCHICAL_POOL", or leave {attribute} out'
        _refuse_first(rows[trace.has(attribute, rows)], trace, place, fault, remedy)


def _refuse_other_collectives(trace: Trace, rows: Any, place: str) -> None:
    """Refuse all but gathered loads and reduced stores."""
    for kind, collective in COLLECTIVES.items():
        wrong = rows[(trace.kind[rows] == kind) & (trace.comm_type[rows] != collective)]
        fault = "has a collective that the memory does not support"
        remedy = (
            f"loads support comm_type {int(CollectiveKind.ALL_GATHER)} (all-gather), stores "
            f"{int(CollectiveKind.REDUCE_SCATTER)} (reduce-scatter)"
        )
        _refuse_first(wrong, trace, place, fault, remedy)


def _refuse_first(rows: Any, trace: Trace, place: str, fault: str, remedy: str) -> None:
    if len(rows):
        raise TraceError(f"{trace.describe(int(rows[0]))} {fault}", place=place, remedy=remedy)


NO_ACTOR = -1


class FirstRequests(Struct, frozen=True, eq=False):
    """The request of the first member, a row for each request of a group."""

    actor: Any
    bytes: Any
    way: Any


def refuse_unequal_requests(plan: Any, tiers: tuple[str, ...]) -> None:
    """Refuse requests of which members give different sizes, tiers or directions."""
    rows = len(plan.joint_requests)
    if not rows:
        return
    requested = FirstRequests(np.full(rows, NO_ACTOR), np.zeros(rows, np.int64), np.zeros(rows, np.int64))
    for actor in range(len(plan.actors)):
        joints, size, way = _requests_of(plan, actor)
        is_first = requested.actor[joints] == NO_ACTOR
        wrong = ~is_first & ((requested.bytes[joints] != size) | (requested.way[joints] != way))
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            _refuse(plan, tiers, requested, int(joints[at]), actor, int(size[at]), int(way[at]))
        new = joints[is_first]
        requested.actor[new], requested.bytes[new], requested.way[new] = actor, size[is_first], way[is_first]


def _requests_of(plan: Any, actor: int) -> tuple[Any, Any, Any]:
    """Return row, bytes and way of all requests that an actor makes with others."""
    template = plan.templates[plan.actors["template"][actor]]
    nodes = plan.nodes[template["node_first"] : template["node_first"] + template["nodes"]]
    nodes = nodes[(nodes["action"] == Action.MEMORY) & (nodes["member"] != ALONE)]
    member = plan.actor_members[plan.actors["first_member"][actor] + nodes["member"]]
    joints = plan.first_joint[plan.members["group"][member]] + nodes["occurrence"]
    return joints, nodes["bytes"], nodes["detail"]


def _refuse(
    plan: Any, tiers: tuple[str, ...], requested: FirstRequests, joint: int, actor: int, size: int, way: int
) -> None:
    group = int(np.searchsorted(plan.first_joint, joint, side="right")) - 1
    number = joint - int(plan.first_joint[group]) + 1
    first = int(requested.actor[joint])
    first_request = _described(tiers, int(requested.bytes[joint]), int(requested.way[joint]))
    other = _described(tiers, size, way)
    ranks = plan.actors["rank"]
    raise TraceError(
        f"request {number} of communicator group {plan.group_names[group] or 'all'} to the memory: rank "
        f"{int(ranks[first])} {first_request}, but rank {int(ranks[actor])} {other}",
        place="workload",
        remedy="give all members the same requests, in the same order of node ids",
    )


def _described(tiers: tuple[str, ...], size: int, way: int) -> str:
    tier = tiers[way // 2]
    verb = f"stores {format_bytes(size)} to" if way % 2 == STORES else f"loads {format_bytes(size)} from"
    return f"{verb} tier {tier}"
