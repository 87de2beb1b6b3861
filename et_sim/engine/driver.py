"""Driving a run from start to end: Python's side of the event loop.

Whether time goes on: an instant in which events happen for ever, and nothing comes of them, is an error.
Something comes of an instant when a message is delivered, a node completes or an actor starts. What else
happens in between follows from these, so it is bounded by what is on the calendar.

Not here: explaining a run that got stuck (`stall`), and turning columns into tables (`timeline`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from et_sim.basics.errors import InputError, StallError, UsageError
from et_sim.basics.units import format_bytes, format_ns
from et_sim.engine.load import load_of, ports_of
from et_sim.engine.loop import FINISHED, NEEDS_POOLS, PAUSED, TIED, TOO_LATE, simulate
from et_sim.engine.observe import facade as observe
from et_sim.engine.outcome import Outcome
from et_sim.engine.pools import (
    causal_events_per_event,
    drain,
    drain_messages,
    drain_phases,
    drain_ports,
    grow_pools,
    reserve_per_event,
)
from et_sim.engine.state import kinds
from et_sim.engine.state.cause_tables import CAUSAL_EVENT
from et_sim.engine.state.records import MESSAGE_FIELDS
from et_sim.engine.state.resources import with_pool
from et_sim.engine.state.run import Run, new_run
from et_sim.engine.state.traffic_tables import new_traffic
from et_sim.engine.transport.network_seam import NetworkModel, network_tables, packets_expected
from et_sim.machine.model import Network
from et_sim.plan.expected import expected_messages
from et_sim.plan.fractions import in_fractions
from et_sim.plan.tables import Plan
from et_sim.plan.tables import record as record_of

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
    """The kinds of events that are due at the present time."""
    clock = run.clock[0]
    rows = [int(clock["head"])]
    if clock["slot"] >= 0:
        rows.append(int(run.slots["head"][clock["slot"]]))
    found = []
    for row in rows:
        for _ in range(len(run.events)):
            if row < 0:
                break
            found.append(int(run.events["kind"][row]) % kinds.OPENS_BUCKET)
            row = int(run.events["next"][row])
    kinds_found, counts = np.unique(np.array(found, np.int64), return_counts=True)
    names = [
        f"{count} of {_name(kind)}" for kind, count in zip(kinds_found.tolist(), counts.tolist(), strict=True)
    ]
    return ", ".join(names) or "an event that puts nothing on the calendar"


def _name(kind: int) -> str:
    if kind >= kinds.NETWORK:
        return f"the network model's own (kind {kind - kinds.NETWORK})"
    return SETTLED_LATE.get(kind, f"kind {kind}")


BUFFERED = 2  # times what one event may need


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


def available_bytes() -> int:
    """How much memory there is to take."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return int(os.sysconf("SC_PAGE_SIZE")) * int(os.sysconf("SC_PHYS_PAGES"))


FEWEST_EVENTS, MOST_EVENTS = 20_000, 1 << 40  # until Python takes a look
SECONDS_BETWEEN_REPORTS = 0.3
MOST_GROWTH = 2  # of the number of events from one look to the next
SECONDS_PER_MESSAGE, SECONDS_PER_NODE = 1e-4, 1e-4  # of an interpreted run, roughly

# now_ns, how many messages are delivered, or packets sent, and how many will be, nodes completed, nodes in
# all, what is counted
Report = Callable[[int, int, int, int, int, str], None]


