"""Checks that refuse a run before it begins, or stop one whose time stands still.

An instant in which events happen for ever without effect is an error. An instant has an effect when a message
is delivered, a node completes or an actor starts. Other events in between follow from these, so the events on
the calendar bound their number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.errors import StallError, UsageError
from et_sim.basics.units import format_bytes
from et_sim.engine.containers import available_bytes
from et_sim.engine.state import kinds
from et_sim.engine.state.cause_tables import CAUSAL_EVENT
from et_sim.engine.transport.network_seam import NetworkModel
from et_sim.machine.model import Network
from et_sim.plan.records import Action, LoweredPlan, most_of_a_template

MOST_CHUNKS = (1 << 31) - 1
BUFFERED = 2  # times the need of one event
EVENTS_FOR_NOTHING = 1_000_000  # in one instant
EVENTS_PER_ROW = 64  # of the calendar, likewise
SETTLED_LATE = {
    kinds.POOL_SHARE: "rates of a memory pool's transfers",
    kinds.POOL_END: "ends of a memory pool's transfers",
    kinds.ADMIT: "admission to a queue of collectives",
}


class Standstill:
    """A counter of the events in one instant that have no effect."""

    def __init__(self) -> None:
        self._seen: tuple[int, ...] = ()
        self._events = 0

    def look(self, run: Any, events: int, bits: int) -> None:
        """Count the events since the last call, and raise if too many had no effect."""
        clock = run.clock[0]
        seen = tuple(int(clock[name]) for name in ("now", "delivered", "completed", "to_start"))
        if seen != self._seen:
            self._seen, self._events = seen, 0
            return
        self._events += events
        if self._events <= EVENTS_FOR_NOTHING + EVENTS_PER_ROW * len(run.events):
            return
        place = f"at {seen[0] >> bits:,} ns"
        cause = (
            f"simulated time stands still: {self._events:,} events in a row delivered no message and "
            f"completed no node; repeated events: {_repeated_events(run)}"
        )
        remedy = "a defect of et-sim: please report it with its inputs"
        raise StallError(cause, place=place, remedy=remedy, report=f"{place}: {cause} ({remedy})")


def _repeated_events(run: Any) -> str:
    """Return the kinds of events that are due at the present time."""
    clock = run.clock[0]
    rows = [int(clock["head"])]
    if clock["slot"] >= 0:
        rows.append(int(run.slots["head"][clock["slot"]]))
    kinds_pending = []
    for row in rows:
        for _ in range(len(run.events)):
            if row < 0:
                break
            kinds_pending.append(int(run.events["kind"][row]) % kinds.OPENS_BUCKET)
            row = int(run.events["next"][row])
    kinds_found, counts = np.unique(np.array(kinds_pending, np.int64), return_counts=True)
    names = [
        f"{count} of {_name(kind)}" for kind, count in zip(kinds_found.tolist(), counts.tolist(), strict=True)
    ]
    return ", ".join(names) or "an event that puts nothing on the calendar"


def _name(kind: int) -> str:
    if kind >= kinds.NETWORK:
        return f"the network model's own (kind {kind - kinds.NETWORK})"
    return SETTLED_LATE.get(kind, f"kind {kind}")


def check_causes(network: Network, plan: LoweredPlan) -> None:
    """Refuse to record causal events of a run in which parts fail: a repair has no cause within the run."""
    if network.failures or plan.slow:
        raise UsageError(
            'the machine has "failures", and a record of causes does not include these',
            place="--detail path",
            remedy="leave it out, or record --detail messages and links instead",
        )


def check_record(events_at_once: int) -> None:
    """Refuse to record causal events if those of a single event would not fit into memory."""
    needed, available = BUFFERED * events_at_once * CAUSAL_EVENT.itemsize, available_bytes()
    if needed > available:
        free = f"of which {format_bytes(available)} are free"
        raise UsageError(
            f"a record of causes needs {format_bytes(needed)} of memory, {free}",
            place="--detail path",
            remedy="leave it out, record --detail phases instead, or simulate a smaller part of the job",
        )


def _check_streams(plan: LoweredPlan, network: Network, model: NetworkModel) -> None:
    key = "streams" if plan.stream_names else "overlap" if len(plan.slowing) else ""
    if len(plan.slowdowns) and plan.slowdowns[0].each:
        key = "library"
    if key and hasattr(model, "take_time"):
        raise UsageError(
            "this network model has a processor per rank, on which work takes turns by rules of its own, but "
            f'the system file has "{key}"',
            remedy="leave it out, or choose another --network-model",
        )
    if plan.slow and (key or network.fraction_bits or hasattr(model, "take_time")):
        why = f'"{key}" sets the speed of work' if key else "this network has times of its own"
        raise UsageError(
            f'the system file has "failures" with "slower", and {why}',
            remedy='leave one of them out, or give "stragglers"',
        )
    if len(plan.slowing) and network.fraction_bits:
        raise UsageError(
            'on networks of 1.0 with contention, times have fractions, which "overlap" does not support',
            remedy="leave it out, or describe the network in the form of 2.x",
        )


def check_chunks(plan: LoweredPlan) -> None:
    """Refuse plans in which a rank could start more chunks than can be numbered."""
    most = plan.derived(_most_chunks)
    if most > MOST_CHUNKS:
        raise UsageError(
            f"a rank splits its collectives into {most:,} chunks, and at most {MOST_CHUNKS:,} can be counted",
            remedy='choose a smaller "preferred-dataset-splits", or simulate fewer iterations',
        )


def _most_chunks(plan: LoweredPlan) -> int:
    chunks = plan.collectives["chunks"].astype(np.int64)
    of_node = np.zeros(len(plan.nodes), np.int64)
    is_collective = plan.nodes["action"] == Action.COLLECTIVE
    of_node[is_collective] = chunks[plan.nodes["detail"][is_collective]]
    return most_of_a_template(plan, of_node) + int(plan.collectives["first_sequence"].max(initial=0))


def check_model(plan: LoweredPlan, network: Network, model: NetworkModel, *, records: bool) -> None:
    """Refuse plans that the network model does not support; `records`: messages, links or causes."""
    model.check(network, plan.largest_message)
    check_chunks(plan)
    if len(plan.switches) and not model.REACHES_SWITCHES:
        raise UsageError(
            "this network model does not support switches that reduce, but collectives are done inNetwork",
            remedy="choose another --network-model, or another algorithm",
        )
    _check_streams(plan, network, model)
    if plan.version_1.pairs_early and not hasattr(model, "flight_ns"):
        raise UsageError(
            "on a network of 1.0, messages match their receives when they are sent, but this network model "
            "cannot predict their arrival",
            remedy="leave out --network-model, or describe the network in the form of 2.x",
        )
    if records and model.RECORDS_NODES_ONLY:
        raise UsageError(
            "this network model records nodes only, not messages, links or causes",
            remedy="leave messages, links and path out of --detail, or choose another --network-model",
        )
