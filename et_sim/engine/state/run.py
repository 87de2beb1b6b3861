"""The state of a run: everything that changes while simulated time passes, in tables of `records`.

Pools (events, slots, unexpected messages, chunks) hand out rows from a free list and grow between
events when little is left (`pools`); rows never move, so a row number is a stable name.
Not here: what changes the state (the sibling modules), and the plan, which never changes.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.containers import LARGEST_POOL
from et_sim.engine.containers import NONE as NONE
from et_sim.engine.state.cause_tables import Causes, new_causes
from et_sim.engine.state.records import (
    ACTOR_STATE,
    BRANCH_STATE,
    BUCKET,
    BUS_FIFO,
    BUS_FIFOS,
    BUS_REQUEST,
    BUS_SIDE,
    BUS_SIDES,
    CHUNK,
    CLOCK,
    CURSOR,
    EVENT,
    JOIN,
    JOINT_STATE,
    LANE_STATE,
    MEMBER_STATE,
    MESSAGE_FIELDS,
    MOMENT,
    NODE_MARK,
    NODE_STATE,
    PHASE_LOG,
    POOL_STATE,
    QUEUE,
    REQUEST,
    RUNNING,
    SERVER,
    SLOT,
    SLOWED_ACTOR,
    SLOWED_NODE,
    SWITCH_STATE,
    TURN,
    UNEXPECTED,
    UNIT,
    USE,
    WAITING_FIFO,
)
from et_sim.engine.state.traffic_tables import Traffic
from et_sim.machine.corrections import Correction
from et_sim.plan.tables import Plan, record, table

FEWEST_TURNS = 1 << 12
PHASES_KEPT = 1 << 16
BLOCK_SIZES = 32  # chunks come in blocks of a power of two


@dataclass(frozen=True, slots=True)
class PlanTables(Tables):
    """The plan's tables that compiled code reads."""

    actor_of_rank: Any
    templates: Any
    lane_first: Any
    lane_limits: Any
    slowing: Any
    slowdowns: Any
    nodes: Any
    children: Any
    actors: Any
    actor_channels: Any
    channels: Any
    collectives: Any
    chunk_plans: Any
    phases: Any
    programs: Any
    steps: Any
    trees: Any
    customs: Any
    switches: Any
    branches: Any
    own_branches: Any
    transfers: Any
    bus: Any
    axes: Any
    orders: Any
    groups: Any
    group_ranks: Any
    group_members: Any
    members: Any
    actor_members: Any
    memory_ways: Any
    memory_hops: Any
    joint_requests: Any
    first_joint: Any
    # by QUEUES_PER_DIM, QUEUE_ROWS, …
    settings: Any


@dataclass(frozen=True, slots=True)
class Run(Tables):
    """One run: plan, network and state. Compiled functions take it as their first argument."""

    plan: PlanTables
    network: Any  # the network model's own tables
    clock: Any
    slots: Any
    slot_index: Any
    heap_time: Any
    heap_slot: Any
    buckets: Any
    bucket_index: Any
    events: Any
    # Tuples that are empty or not: compiling sees their lengths, so the engine has three forms.
    watch: Any  # empty unless ties may matter (`ties`): in runs that are folded or recorded
    recording: Any  # empty unless causes, messages or links are recorded
    stamps: Any  # per event; only where actors stand for several ranks
    node_marks: Any  # per node; likewise
    turns: Any  # who was last among the things of an origin; likewise
    unexpected: Any
    unexpected_index: Any
    nodes: Any
    slowed_nodes: Any  # per node, if the plan slows any
    slowed_actors: Any
    ready: Any
    lanes: Any
    actors: Any
    members: Any
    running: Any
    chunks: Any
    chunk_index: Any
    chunk_queue: Any
    free_blocks: Any
    queues: Any
    cursors: Any
    channels: Any
    handshakes: Any
    phase_log: Any  # a buffer that is emptied between events; empty if phases are not logged
    issuers: Any  # per collective of a program, if all ranks start it together: how many have issued it
    custom_waiting: Any  # per chunk and node of its custom program: parents not yet completed
    servers: Any
    requests: Any  # per node, on machines with a memory pool
    units: Any
    joints: Any
    pool_state: Any  # one row if units are shared fairly, else none: this and the next two
    pool_flows: Any  # requests under way
    unit_uses: Any  # per request and stage
    messages: Any  # under way, if the network model keeps them
    bus_sides: Any
    bus_fifos: Any
    bus_requests: Any
    joins: Any  # chunks of which a switch that reduces has a part
    switches: Any
    branches: Any
    causes: Causes
    traffic: Traffic


