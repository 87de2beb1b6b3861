"""The state of a run: everything that changes while simulated time passes, in tables of `records`.

Pools (events, slots, unexpected messages, chunks) hand out rows from a free list and grow between events when
little is left (`pools`); rows never move, so a row number is a stable name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from et_sim.basics.unique import equal_rows, unique
from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.containers import LARGEST_POOL
from et_sim.engine.containers import NONE as NONE
from et_sim.engine.state.cause_tables import Causes, new_causes
from et_sim.engine.state.records import (
    ACTOR_MARKS,
    ACTOR_STATE,
    BRANCH_STATE,
    BUCKET,
    BUS_FIFO,
    BUS_FIFOS,
    BUS_REQUEST,
    BUS_SIDE,
    BUS_SIDES,
    CHUNK,
    CHUNK_MARKS,
    CHUNK_TIMES,
    CLOCK,
    CURSOR,
    EVENT,
    JOIN,
    JOINT_STATE,
    LANE_MARKS,
    LANE_STATE,
    MARK,
    MEMBER_STATE,
    MESSAGE_FIELDS,
    MOMENT,
    NODE_MARK,
    NODE_STATE,
    PHASE_LOG,
    POOL_STATE,
    QUEUE,
    QUEUE_MARKS,
    REPEATS,
    REQUEST,
    RUNNING,
    RUNNING_MARKS,
    RUNNING_TURNS,
    SERVER,
    SLOT,
    SLOWED_ACTOR,
    SLOWED_NODE,
    STAMP,
    SWITCH_STATE,
    TURN,
    UNEXPECTED,
    UNIT,
    USE,
    VISIT,
    WAITING_FIFO,
)
from et_sim.engine.state.traffic_tables import Traffic
from et_sim.machine.corrections import Correction
from et_sim.plan.records import FIRST_FACTOR, LoweredPlan, most_of_a_template, record, table

NEVER = 1 << 62
NOT_SEEN, SEEN, NO_MORE_LOOKS = range(3)  # of queues that wait for each other: `blocked` of the clock
FEWEST_TURNS = 1 << 12
FEWEST_ENTRIES, ENTRIES_PER_ACTOR = 1 << 14, 1 << 8  # of a picture
PHASES_KEPT = 1 << 16
BLOCK_SIZES = 32  # chunks come in blocks of a power of two


class PlanTables(Tables, Struct, frozen=True):
    """The plan's tables that compiled code reads."""

    actor_of_rank: Any
    templates: Any
    lane_first: Any
    lane_limits: Any
    slowing: Any
    slowdowns: Any
    nodes: Any
    paces: Any
    spans: Any
    span_first: Any
    is_kernel: Any
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


class Run(Tables, Struct, frozen=True, weakref=True):
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
    # Empty unless causes, messages or links are recorded: a tuple, whose length the compiler sees, or an
    # array.
    recording: Any
    stamps: Any  # per event; only where actors represent several ranks
    # Per event, when it was put on the calendar, and per actor; only where messages are evaluated at once.
    order_stamps: Any
    order_marks: Any  # a tuple where the network model evaluates none
    node_marks: Any  # per node; likewise
    repeats: Any  # one row: the search for periods
    picture: Any  # state that determines the next events; empty without a search
    alike_steps: Any  # per row of the plan: the number of equal rows of a program, from it on
    alike_transfers: Any
    turns: Any  # the last event of an origin; likewise
    unexpected: Any
    unexpected_index: Any
    nodes: Any
    slowed_nodes: Any  # under way, if the plan slows any: the most rows per actor
    slowed_actors: Any
    lanes: Any
    lane_marks: Any  # where actors represent several ranks: this and the other marks
    actors: Any
    actor_marks: Any
    members: Any
    running: Any
    running_marks: Any
    running_turns: Any  # during a search for periods
    chunks: Any
    visits: Any  # per chunk
    chunks_ended: Any  # per chunk of the first actor: actors that have ended it, where phases end together
    chunk_marks: Any
    sent_before: Any  # per chunk, during a search for periods: its steps on the last picture
    chunk_times: Any  # per chunk, where phases are logged
    chunk_index: Any
    chunk_queue: Any  # per chunk and phase; no columns if there is only one queue and tree
    free_blocks: Any
    queues: Any
    queue_marks: Any
    cursors: Any
    channels: Any
    handshakes: Any
    phase_log: Any  # a buffer that is emptied between events; empty if phases are not logged
    issuers: Any  # per collective of a program: ranks that have issued it, if all start it together
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
    joins: Any  # chunks of which a reducing switch has a part
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
    """Return the place of a correction among the settings: 1 if it applies, else 0."""
    return FIRST_CORRECTION + list(Correction).index(correction)


