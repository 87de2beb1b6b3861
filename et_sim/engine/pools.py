"""How many rows of each pool one event may use up, and making pools larger between events.

Not here: what the pools hold (`state`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from et_sim.engine.calendar.clock import bucket_home, slot_home
from et_sim.engine.collectives.matching import chunk_home
from et_sim.engine.collectives.unexpected import unexpected_home
from et_sim.engine.containers import SMALLEST_POOL, chain_rows, empty_index, grow_pool, longer, spare
from et_sim.engine.state.cause_tables import POOLS, Causes
from et_sim.engine.state.queue_tables import PAUSES_LOGGED
from et_sim.engine.state.run import NONE, Run
from et_sim.engine.state.traffic_tables import POOLS as TRAFFIC_POOLS
from et_sim.engine.state.traffic_tables import Traffic
from et_sim.engine.transport.network_seam import Needs, NetworkModel
from et_sim.machine.corrections import Correction
from et_sim.plan.tables import FIRST_FACTOR, LANES, UNLIMITED_LANES, Action, Plan, most_of_a_template

ROWS_PER_THING = 4
COMPLETIONS_PER_EVENT = 2  # an arrival may complete a node at either end
TRANSFERS_OF_A_TREE = 4  # a tree that starts posts up to two receives, each perhaps in an event of its own
CAUSAL_EVENTS_OF_A_NODE, CAUSAL_EVENTS_OF_A_THING = 8, 6
MESSAGE_TIMES = ("ready_ns", "sent_ns", "start_ns", "left_ns", "arrived_ns", "waited_ns")
Beside = TypeVar("Beside", Causes, Traffic)


class Reserve(NamedTuple):
    """What may be used up while one event is processed."""

    rows: int  # of any other pool
    collectives: int
    chunks: int  # rows, in blocks


def reserve_per_event(plan: Plan, needs: Needs) -> Reserve:
    """The reserve that the largest event of a plan needs.

    An event completes at most two nodes, and each may start a collective (or as many as its rank has, if
    these share no lane), post all receives of its rank, or issue a whole custom program. Every one of these
    things takes a few rows: an event or two, a message under way, a request on the bus, and with rendezvous a
    held message and the one that asks for it.
    """
    chunks = plan.collectives["chunks"].astype(np.int64)
    collectives = _most_at_once(plan, np.ones_like(chunks))
    of_steps = (int(plan.programs[what].max(initial=0)) for what in ("start_transfers", "burst"))
    transfers = max(*of_steps, TRANSFERS_OF_A_TREE)
    queues = plan.queue_rows * plan.queue_sets * _most_groups(plan)
    started = min(_most_at_once(plan, chunks), plan.running_limit * queues) + 1
    custom = collectives * plan.largest_custom
    receives = most_of_a_template(plan, plan.nodes["action"] == Action.RECEIVE)
    most_joint = int(plan.joint_requests["members"].max(initial=0))
    branches = int(plan.switches["branches"].max(initial=0))
    nodes = _most_freed_at_once(plan) + _most_on_streams(plan) + _most_slowed(plan)
    things = receives + (nodes + 1) * (most_joint + 1) + custom + started * transfers + branches + 16
    blocks = np.array([1 << (max(count, 1) - 1).bit_length() for count in chunks.tolist()], np.int64)
    completions = COMPLETIONS_PER_EVENT * (len(plan.actors) if plan.version_1.starts_together else 1)
    return Reserve(
        rows=completions * (ROWS_PER_THING + needs.events) * things,
        collectives=completions * collectives,
        chunks=completions * _most_at_once(plan, blocks),
    )


def causal_events_per_event(plan: Plan, reserve: Reserve, needs: Needs) -> int:
    """The most causal events of the record of causes that one event may add.

    An event completes nodes, and instant ones among their children complete at once, and so on. No
    thing sends more than two messages.
    """
    of_node = CAUSAL_EVENTS_OF_A_NODE + plan.nodes["children"].astype(np.int64)
    is_instant, is_first = plan.nodes["action"] == Action.INSTANT, plan.nodes["indegree"] == 0
    nodes = most_of_a_template(plan, np.where(is_instant | is_first, of_node, 0))
    nodes += (
        2 * COMPLETIONS_PER_EVENT * CAUSAL_EVENTS_OF_A_NODE * int(plan.nodes["children"].max(initial=0) + 1)
    )
    together = len(plan.actors) if plan.version_1.starts_together else 1
    return together * nodes + (CAUSAL_EVENTS_OF_A_THING + -(-needs.causal_events // 2)) * reserve.rows


def _most_freed_at_once(plan: Plan) -> int:
    """The most nodes that take no turns and may be issued when one node completes, or at the start."""
    is_free = np.isin(plan.nodes["lane"], UNLIMITED_LANES) & (plan.nodes["action"] != Action.RECEIVE)
    if (plan.nodes["action"] == Action.INSTANT).any():  # what these release is issued in the same event
        return most_of_a_template(plan, is_free)
    roots = most_of_a_template(plan, is_free & (plan.nodes["indegree"] == 0))
    return max(roots, int(plan.nodes["children"].max(initial=0))) if is_free.any() else 0


def _most_on_streams(plan: Plan) -> int:
    """The most nodes that may be on the machine's own streams."""
    places = int(plan.lane_limits[LANES:].sum(dtype=np.int64))
    return min(places, most_of_a_template(plan, plan.nodes["lane"] >= LANES)) if places else 0