(
    QUEUES_PER_DIM,
    QUEUE_ROWS,
    QUEUE_ORDER,
    RUNNING_LIMIT,
    STREAM_POLICY,
    LATEST,
    RENDEZVOUS,
    LANES_IN_USE,
    PAIRS_EARLY,  # this and the next three: `Version1Rules`
    STARTS_TOGETHER,
    ARRIVALS_BY_SENDER,
    TOP_PRIORITY,
    FIRST_CORRECTION,
) = range(13)


def setting_of(correction: Correction) -> int:
    """Where among the settings a correction is switched: 1 if it applies, else 0."""
    return FIRST_CORRECTION + list(Correction).index(correction)


def new_run(
    plan: Plan,
    network: Tables,
    traffic: Traffic,
    message: Any,
    *,
    resources: int,
    units: int = 0,
    causal_events_per_event: int = 0,
    phases_per_event: int = 0,
) -> Run:
    """A run that has not begun. `message` is the record of a message under way, if the network model keeps
    these. `resources` says how many the network and a memory pool have; the last `units` are the pool's.

    With `causal_events_per_event`, the run records what causes what (`causes`). With `phases_per_event`, it
    logs what became of every chunk in every phase; `traffic` says whether it records messages and links.
    """
    actors = len(plan.actors)
    lanes = table(LANE_STATE, actors * len(plan.lane_limits))
    lanes["last"] = NONE
    for moment in ("issued", "readied", "freed"):
        lanes[moment]["ns"] = NONE
    members, queues, cursors = _members_and_queues(plan)
    state = table(ACTOR_STATE, actors)
    state["finish_ns"] = state["deferred"] = state["group_ns"] = state["passed"]["ns"] = NONE
    channels = table(WAITING_FIFO, len(plan.channels))
    channels["head"] = channels["tail"] = channels["joined"]["ns"] = channels["mark"]["ns"] = NONE
    handshakes = table(WAITING_FIFO, plan.handshakes)
    branches = table(BRANCH_STATE, len(plan.branches))
    branches["head"] = branches["tail"] = branches["joined"]["ns"] = branches["mark"]["ns"] = NONE
    handshakes["head"] = handshakes["tail"] = handshakes["joined"]["ns"] = handshakes["mark"]["ns"] = NONE
    servers = table(SERVER, plan.memory_servers)
    servers["head"] = servers["tail"] = NONE
    clock = table(CLOCK, 1)
    clock["slot"] = clock["bucket"] = clock["head"] = clock["tail"] = NONE
    for pool in (name for name in CLOCK.names or () if name.startswith("free_")):
        clock[pool]["head"] = NONE
    unused = {"free_bus_requests": not len(plan.bus), "free_joins": not len(plan.switches)}
    unused["free_messages"] = message is None
    for pool in (name for name, is_unused in unused.items() if is_unused):
        clock[pool]["rows"] = LARGEST_POOL  # so that it never grows
    node_states = _node_states(plan)
    issuers = np.zeros(plan.most_collectives if plan.version_1.starts_together else 0, np.int32)
    requests = table(REQUEST, len(node_states) if len(plan.memory_hops) else 0)
    joints = table(JOINT_STATE, len(plan.joint_requests))
    pool_units = table(UNIT, len(plan.pool_units.stage))
    pool_units["resource"] = resources - units + np.arange(len(pool_units))
    pool_state = table(POOL_STATE, 1 if plan.pool_units.are_shared else 0)
    sharing = len(requests) if len(pool_state) else 0
    most_hops = int(plan.memory_ways["hops"].max(initial=0))
    pool_state["most_hops"] = most_hops
    sizes = {
        "nodes": len(node_states),
        "requests": len(requests),
        "units": len(pool_units),
        "joints": len(joints),
        "issuers": len(issuers),
        "lanes": len(lanes),
        "queues": len(queues),
        "channels": len(channels),
        "handshakes": len(handshakes),
        "links": resources,
        "servers": len(servers),
        "branches": len(branches),
        "switches": plan.switch_servers if len(plan.switches) else 0,
        "bus_sides": len(plan.bus) * actors * BUS_SIDES,
    }
    is_recorded = bool(causal_events_per_event) or bool(traffic.on[0])
    return Run(
        plan=_plan_tables(plan),
        network=network,
        clock=clock,
        slots=table(SLOT, 0),
        slot_index=np.full(1, NONE, np.int32),
        heap_time=np.empty(0, np.int64),
        heap_slot=np.empty(0, np.int32),
        buckets=table(BUCKET, 0),
        bucket_index=np.full(1, NONE, np.int32),
        events=table(EVENT, 0),
        watch=(1,) if plan.is_folded or is_recorded else (),
        recording=(1,) if is_recorded else (),
        stamps=table(MOMENT, 0),
        turns=table(TURN, _turns(plan) if plan.is_folded else 0),
        node_marks=table(NODE_MARK, len(node_states) if plan.is_folded else 0),
        unexpected=table(UNEXPECTED, 0),
        unexpected_index=np.full(1, NONE, np.int32),
        nodes=node_states,
        slowed_nodes=table(SLOWED_NODE, len(node_states) if len(plan.slowing) else 0),
        slowed_actors=_slowed_actors(actors if len(plan.slowing) else 0),
        ready=np.empty(len(node_states), np.int32),
        lanes=lanes,
        actors=state,
        members=members,
        running=table(RUNNING, 0),
        chunks=table(CHUNK, 0),
        chunk_index=np.full(1, NONE, np.int32),
        chunk_queue=np.empty((0, max(int(plan.collectives["phases"].max(initial=1)), 1)), np.int16),
        free_blocks=np.full(BLOCK_SIZES, NONE, np.int32),
        queues=queues,
        cursors=cursors,
        channels=channels,
        handshakes=handshakes,
        phase_log=table(PHASE_LOG, phases_per_event and max(PHASES_KEPT, 2 * phases_per_event)),
        issuers=issuers,
        custom_waiting=np.zeros((0, plan.largest_custom), np.int32),
        servers=servers,
        requests=requests,
        units=pool_units,
        joints=joints,
        pool_state=pool_state,
        pool_flows=np.zeros(sharing, np.int32),
        unit_uses=table(USE, sharing * most_hops),
        messages=table(record(*MESSAGE_FIELDS) if message is None else message, 0),
        bus_sides=table(BUS_SIDE, len(plan.bus) * actors * BUS_SIDES),
        causes=new_causes(plan, causal_events_per_event, sizes),
        bus_fifos=_bus_fifos(len(plan.bus) * actors),
        bus_requests=table(BUS_REQUEST, 0),
        joins=table(JOIN, 0),
        switches=_switches(plan),
        branches=branches,
        traffic=traffic,
    )


