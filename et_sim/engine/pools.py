"""The rows of each pool that one event may use up, and larger pools between events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from et_sim.engine.calendar.clock import bucket_home, slot_home
from et_sim.engine.containers import (
    SMALLEST_POOL,
    chain_rows,
    chained_rows,
    empty_index,
    grow_pool,
    longer,
    spare,
)
from et_sim.engine.state.cause_tables import POOLS
from et_sim.engine.state.chunks import chunk_home, sequence_of, unexpected_home
from et_sim.engine.state.run import STARTS_TOGETHER, Run, most_slowed
from et_sim.engine.state.traffic_tables import POOLS as TRAFFIC_POOLS
from et_sim.engine.transport.network_seam import Needs, NetworkModel
from et_sim.machine.corrections import Correction
from et_sim.plan.records import LANES, UNLIMITED_LANES, Action, LoweredPlan, most_of_a_template

ROWS_PER_THING = 4
COMPLETIONS_PER_EVENT = 2  # an arrival may complete a node at either end
MOST_AT_FIRST, POOLS_OF_RECEIVES = 1 << 19, ("events", "messages")
MOST_CHUNKS_AT_FIRST, MOST_CHUNKS_BESIDE = 1 << 20, 1 << 16
EVENTS_AT_A_LOOK = 1 << 10  # for which there should be space
TRANSFERS_OF_A_TREE = 4  # a tree that starts posts up to two receives, each perhaps in an event of its own
CAUSAL_EVENTS_OF_A_NODE, CAUSAL_EVENTS_OF_A_THING = 8, 6
MESSAGE_TIMES = ("ready_ns", "sent_ns", "start_ns", "left_ns", "arrived_ns", "waited_ns")
POOL_OF = {  # by the list of its free rows
    "free_events": "events",
    "free_slots": "slots",
    "free_unexpecteds": "unexpected",
    "free_messages": "messages",
    "free_bus_requests": "bus_requests",
    "free_joins": "joins",
    "free_runnings": "running",
}
BESIDE = {  # tables of the run that are as long as others
    "buckets": "events",
    "heap_time": "slots",
    "heap_slot": "slots",
    "visits": "chunks",
    "chunk_queue": "chunks",
    "custom_waiting": "chunks",
}
INDEXES: dict[str, tuple[str, Callable[[Run, Any], Any]]] = {  # the table of each, and where its chains begin
    "slot_index": ("slots", lambda run, rows: slot_home(run, rows["time"])),
    "bucket_index": ("buckets", lambda run, rows: bucket_home(run, _wide(rows, "actor"), rows["time"])),
    "chunk_index": ("chunks", lambda run, rows: chunk_home(run, _wide(rows, "member"), sequence_of(rows))),
    "unexpected_index": (
        "unexpected",
        lambda run, rows: unexpected_home(
            run, _wide(rows, "member"), _wide(rows, "step_key"), rows["phase_key"]
        ),
    ),
}


class Reserve(NamedTuple):
    """The rows that one event may use up."""

    rows: int  # of any other pool
    collectives: int
    chunks: int  # rows, in blocks


def reserve_per_event(plan: LoweredPlan, needs: Needs) -> Reserve:
    """Return the reserve that the largest event of a plan needs.

    An event completes at most two nodes, and each may start a collective (or as many as its rank has, if
    these share no lane), post all receives of its rank, or issue a whole custom program. Each of these takes
    a few rows: an event or two, a message under way, a request on the bus, and with rendezvous a held message
    and its request.
    """
    chunks = plan.collectives["chunks"].astype(np.int64)
    collectives = _most_at_once(plan, np.ones_like(chunks))
    of_steps = (int(plan.programs[column].max(initial=0)) for column in ("start_transfers", "burst"))
    transfers = max(*of_steps, TRANSFERS_OF_A_TREE)
    queues = plan.queue_rows * plan.queue_sets * _most_groups(plan)
    started = min(_most_at_once(plan, chunks), plan.running_limit * queues) + 1
    custom = collectives * plan.largest_custom
    receives = most_of_a_template(plan, plan.nodes["action"] == Action.RECEIVE)
    most_joint = int(plan.joint_requests["members"].max(initial=0))
    branches = int(plan.switches["branches"].max(initial=0))
    nodes = _most_freed_at_once(plan) + _most_on_streams(plan) + most_slowed(plan)
    things = receives + (nodes + 1) * (most_joint + 1) + custom + started * transfers + branches + 16
    blocks = np.array([1 << (max(count, 1) - 1).bit_length() for count in chunks.tolist()], np.int64)
    completions = COMPLETIONS_PER_EVENT * (len(plan.actors) if plan.version_1.starts_together else 1)
    return Reserve(
        rows=completions * (ROWS_PER_THING + needs.events) * things,
        collectives=completions * collectives,
        chunks=completions * _most_at_once(plan, blocks),
    )


def with_rings(reserve: Reserve, plan: LoweredPlan) -> Reserve:
    """Return the reserve if a collective that starts may put two events of each of its members on the
    calendar: one of each group of an actor at a time.
    """
    groups = int(np.diff(plan.actors["first_member"], append=len(plan.actor_members)).max(initial=1))
    events = COMPLETIONS_PER_EVENT * groups * 2 * int(plan.programs["members"].max(initial=0))
    return reserve._replace(rows=reserve.rows + events)


def causal_events_per_event(plan: LoweredPlan, reserve: Reserve, needs: Needs) -> int:
    """Return the most causal events that one event may add to the record of causes.

    An event completes nodes, and instant ones among their children complete at once, and so on. Each row of
    the reserve sends at most two messages.
    """
    of_node = CAUSAL_EVENTS_OF_A_NODE + plan.nodes["children"].astype(np.int64)
    is_instant, is_first = plan.nodes["action"] == Action.INSTANT, plan.nodes["indegree"] == 0
    nodes = most_of_a_template(plan, np.where(is_instant | is_first, of_node, 0))
    nodes += (
        2 * COMPLETIONS_PER_EVENT * CAUSAL_EVENTS_OF_A_NODE * int(plan.nodes["children"].max(initial=0) + 1)
    )
    together = len(plan.actors) if plan.version_1.starts_together else 1
    return together * nodes + (CAUSAL_EVENTS_OF_A_THING + -(-needs.causal_events // 2)) * reserve.rows


def _most_freed_at_once(plan: LoweredPlan) -> int:
    """Return the most nodes in unlimited lanes that may be issued when a node completes, or at the start."""
    is_free = np.isin(plan.nodes["lane"], UNLIMITED_LANES) & (plan.nodes["action"] != Action.RECEIVE)
    if (plan.nodes["action"] == Action.INSTANT).any():  # their children are issued in the same event
        return most_of_a_template(plan, is_free)
    roots = most_of_a_template(plan, is_free & (plan.nodes["indegree"] == 0))
    return max(roots, int(plan.nodes["children"].max(initial=0))) if is_free.any() else 0


def _most_on_streams(plan: LoweredPlan) -> int:
    """Return the most nodes that may be on the machine's own streams."""
    places = int(plan.lane_limits[LANES:].sum(dtype=np.int64))
    return min(places, most_of_a_template(plan, plan.nodes["lane"] >= LANES)) if places else 0