def run_plan(
    plan: Plan,
    network: Network,
    model: NetworkModel,
    report: Report | None = None,
    *,
    record: Callable[[Any], None] | None = None,
    log: Callable[[Any], None] | None = None,
    messages: Callable[[Any], None] | None = None,
    links: bool = False,
    ports: Callable[[Any, Any], None] | None = None,
    alike: int = 1,
    until_ns: int | None = None,
) -> Outcome | None:
    """Simulate a plan until nothing is left to happen.

    `record` takes the causal events of the run (`causes`), `log` what became of its chunks, phase by phase,
    and `messages` those that were sent. With `links`, it is noted how busy these are (`link_slices`).
    `ports` takes their pauses and messages, and it is noted what packets meet there over time (`queues`).

    With `until_ns`, it ends when all that happens up to then has happened.

    `alike` says how many such runs there are: what is long together is worth compiling.

    None: some actors do not behave like all their ranks (`ties`), so a plan of ranks must be run instead.
    """
    _check(plan, network, model)
    if (record or messages or links) and model.RECORDS_NODES_ONLY:
        raise UsageError(
            "this network model records nodes, and neither messages, links nor what caused what",
            remedy="leave messages, links and path out of --detail, or choose another --network-model",
        )
    bits, needs = network.fraction_bits, model.needs(network)
    in_units = in_fractions(plan, bits)
    if until_ns is not None:
        in_units = replace(in_units, latest=min(in_units.latest, ((until_ns + 1) << bits) - 1))
    reserve = reserve_per_event(in_units, needs)
    resources = model.resources(network, in_units) if record or links or ports else None
    recorded = None
    if resources is not None:
        recorded = with_pool(resources, plan.pool_units, plan.actor_of_rank, plan.actors["rank"])
    count = len(recorded) if recorded is not None else 0
    events_at_once = causal_events_per_event(in_units, reserve, needs) if record else 0
    check_record(events_at_once)
    run = new_run(
        in_units,
        network_tables(model, network, in_units, has_queues=bool(ports), has_causes=bool(record)),
        new_traffic(reserve.rows if messages else 0, count, links=links, bits=bits),
        record_of(*MESSAGE_FIELDS) if needs.record is None else needs.record,
        resources=count,
        units=len(plan.pool_units.stage) if count else 0,
        causal_events_per_event=events_at_once,
        phases_per_event=reserve.rows if log else 0,
    )
    packets = packets_expected(model, network, plan)
    expected = expected_messages(plan) if report else 0
    happen = simulate.lasting(lambda: alike * _seconds_interpreted(plan, run, packets))
    events, standstill = FEWEST_EVENTS, Standstill()
    while True:
        begin = time.monotonic()
        status = happen(run, *reserve, events)
        if status == PAUSED:
            standstill.look(run, events, bits)
            events = _events_until_next_look(events, time.monotonic() - begin)
        if record:
            drain(run, record, bits)
        if log:
            drain_phases(run, log, bits)
        if messages:
            drain_messages(run, messages, bits)
        if ports:
            drain_ports(run, ports)
        if status == FINISHED or (status == TOO_LATE and until_ns is not None):
            break
        if status == TIED:
            return None
        if status == TOO_LATE:
            raise InputError(
                f"simulated time passed {format_ns(in_units.latest >> bits)}",
                place=f"after {int(run.clock[0].delivered)} messages",
                remedy="durations in traces are microseconds, sizes bytes: is a unit wrong?",
            )
        if status == NEEDS_POOLS:
            run = grow_pools(run, reserve, model, needs)
        elif report:
            clock = run.clock[0]
            if model.packets_sent is None:
                report(
                    clock.now >> bits, clock.delivered, expected, clock.completed, len(run.nodes), "messages"
                )
            else:
                sent = int(model.packets_sent(run.network))
                report(clock.now >> bits, sent, packets, clock.completed, len(run.nodes), "packets")
    clock = run.clock[0]
    queues = observe.queues_at_end(run, int(clock.now) >> bits, ports) if ports else None
    for column in ("ready_ns", "start_ns", "end_ns", "admitted_ns") if bits else ():
        run.nodes[column] >>= bits  # NONE stays what it is
    return Outcome(
        plan=plan,
        nodes=run.nodes,
        finish_ns=np.array(run.actors["finish_ns"], np.int64) >> bits,
        busy_ns=np.array(run.actors["busy_ns"], np.int64) >> bits,
        end_ns=_last_ns(plan, run) >> bits if until_ns is None else until_ns,
        messages=_messages(plan, run),
        run=run,
        resources=recorded,
        has_contention=model.HAS_CONTENTION,
        load=load_of(model, network, in_units, run, resources),
        ports=ports_of(model, network, in_units, run),
        queues=queues,
    )


def _events_until_next_look(events: int, seconds: float) -> int:
    """As many as will take the time between reports, if they take as long as these did."""
    rate = SECONDS_BETWEEN_REPORTS / max(seconds, 1e-9)
    return max(FEWEST_EVENTS, min(int(events * min(rate, MOST_GROWTH)), MOST_EVENTS))


def _seconds_interpreted(plan: Plan, run: Run, packets: int) -> float:
    """How long a run would take uncompiled."""
    seconds = expected_messages(plan) * SECONDS_PER_MESSAGE + len(run.nodes) * SECONDS_PER_NODE
    seconds += packets * SECONDS_PER_MESSAGE
    return seconds * (1 + len(run.causes.on) + len(run.traffic.on))


def _last_ns(plan: Plan, run: Run) -> int:
    """When the last thing happened: an end that was planned anew is on the calendar, too, and is nothing."""
    if not len(plan.slowing):
        return int(run.clock[0].now)
    return int(max(run.nodes[column].max(initial=0) for column in ("ready_ns", "start_ns", "end_ns")))


def _messages(plan: Plan, run: Run) -> int:
    """Messages delivered, to all ranks."""
    if not plan.is_folded:
        return int(run.clock[0].delivered)
    ranks_per_actor = np.bincount(plan.actor_of_rank, minlength=len(plan.actors))
    return int((run.actors["messages"] * ranks_per_actor).sum())


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


def _check(plan: Plan, network: Network, model: NetworkModel) -> None:
    """Refuse what the network model cannot do."""
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