def _turns(plan: Plan) -> int:
    """A power of two with room for messages of all members of a group at a time."""
    return 1 << max(2 * int(plan.programs["members"].max(initial=0)), FEWEST_TURNS).bit_length() - 1


def _members_and_queues(plan: Plan) -> tuple[Any, Any, Any]:
    """(members, queues, cursors): those of the member's actor, or its own if groups run side by side."""
    members = table(MEMBER_STATE, len(plan.members))
    if Correction.CONCURRENT_COMMUNICATION in plan.corrections:
        sets = plan.groups["queue_sets"][plan.members["group"]].astype(np.int64)
        first = np.cumsum(sets) - sets
    else:
        first = plan.members["actor"].astype(np.int64) * plan.queue_sets
    count = int(first.max(initial=0)) + plan.queue_sets
    queues = table(QUEUE, count * plan.queue_rows)
    queues["head"] = queues["tail"] = queues["waiting"] = NONE
    queues["joined"]["ns"] = queues["started"]["ns"] = NONE
    cursors = table(CURSOR, count)
    cursors["last"] = plan.queue_rows // 2
    members["cursor_first"], members["queue_first"] = first, first * plan.queue_rows
    return members, queues, cursors


def _switches(plan: Plan) -> Any:
    switches = table(SWITCH_STATE, max(len(plan.switches), plan.switch_servers * bool(len(plan.switches))))
    switches["head"] = NONE
    return switches


def _slowed_actors(actors: int) -> Any:
    slowed = table(SLOWED_ACTOR, actors)
    slowed["head"] = slowed["mark"]["ns"] = NONE
    return slowed


def _bus_fifos(actors: int) -> Any:
    fifos = table(BUS_FIFO, actors * BUS_SIDES * BUS_FIFOS)
    fifos["head"] = fifos["tail"] = NONE
    return fifos


def _node_states(plan: Plan) -> Any:
    last = plan.actors[-1]
    count = int(last.node_first) + int(plan.templates[last.template].nodes)
    return np.empty(count, NODE_STATE).view(np.recarray)


def _plan_tables(plan: Plan) -> PlanTables:
    shared = {name: getattr(plan, name) for name in PlanTables.__slots__ if name != "settings"}
    if len(plan.switches):  # a message to a switch goes to nobody
        nobody = np.full(plan.switch_endpoints, NONE, plan.actor_of_rank.dtype)
        shared["actor_of_rank"] = np.concatenate((plan.actor_of_rank, nobody))
    settings = np.array(
        [
            plan.queues_per_dim,
            plan.queue_rows,
            plan.queue_order,
            plan.running_limit,
            plan.stream_policy,
            plan.latest,
            plan.rendezvous,
            plan.lanes,
            *astuple(plan.version_1),
            *(correction in plan.corrections for correction in Correction),
        ],
        np.int64,
    )
    return PlanTables(**shared, settings=settings)