def _most_slowed(plan: Plan) -> int:
    """The most nodes whose end may be planned anew in one event."""
    if not len(plan.slowing):
        return 0
    slowed = plan.slowing >= FIRST_FACTOR
    places = int(plan.lane_limits[np.unique(plan.nodes["lane"][slowed])].sum(dtype=np.int64))
    return min(places, most_of_a_template(plan, slowed))


def _most_at_once(plan: Plan, of_collective: Any) -> int:
    """The largest sum of a column over collectives that one completion may start."""
    at_a_time, largest = plan.collectives_at_a_time, int(of_collective.max(initial=0))
    if at_a_time <= 1:
        return largest
    of_node = np.zeros(len(plan.nodes), np.int64)
    is_collective = plan.nodes["action"] == Action.COLLECTIVE
    of_node[is_collective] = of_collective[plan.nodes["detail"][is_collective]]
    return min(most_of_a_template(plan, of_node), at_a_time * largest)


def _most_groups(plan: Plan) -> int:
    """Groups of the actor that is in most, each with queues of its own if collectives share no lane."""
    if Correction.CONCURRENT_COMMUNICATION not in plan.corrections and not plan.stream_names:
        return 1
    return int(np.diff(plan.actors["first_member"], append=len(plan.actor_members)).max(initial=1))


def grow_pools(run: Run, reserve: Reserve, model: NetworkModel, needs: Needs) -> Run:
    """The same run with larger pools wherever less than the reserve is left."""
    clock = run.clock[0]
    _check_pools(clock)
    changes: dict[str, Any] = {}
    if clock.free_events.rows < reserve.rows:
        changes["events"] = grow_pool(run.events, clock.free_events, reserve.rows)
        changes["buckets"] = longer(run.buckets, len(changes["events"]))
        changes["buckets"]["time"][len(run.buckets) :] = NONE
        if len(run.turns) > 0:
            changes["stamps"] = longer(run.stamps, len(changes["events"]))
    if clock.free_slots.rows < reserve.rows:
        changes["slots"] = grow_pool(run.slots, clock.free_slots, reserve.rows, free_mark="time")
        changes["heap_time"] = longer(run.heap_time, len(changes["slots"]))
        changes["heap_slot"] = longer(run.heap_slot, len(changes["slots"]))
    if clock.free_unexpecteds.rows < reserve.rows:
        changes["unexpected"] = grow_pool(
            run.unexpected, clock.free_unexpecteds, reserve.rows, free_mark="member"
        )
    changes["network"] = model.grown(run.network, reserve.rows)
    if needs.record is not None and clock.free_messages.rows < reserve.rows:
        changes["messages"] = grow_pool(run.messages, clock.free_messages, reserve.rows)
    if len(run.bus_sides) and clock.free_bus_requests.rows < reserve.rows:
        requests = grow_pool(run.bus_requests, clock.free_bus_requests, reserve.rows)
        changes["bus_requests"] = requests
    if len(run.switches) and clock.free_joins.rows < reserve.rows:
        changes["joins"] = grow_pool(run.joins, clock.free_joins, reserve.rows)
    if clock.free_runnings.rows < reserve.collectives:
        changes["running"] = grow_pool(
            run.running, clock.free_runnings, reserve.collectives, free_mark="member"
        )
    if clock.chunks_top + reserve.chunks > len(run.chunks):
        rows = max(2 * len(run.chunks), clock.chunks_top + spare(reserve.chunks), SMALLEST_POOL)
        changes["chunks"] = longer(run.chunks, rows)
        changes["chunk_queue"] = longer(run.chunk_queue, rows)
        changes["custom_waiting"] = longer(run.custom_waiting, rows)
    if run.causes.on[0]:
        changes["causes"] = _grown_with(run.causes, POOLS, changes)
    if run.traffic.on[0]:
        changes["traffic"] = _grown_with(run.traffic, TRAFFIC_POOLS, changes)
    return _reindex(replace(run, **changes), changes)


