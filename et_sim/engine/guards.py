"""What refuses a run before it begins, and stops one that does not get on.

Whether time goes on: an instant in which events happen for ever, and nothing comes of them, is an error.
Something comes of an instant when a message is delivered, a node completes or an actor starts. What else
happens in between follows from these, so it is bounded by what is on the calendar.

Not here: runs in which nothing is left to happen too early (`stall`).
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
from et_sim.plan.records import Plan

BUFFERED = 2  # times what one event may need
EVENTS_FOR_NOTHING = 1_000_000  # in one instant
EVENTS_PER_ROW = 64  # of the calendar, likewise
SETTLED_LATE = {
    kinds.POOL_SHARE: "rates of a memory pool's transfers",
    kinds.POOL_END: "ends of a memory pool's transfers",
    kinds.ADMIT: "admission to a queue of collectives",
}


class Standstill:
    """Counts what happens in one instant without result."""

    def __init__(self) -> None:
        self._seen: tuple[int, ...] = ()
        self._events = 0

    def look(self, run: Any, events: int, bits: int) -> None:
        """So many events have happened since the last look."""
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
            f"simulated time stands still: {self._events:,} events in a row have delivered no message and "
            f"completed no node; what repeats is {_what_repeats(run)}"
        )
        remedy = "a defect of et-sim: please report it with its inputs"
        raise StallError(cause, place=place, remedy=remedy, report=f"{place}: {cause} ({remedy})")


def _what_repeats(run: Any) -> str:
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


def check_record(events_at_once: int) -> None:
    """Refuse to record causal events if those of a single event would not fit."""
    needed, available = BUFFERED * events_at_once * CAUSAL_EVENT.itemsize, available_bytes()
    if needed > available:
        free = f"of which {format_bytes(available)} are free"
        raise UsageError(
            f"a record of causes needs {format_bytes(needed)} of memory, {free}",
            place="--detail path",
            remedy="leave it out, record --detail phases instead, or simulate a smaller part of the job",
        )


def _check_streams(plan: Plan, network: Network, model: NetworkModel) -> None:
    key = "streams" if plan.stream_names else "overlap" if len(plan.slowing) else ""
    if len(plan.slowdowns) and plan.slowdowns[0].each:
        key = "library"
    if key and hasattr(model, "take_time"):
        raise UsageError(
            "this network model has a processor per rank, on which work takes turns by rules of its own, and "
            f'the system file has "{key}"',
            remedy="leave it out, or choose another --network-model",
        )
    if len(plan.slowing) and network.fraction_bits:
        raise UsageError(
            'on networks of 1.0 with contention, times have fractions, and the system file has "overlap"',
            remedy="leave it out, or describe the network in the form of 2.x",
        )


def check_model(plan: Plan, network: Network, model: NetworkModel, *, records: bool) -> None:
    """Refuse what the network model cannot do; `records`: messages, links or causes are wanted."""
    model.check(network, plan.largest_message)
    if len(plan.switches) and not model.REACHES_SWITCHES:
        raise UsageError(
            "this network model does not know switches that reduce, and collectives are done inNetwork",
            remedy="choose another --network-model, or another algorithm",
        )
    _check_streams(plan, network, model)
    if plan.version_1.pairs_early and not hasattr(model, "flight_ns"):
        raise UsageError(
            "on a network of 1.0, messages meet their receives when they are sent, and this network model "
            "does not know then when they will arrive",
            remedy="leave out --network-model, or describe the network in the form of 2.x",
        )
    if records and model.RECORDS_NODES_ONLY:
        raise UsageError(
            "this network model records nodes, and neither messages, links nor what caused what",
            remedy="leave messages, links and path out of --detail, or choose another --network-model",
        )