def _most_at_once(plan: LoweredPlan, of_collective: Any) -> int:
    """Return the largest sum of a column over collectives that one completion may start."""
    at_a_time, largest = plan.collectives_at_a_time, int(of_collective.max(initial=0))
    if at_a_time <= 1:
        return largest
    of_node = np.zeros(len(plan.nodes), np.int64)
    is_collective = plan.nodes["action"] == Action.COLLECTIVE
    of_node[is_collective] = of_collective[plan.nodes["detail"][is_collective]]
    return min(most_of_a_template(plan, of_node), at_a_time * largest)


def _most_groups(plan: LoweredPlan) -> int:
    """Return the number of groups of an actor with queues of their own, at most."""
    if Correction.CONCURRENT_COMMUNICATION not in plan.corrections and not plan.stream_names:
        return 1
    return int(np.diff(plan.actors["first_member"], append=len(plan.actor_members)).max(initial=1))


def grow_pools(run: Run, reserve: Reserve, model: NetworkModel, *, is_ample: bool = True) -> Run:
    """Return the run with larger pools wherever less than the reserve is left.

    Pools that are not ample suffice for few events, and take little memory.
    """
    clock = run.clock[0]
    empty = [name for free, name in POOL_OF.items() if clock[free].rows < 0]
    if empty:  # written beyond its end: the reserve is wrong
        raise RuntimeError(f"internal error: {', '.join(empty)} ran out within one event")
    changes: dict[str, Any] = {}
    # All ranks may post their receives at the start. Rows that are not used take no memory.
    waiting = 0 if len(run.events) or not is_ample else min(len(run.plan.actor_channels) // 2, MOST_AT_FIRST)
    for free, name in POOL_OF.items():
        rows = reserve.collectives if name == "running" else reserve.rows
        if clock[free].rows < rows:
            beyond = waiting if name in POOLS_OF_RECEIVES else 0
            changes[name] = grow_pool(getattr(run, name), clock[free], rows, beyond, is_ample=is_ample)
    if clock.chunks_top + reserve.chunks > len(run.chunks):
        of_all = len(run.actors) * reserve.chunks // COMPLETIONS_PER_EVENT  # if all ranks start at once
        rows = max(2 * len(run.chunks), clock.chunks_top + 2 * reserve.chunks)
        if is_ample:
            rows = max(rows, clock.chunks_top + spare(reserve.chunks), SMALLEST_POOL)
            of_all += min(EVENTS_AT_A_LOOK * reserve.chunks, MOST_CHUNKS_BESIDE)
        changes["chunks"] = longer(run.chunks, max(rows, min(of_all, MOST_CHUNKS_AT_FIRST)))
    beside = dict(BESIDE)
    if len(run.turns):
        beside |= {"stamps": "events", "chunk_marks": "chunks", "running_marks": "running"}
    if len(run.order_marks):
        beside |= {"order_stamps": "events"}
    if run.repeats[0].is_on:
        beside |= {"sent_before": "chunks", "running_turns": "running"}
    if run.plan.settings[STARTS_TOGETHER]:
        beside |= {"chunks_ended": "chunks"}
    if len(run.phase_log):
        beside |= {"chunk_times": "chunks"}
    changes |= _beside(run, beside, changes)
    if run.causes.on[0]:
        changes["causes"] = replace(run.causes, **_beside(run.causes, POOLS, changes))
    if run.traffic.on[0]:
        changes["traffic"] = replace(run.traffic, **_beside(run.traffic, TRAFFIC_POOLS, changes))
    stale = {name: of for name, of in INDEXES.items() if of[0] in changes}
    rows_of = {name: chained_rows(getattr(run, of[0]), getattr(run, name)) for name, of in stale.items()}
    changes |= {name: empty_index(len(changes[table])) for name, (table, _) in stale.items()}
    run = replace(run, network=model.grown(run.network, reserve.rows), **changes)
    for name, (table, home) in stale.items():
        pool, rows = getattr(run, table), rows_of[name]
        chain_rows(pool, getattr(run, name), rows, home(run, pool[rows]))
    return run


def without_pools(run: Run) -> Run:
    """Return a finished run without the tables that only events need; the explanation of a stall needs them
    all.
    """
    names = {
        *POOL_OF.values(),
        *BESIDE,
        *INDEXES,
        "chunks",
        "sent_before",
        "running_turns",
        "picture",
    }
    return replace(run, **{name: getattr(run, name)[:0].copy() for name in names})


def _beside(tables: Any, pools: dict[str, str], changes: dict[str, Any]) -> dict[str, Any]:
    """Return tables that are as long as pools, with the new length of these."""
    rows_of = {name: len(changes[pool]) for name, pool in pools.items() if pool in changes}
    return {name: longer(getattr(tables, name), rows) for name, rows in rows_of.items()}


def _wide(rows: Any, column: str) -> Any:
    return rows[column].astype(np.int64)


def drain(run: Run, record: Callable[[Any], None], bits: int) -> None:
    """Empty the buffer of causal events, in nanoseconds."""
    now = run.causes.now[0]
    if now.made - now.flushed > len(run.causes.causal_events):  # written beyond its end
        raise RuntimeError("internal error: the buffer of causal events ran out within one event")
    record(in_ns(run.causes.causal_events[: now.made - now.flushed], ("start_ns", "end_ns"), bits))
    now.flushed = now.made


def drain_phases(run: Run, record: Callable[[Any], None], bits: int) -> None:
    """Empty the log of phases, in nanoseconds."""
    logged = run.phase_log[: run.clock[0].phases_logged].copy()
    record(in_ns(logged, ("queued_ns", "start_ns", "end_ns", "waited_ns"), bits))
    run.clock[0].phases_logged = 0


def drain_messages(run: Run, record: Callable[[Any], None], bits: int) -> None:
    """Empty the log of messages, in nanoseconds."""
    record(in_ns(run.traffic.log[: run.traffic.logged[0]].copy(), MESSAGE_TIMES, bits))
    run.traffic.logged[0] = 0


def drain_ports(run: Run, record: Callable[[Any, Any], None]) -> None:
    """Empty the logs of pauses, and of messages that packets carried."""
    from et_sim.engine.state.queue_tables import PAUSES_LOGGED

    queues = run.network.queues
    record(queues, queues.pauses[: queues.logged[PAUSES_LOGGED]])
    queues.logged[:] = 0


def in_ns(rows: Any, columns: tuple[str, ...], bits: int) -> Any:
    """Return the same rows, with times in nanoseconds; NONE stays."""
    for column in columns if bits else ():
        rows[column] >>= bits
    return rows