def new_run(
    plan: LoweredPlan,
    network: Tables,
    traffic: Traffic,
    message: Any,
    *,
    resources: int,
    units: int = 0,
    causal_events_per_event: int = 0,
    phases_per_event: int = 0,
    order_marks: Any = (),
    in_one_form: bool = False,
) -> Run:
    """Return a run that has not begun.

    `message` is the record of a message under way, if the network model keeps these. `resources` is the
    number of those of the network and a memory pool; the last `units` are the pool's.

    With `causal_events_per_event`, the run records causes (`causes`). With `phases_per_event`, it logs every
    phase of every chunk; `traffic` sets whether it records messages and links. With `in_one_form`, machine
    code is the same with and without recording.
    """
    actors, buses = len(plan.actors), len(plan.bus) * len(plan.actors)
    members, queues, cursors = _members_and_queues(plan)
    nodes = _node_states(plan)
    requests = table(REQUEST, len(nodes) if len(plan.memory_hops) else 0)
    pool_units = table(UNIT, len(plan.pool_units.stage))
    pool_units["resource"] = resources - units + np.arange(len(pool_units))
    pool_state = table(POOL_STATE, 1 if plan.pool_units.are_shared else 0)
    sharing = len(requests) if len(pool_state) else 0
    most_hops = int(plan.memory_ways["hops"].max(initial=0))
    pool_state["most_hops"] = most_hops
    is_recorded = bool(causal_events_per_event) or bool(traffic.on[0])
    is_watched = plan.is_folded or is_recorded
    lanes = len(plan.lane_limits) if is_watched else plan.lanes  # observers use the lane of collectives
    has_other_steps = plan.version_1.pairs_early or plan.version_1.starts_together or plan.rendezvous
    is_searched = not (is_watched or has_other_steps or len(plan.bus) or len(order_marks))
    switches = max(len(plan.switches), plan.switch_servers) if len(plan.switches) else 0
    made: dict[str, Any] = {
        "clock": _clock(plan, message),
        "slots": _idle(SLOT, 1, "time"),  # of no time
        "slot_index": np.full(1, NONE, np.int32),
        "heap_time": np.empty(0, np.int64),
        "heap_slot": np.empty(0, np.int32),
        "buckets": table(BUCKET, 0),
        "bucket_index": np.full(1, NONE, np.int32),
        "events": table(EVENT, 0),
        "recording": np.zeros(int(is_recorded), np.int8) if in_one_form else (1,) * is_recorded,
        "stamps": table(STAMP, 0),
        "order_stamps": np.zeros(0, np.int64),
        "order_marks": order_marks,
        **_repeats(plan, is_searched=is_searched),
        "turns": table(TURN, _turns(plan) if plan.is_folded else 0),
        "node_marks": table(NODE_MARK, len(nodes) if plan.is_folded else 0),
        "unexpected": table(UNEXPECTED, 0),
        "unexpected_index": np.full(1, NONE, np.int32),
        "nodes": nodes,
        **_slowed(plan),
        "lanes": _idle(LANE_STATE, actors * lanes, "last"),
        "lane_marks": _idle(LANE_MARKS, actors * lanes * plan.is_folded),
        "actors": _idle(ACTOR_STATE, actors, "finish_ns", "deferred", "freed_ns"),
        "actor_marks": _idle(ACTOR_MARKS, actors * plan.is_folded, "group_ns"),
        "members": members,
        "running": table(RUNNING, 0),
        "running_marks": table(RUNNING_MARKS, 0),
        "running_turns": table(RUNNING_TURNS, 0),
        "chunks": table(CHUNK, 0),
        "visits": table(VISIT, 0),
        "chunks_ended": np.zeros(0, np.int32),
        "chunk_marks": table(CHUNK_MARKS, 0),
        "sent_before": np.zeros(0, np.int32),
        "chunk_times": table(CHUNK_TIMES, 0),
        "chunk_index": np.full(1, NONE, np.int32),
        "chunk_queue": np.empty((0, _phases_with_a_choice(plan)), np.int16),
        "free_blocks": np.full(BLOCK_SIZES, NONE, np.int32),
        "queues": queues,
        "queue_marks": _idle(QUEUE_MARKS, len(queues) * plan.is_folded),
        "cursors": cursors,
        "channels": _idle(WAITING_FIFO, len(plan.channels), "head", "tail"),
        "handshakes": _idle(WAITING_FIFO, plan.handshakes, "head", "tail"),
        "phase_log": table(PHASE_LOG, phases_per_event and max(PHASES_KEPT, 2 * phases_per_event)),
        "issuers": np.zeros(plan.most_collectives if plan.version_1.starts_together else 0, np.int32),
        "custom_waiting": np.zeros((0, plan.largest_custom), np.int32),
        "servers": _idle(SERVER, plan.memory_servers, "head", "tail"),
        "requests": requests,
        "units": pool_units,
        "joints": table(JOINT_STATE, len(plan.joint_requests)),
        "pool_state": pool_state,
        "pool_flows": np.zeros(sharing, np.int32),
        "unit_uses": table(USE, sharing * most_hops),
        "messages": table(record(*MESSAGE_FIELDS) if message is None else message, 0),
        "bus_sides": table(BUS_SIDE, buses * BUS_SIDES),
        "bus_fifos": _idle(BUS_FIFO, buses * BUS_SIDES * BUS_FIFOS, "head", "tail"),
        "bus_requests": table(BUS_REQUEST, 0),
        "joins": table(JOIN, 0),
        "switches": _idle(SWITCH_STATE, switches, "head"),
        "branches": _idle(BRANCH_STATE, len(plan.branches), "head", "tail"),
    }
    servers = plan.switch_servers if len(plan.switches) else 0
    sizes = {name: len(rows) for name, rows in made.items()} | {"links": resources, "switches": servers}
    causes = new_causes(plan, causal_events_per_event, sizes)
    return Run(plan=_plan_tables(plan, lanes), network=network, causes=causes, traffic=traffic, **made)