def _grown_with(tables: Beside, pools: dict[str, str], changes: dict[str, Any]) -> Beside:
    """Tables that lie beside pools, as long as these have become."""
    rows_of = {name: len(changes[pool]) for name, pool in pools.items() if pool in changes}
    return replace(tables, **{name: longer(getattr(tables, name), rows) for name, rows in rows_of.items()})


def drain(run: Run, record: Callable[[Any], None], bits: int) -> None:
    """Empty the buffer of causal events, in nanoseconds."""
    now = run.causes.now[0]
    if now.made - now.flushed > len(run.causes.causal_events):  # it has been written beyond its end
        raise RuntimeError("internal error: the buffer of causal events ran out within one event")
    made = run.causes.causal_events[: now.made - now.flushed]
    for column in ("start_ns", "end_ns") if bits else ():
        made[column] >>= bits
    record(made)
    now.flushed = now.made


def drain_phases(run: Run, record: Callable[[Any], None], bits: int) -> None:
    """Empty the log of phases, in nanoseconds."""
    logged = run.phase_log[: run.clock[0].phases_logged].copy()
    for column in ("queued_ns", "start_ns", "end_ns", "waited_ns") if bits else ():
        logged[column] >>= bits
    record(logged)
    run.clock[0].phases_logged = 0


def drain_messages(run: Run, record: Callable[[Any], None], bits: int) -> None:
    """Empty the log of messages, in nanoseconds."""
    logged = run.traffic.log[: run.traffic.logged[0]].copy()
    for column in MESSAGE_TIMES if bits else ():
        logged[column] >>= bits
    record(logged)
    run.traffic.logged[0] = 0


def drain_ports(run: Run, record: Callable[[Any, Any], None]) -> None:
    """Empty the logs of pauses, and of messages that packets carried."""
    queues = run.network.queues
    record(queues, queues.pauses[: queues.logged[PAUSES_LOGGED]])
    queues.logged[:] = 0


def _check_pools(clock: Any) -> None:
    """A pool that ran out within one event has been written beyond its end: the reserve is wrong."""
    pools = [name for name in clock.dtype.names if name.startswith("free_")]
    empty = [name for name in pools if clock[name].rows < 0]
    if empty:
        raise RuntimeError(f"internal error: {', '.join(empty)} ran out within one event")


def _reindex(run: Run, changed: dict[str, Any]) -> Run:
    """Rebuild the hash index of every pool that grew."""
    if "slots" in changed:
        rows = np.flatnonzero(run.slots["time"] != NONE)
        run = replace(run, slot_index=empty_index(len(run.slots)))
        chain_rows(run.slots, run.slot_index, rows, slot_home(run, run.slots["time"][rows]))
    if "buckets" in changed:
        rows = np.flatnonzero(run.buckets["time"] != NONE)
        run = replace(run, bucket_index=empty_index(len(run.buckets)))
        live = run.buckets[rows]
        homes = bucket_home(run, live["actor"].astype(np.int64), live["time"])
        chain_rows(run.buckets, run.bucket_index, rows, homes)
    if "chunks" in changed:
        running = run.running[run.running["member"] != NONE]
        rows = _ranges(running["chunks_first"], running["chunks"])
        run = replace(run, chunk_index=empty_index(len(run.chunks)))
        live = run.chunks[rows]
        homes = chunk_home(run, live["member"].astype(np.int64), live["sequence"])
        chain_rows(run.chunks, run.chunk_index, rows, homes)
    if "unexpected" in changed:
        rows = np.flatnonzero(run.unexpected["member"] != NONE)
        run = replace(run, unexpected_index=empty_index(len(run.unexpected)))
        live = run.unexpected[rows]
        member, step_key = live["member"].astype(np.int64), live["step_key"].astype(np.int64)
        chain_rows(
            run.unexpected,
            run.unexpected_index,
            rows,
            unexpected_home(run, member, step_key, live["phase_key"]),
        )
    return run


def _ranges(first: Any, count: Any) -> Any:
    """The numbers of several ranges, one after the other."""
    before = np.cumsum(count) - count
    return np.arange(count.sum()) + np.repeat(first - before, count)