def _idle(dtype: np.dtype[Any], rows: int, *fields: str) -> Any:
    """Return empty rows; the given fields, and times of moments, are NONE."""
    made = table(dtype, rows)
    for field in fields:
        made[field] = NONE
    for name in dtype.names or ():
        if dtype[name] in (MOMENT, MARK):
            made[name]["ns"] = NONE
    return made


def _slowed(plan: LoweredPlan) -> dict[str, Any]:
    """Return the tables of nodes that take longer beside communication; all rows of an actor are free."""
    at_once, count = most_slowed(plan), len(plan.actors) if len(plan.slowing) else 0
    actors, nodes = _idle(SLOWED_ACTOR, count, "head"), table(SLOWED_NODE, count * at_once)
    actors["free"] = np.arange(count) * at_once
    nodes["after"] = np.arange(1, len(nodes) + 1)
    nodes["after"][at_once - 1 :: max(at_once, 1)] = NONE
    return {"slowed_nodes": nodes, "slowed_actors": actors}


def most_slowed(plan: LoweredPlan) -> int:
    """Return the most nodes of an actor that may take longer beside communication at a time."""
    if not len(plan.slowing):
        return 0
    slowed = plan.slowing >= FIRST_FACTOR
    places = int(plan.lane_limits[unique(plan.nodes["lane"][slowed])].sum(dtype=np.int64))
    return min(places, most_of_a_template(plan, slowed))


def _repeats(plan: LoweredPlan, *, is_searched: bool) -> dict[str, Any]:
    """Return the tables for the search for periods."""
    repeats = table(REPEATS, 1)
    repeats["is_on"], repeats["due"] = is_searched, 0 if is_searched else NEVER
    return {
        "repeats": repeats,
        "picture": np.zeros(is_searched * (FEWEST_ENTRIES + ENTRIES_PER_ACTOR * len(plan.actors)), np.int64),
        "alike_steps": _alike(plan.steps, plan.programs["step_first"], is_used=is_searched),
        "alike_transfers": alike_transfers(plan, is_used=is_searched),
    }


def alike_transfers(plan: LoweredPlan, *, is_used: bool) -> Any:
    """Return the number of equal transfers of a program, from each on; any numbers if none is used."""
    return _alike(plan.transfers, plan.programs["transfer_first"], is_used=is_used)


def _alike(rows: Any, firsts: Any, *, is_used: bool) -> Any:
    """Return the number of equal rows, from each row on, in its part of a table; parts begin at `firsts`."""
    if not is_used:
        return np.zeros(len(rows), np.int64)
    is_last = np.ones(len(rows), bool)
    is_last[:-1] = ~equal_rows(rows[1:], rows[:-1])
    is_last[firsts[firsts > 0] - 1] = True
    ends, at = np.flatnonzero(is_last), np.arange(len(rows))
    return ends[np.searchsorted(ends, at)] - at + 1


def _clock(plan: LoweredPlan, message: Any) -> Any:
    """Return the clock before the first event; all pools are empty, and unused ones never grow."""
    clock = _idle(CLOCK, 1, "slot", "bucket", "head", "tail")
    clock["slot_places"] = clock["bucket_places"] = 1
    for pool in (name for name in CLOCK.names or () if name.startswith("free_")):
        clock[pool]["head"] = NONE
    unused = {"free_bus_requests": not len(plan.bus), "free_joins": not len(plan.switches)}
    unused["free_messages"] = message is None
    for pool in (name for name, is_unused in unused.items() if is_unused):
        clock[pool]["rows"] = LARGEST_POOL
    return clock


def _turns(plan: LoweredPlan) -> int:
    """Return a power of two that holds messages of all members of a group at a time."""
    return 1 << max(2 * int(plan.programs["members"].max(initial=0)), FEWEST_TURNS).bit_length() - 1


def _members_and_queues(plan: LoweredPlan) -> tuple[Any, Any, Any]:
    """Return members, queues and cursors; groups that run side by side have queues of their own."""
    members = table(MEMBER_STATE, len(plan.members))
    if Correction.CONCURRENT_COMMUNICATION in plan.corrections:
        sets = plan.groups["queue_sets"][plan.members["group"]].astype(np.int64)
        first = np.cumsum(sets) - sets
    else:
        first = plan.members["actor"].astype(np.int64) * plan.queue_sets
    count = int(first.max(initial=0)) + plan.queue_sets
    queues = _idle(QUEUE, count * plan.queue_rows, "head", "tail", "waiting")
    cursors = table(CURSOR, count)
    cursors["last"] = plan.queue_rows // 2
    members["cursor_first"] = first
    return members, queues, cursors


def _node_states(plan: LoweredPlan) -> Any:
    last = plan.actors[-1]
    count = int(last.node_first) + int(plan.templates[last.template].nodes)
    return np.empty(count, NODE_STATE).view(np.recarray)


def _phases_with_a_choice(plan: LoweredPlan) -> int:
    """Return the number of phases of a chunk, if there are several queues or trees to choose from."""
    if plan.queue_rows == 1 and plan.programs["trees"].max(initial=0) <= 1:
        return 0
    return int(plan.collectives["phases"].max(initial=1))


def _plan_tables(plan: LoweredPlan, lanes: int) -> PlanTables:
    names = (name for name in PlanTables.__struct_fields__ if name != "settings")
    shared = {name: getattr(plan, name) for name in names}
    shared["lane_limits"] = plan.lane_limits[:lanes]
    if len(plan.switches):  # a switch is not an actor
        no_actor = np.full(plan.switch_endpoints, NONE, plan.actor_of_rank.dtype)
        shared["actor_of_rank"] = np.concatenate((plan.actor_of_rank, no_actor))
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
