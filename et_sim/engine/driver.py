"""Driving a run from start to end: Python's side of the event loop."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import InputError
from et_sim.basics.units import format_ns
from et_sim.compiled.tables_by_reference import Tables
from et_sim.engine.changes import Changes
from et_sim.engine.entry import BLOCKED, FINISHED, NEEDS_POOLS, PAUSED, TIED, TOO_LATE, simulate
from et_sim.engine.guards import Standstill, check_causes, check_model, check_record
from et_sim.engine.observe import facade as observe
from et_sim.engine.outcome import Outcome, load_of, ports_of
from et_sim.engine.pools import (
    Reserve,
    causal_events_per_event,
    drain,
    drain_messages,
    drain_phases,
    drain_ports,
    grow_pools,
    in_ns,
    reserve_per_event,
    with_rings,
    without_pools,
)
from et_sim.engine.start import KeptStart, Start
from et_sim.engine.state.records import OF_NODE
from et_sim.engine.state.resources import ResourceTable, with_pool
from et_sim.engine.state.run import NONE, Run, new_run
from et_sim.engine.state.traffic_tables import new_traffic
from et_sim.engine.transport.network_seam import NetworkModel, network_tables, packets_expected
from et_sim.machine.model import Network
from et_sim.plan.expected import expected_messages
from et_sim.plan.fractions import in_fractions
from et_sim.plan.records import LoweredPlan

if TYPE_CHECKING:
    from et_sim.engine.blocked import Blocked


FEWEST_EVENTS, MOST_EVENTS = 4_000, 1 << 40  # before control returns to Python
SECONDS_BETWEEN_REPORTS = 0.3
MOST_GROWTH = 8  # of the number of events from one return to the next
FEWEST_TO_GO_AHEAD = 1 << 18  # messages
NODES_STARTED = 1 << 19  # about as many in one call: interpreted, each is an object
SECONDS_PER_MESSAGE, SECONDS_PER_NODE = 1e-4, 1e-4  # of an interpreted run, roughly

# now_ns; delivered messages or sent packets, and the expected number; nodes completed, and all nodes; the
# name of what is counted
Report = Callable[[int, int, int, int, int, str], None]


class Recorders(Struct, frozen=True):
    """Receivers of the records of a run; None: nothing of the kind is recorded."""

    causes: Callable[[Any], None] | None = None
    phases: Callable[[Any], None] | None = None
    messages: Callable[[Any], None] | None = None
    ports: Callable[[Any, Any], None] | None = None
    links: bool = False  # records busy times of links in the run itself

    @property
    def are_none(self) -> bool:
        """Return whether nothing is recorded."""
        return not (self.causes or self.phases or self.messages or self.ports or self.links)

    def drain(self, run: Run, bits: int) -> None:
        """Deliver the records up to now."""
        if self.causes:
            drain(run, self.causes, bits)
        if self.phases:
            drain_phases(run, self.phases, bits)
        if self.messages:
            drain_messages(run, self.messages, bits)
        if self.ports:
            drain_ports(run, self.ports)


class _Begun(Struct, frozen=True):
    """The start of a run, and the resources whose times it records."""

    start: Start
    resources: ResourceTable | None = None  # of messages
    recorded: ResourceTable | None = None  # and of pools
    is_kept: bool = False  # for further runs


def run_plan(
    plan: LoweredPlan,
    network: Network,
    model: NetworkModel,
    report: Report | None = None,
    *,
    begin: Callable[[], None] = lambda: None,
    record: Callable[[Any], None] | None = None,
    log: Callable[[Any], None] | None = None,
    messages: Callable[[Any], None] | None = None,
    links: bool = False,
    ports: Callable[[Any, Any], None] | None = None,
    alike: int = 1,
    until_ns: int | None = None,
    kept: KeptStart | None = None,
    ties_alike: bool = False,
) -> Outcome | None:
    """Simulate a plan until nothing is left to happen.

    A run that the model has to make again is; `begin` is called before each.

    `record` takes the causal events of the run (`causes`), `log` the phases of its chunks, and `messages` the
    messages that were sent. With `links`, the busy times of links are recorded (`link_slices`). `ports` takes
    the pauses and messages of ports, and packets in their queues are recorded over time (`queues`).

    With `until_ns`, the run ends when all events up to then have happened.

    `kept` has the start of the plan's last run; a run that records nothing begins from it.

    With `ties_alike`, events whose order may differ between the ranks of an actor come in its order.

    `alike` is the number of such runs: if they are long together, the loop is compiled.

    Return None if some actors do not behave like all their ranks (`ties`), so that a plan of ranks must run
    instead.
    """
    check_model(plan, network, model, records=bool(record or messages or links))
    if record:
        check_causes(network, plan)
    recorders = Recorders(record, log, messages, ports, links)
    is_plain = recorders.are_none and until_ns is None and network.is_constant
    goes_ahead = is_plain and (kept is None or kept.goes_ahead) and _is_worth_going_ahead(plan, model)
    packets = packets_expected(model, network, plan)
    reporting = _reporting(plan, network.fraction_bits, model, packets, report)
    while True:
        begin()
        begun = _begin(plan, network, model, recorders, until_ns, kept if is_plain else None, goes_ahead)
        run = begun.start.run
        if ties_alike and plan.is_folded:
            run.clock["ties"] = observe.TOLERANT
        happen = simulate.lasting(functools.partial(_seconds_of, alike, plan, run, packets))
        blocked: list[Blocked] = []
        ended = _run_to_end(begun.start, network, model, recorders, until_ns, happen, reporting, blocked)
        if kept is not None and begun.is_kept and ended is not None and ended is not run:
            kept.ran_short()
        again = None if ended is None or model.again is None else model.again(ended.network, network)
        if again is not None:
            network = again
            continue
        if ended is not None:
            outcome = _outcome(plan, network, model, ended, begun, until_ns, ports)
            return replace(outcome, blocked=tuple(blocked))
        if not len(run.order_marks):
            return None
        goes_ahead = False  # the order of events may differ from that with every message
        if kept is not None:
            kept.goes_ahead = False


def _begin(
    plan: LoweredPlan,
    network: Network,
    model: NetworkModel,
    recorders: Recorders,
    until_ns: int | None,
    kept: KeptStart | None,
    goes_ahead: bool,
) -> _Begun:
    """Return the start of a run: that of the plan's last run, or a new one."""
    rules = (network.fraction_bits, model.needs(network), model.tables, goes_ahead)
    former = None if kept is None else kept.again(rules, plan, network.fraction_bits)
    if kept is not None and former is not None:

        def tables() -> Tables:
            made = network_tables(model, network, former.plan, has_queues=False, has_causes=False)
            is_ahead = len(former.run.order_marks) > 0
            return (model.ahead(made, network, former.plan) if is_ahead else None) or made

        def rewritten(made: Any, before: tuple[Any, ...]) -> bool:
            return not len(former.run.order_marks) and model.rewritten(made, before[0], network)

        def grown(made: Any) -> Tables:
            return model.grown(made, former.reserve.rows * kept.scale)

        given = network, plan.programs, plan.transfers
        start = kept.restored(former, given, tables, grown, rewritten)
        return _Begun(start, is_kept=kept.is_due(rules))
    is_due = kept is not None and kept.is_due(rules)
    scale = kept.scale if kept is not None and is_due else None
    begun = _new_start(plan, network, model, recorders, until_ns, scale=scale, goes_ahead=goes_ahead)
    if kept is not None and is_due:
        return replace(begun, start=kept.keep(begun.start), is_kept=True)
    return begun


def _new_start(
    plan: LoweredPlan,
    network: Network,
    model: NetworkModel,
    recorders: Recorders,
    until_ns: int | None,
    *,
    scale: int | None,
    goes_ahead: bool,
) -> _Begun:
    """Return a start with tables of its own; `scale`: that of its pools, None: they are ample."""
    bits, needs = network.fraction_bits, model.needs(network)
    in_units = in_fractions(plan, bits)
    if until_ns is not None:
        in_units = replace(in_units, latest=min(in_units.latest, ((until_ns + 1) << bits) - 1))
    reserve = reserve_per_event(in_units, needs)
    tables = network_tables(
        model, network, in_units, has_queues=bool(recorders.ports), has_causes=bool(recorders.causes)
    )
    order_marks: Any = observe.marks_of(0) if model.EVALUATES_AHEAD else ()
    if goes_ahead and (ahead := model.ahead(tables, network, in_units)) is not None:
        tables, order_marks = ahead, observe.marks_of(len(plan.actors))
        reserve = with_rings(reserve, in_units)
    has_resources = recorders.causes or recorders.links or recorders.ports
    resources = model.resources(network, in_units) if has_resources else None
    recorded = None
    if resources is not None:
        recorded = with_pool(resources, plan.pool_units, plan.actor_of_rank, plan.actors["rank"])
    count = len(recorded) if recorded is not None else 0
    events_at_once = causal_events_per_event(in_units, reserve, needs) if recorders.causes else 0
    check_record(events_at_once)
    run = new_run(
        in_units,
        tables,
        new_traffic(reserve.rows if recorders.messages else 0, count, links=recorders.links, bits=bits),
        needs.record,
        resources=count,
        units=len(plan.pool_units.stage) if count else 0,
        causal_events_per_event=events_at_once,
        phases_per_event=reserve.rows if recorders.phases else 0,
        order_marks=order_marks,
        in_one_form=model.RECORDS_IN_ONE_FORM,
    )
    rows = Reserve(*(count * (scale or 1) for count in reserve))
    start = Start(in_units, reserve, grow_pools(run, rows, model, is_ample=scale is None))
    return _Begun(start, resources, recorded)


def _run_to_end(
    start: Start,
    network: Network,
    model: NetworkModel,
    recorders: Recorders,
    until_ns: int | None,
    happen: Callable[..., int],
    report: Callable[[Run], None],
    blocked: list[Blocked],
) -> Run | None:
    """Return the run when nothing is left to happen; None if actors do not behave like all their ranks.

    Queues that wait for each other are added to `blocked`.
    """
    bits, reserve, run = network.fraction_bits, start.reserve, start.run
    standstill, changes, is_ordered = Standstill(), Changes(model, network, run), len(run.order_marks) > 0
    events = _events_while_ranks_start(run)
    while True:
        begin = time.monotonic()
        status = happen(run, *reserve, events)
        if status == PAUSED:
            standstill.look(run, events, bits)
            if run.clock[0].to_start == len(run.actors):
                events = _events_until_next_look(events, time.monotonic() - begin)
        recorders.drain(run, bits)
        if is_ordered and (status in (TOO_LATE, BLOCKED) or (status == FINISHED and _is_stalled(run))):
            return None  # to be explained with every message
        if status == TOO_LATE and changes.is_due:
            run = changes.made(run, reserve)
        elif status == FINISHED or (status == TOO_LATE and until_ns is not None):
            return run
        elif status == TIED:
            return None
        elif status == TOO_LATE:
            raise _too_late(start.plan, run, bits)
        elif status == NEEDS_POOLS:
            run = grow_pools(run, reserve, model)
        elif status == BLOCKED:
            from et_sim.engine.blocked import look_at_queues

            blocked.append(look_at_queues(run, len(blocked), bits))
        else:
            report(run)


def _is_stalled(run: Run) -> bool:
    """Return whether ranks have not finished."""
    return bool((np.asarray(run.actors["finish_ns"]) < 0).any())


def _is_worth_going_ahead(plan: LoweredPlan, model: NetworkModel) -> bool:
    """Return whether a run has so many messages that it should evaluate them together, where it can."""
    return model.EVALUATES_AHEAD and not plan.is_folded and expected_messages(plan) >= FEWEST_TO_GO_AHEAD


def _too_late(plan: LoweredPlan, run: Run, bits: int) -> InputError:
    return InputError(
        f"simulated time passed {format_ns(plan.latest >> bits)}",
        place=f"after {int(run.clock[0].delivered)} messages",
        remedy="durations in traces are microseconds, sizes bytes: is a unit wrong?",
    )


def _reporting(
    plan: LoweredPlan, bits: int, model: NetworkModel, packets: int, report: Report | None
) -> Callable[[Run], None]:
    """Return a function that reports the progress of a run; the expected messages are counted once."""
    expected: list[int] = []

    def reporting(run: Run) -> None:
        if report is None:
            return
        if not expected:
            expected.append(plan.derived(expected_messages))
        clock = run.clock[0]
        done, most, counted = clock.delivered, expected[0], "messages"
        if model.packets_sent is not None:
            done, most, counted = int(model.packets_sent(run.network)), packets, "packets"
        report(clock.now >> bits, done, most, clock.completed, len(run.nodes), counted)

    return reporting


def _outcome(
    plan: LoweredPlan,
    network: Network,
    model: NetworkModel,
    run: Run,
    begun: _Begun,
    until_ns: int | None,
    ports: Callable[[Any, Any], None] | None,
) -> Outcome:
    """Return the outcome of a run that has ended."""
    bits, clock, in_units = network.fraction_bits, run.clock[0], begun.start.plan
    finish_ns = without_lost(np.asarray(run.actors["finish_ns"]) >> bits, plan, network)
    lost = model.lost_messages(run, network) if network.failures else None
    waits_ns = tuple(model.longest_waits(run, network)) if network.failures else ()
    queues = observe.queues_at_end(run, int(clock.now) >> bits, ports) if ports else None
    if (finish_ns >= 0).all() and not begun.is_kept:
        run = without_pools(run)
    return Outcome(
        plan=plan,
        nodes=in_ns(np.asarray(run.nodes[OF_NODE]), ("start_ns", "end_ns", "admitted_ns"), bits),
        finish_ns=finish_ns,
        busy_ns=np.asarray(run.actors["busy_ns"]) >> bits,
        end_ns=_last_ns(plan, network, run) >> bits if until_ns is None else until_ns,
        messages=_messages(plan, run),
        run=run,
        resources=begun.recorded,
        has_contention=model.HAS_CONTENTION,
        load=load_of(model, network, in_units, run, begun.resources),
        ports=ports_of(model, network, in_units, run),
        queues=queues,
        lost=lost,
        network=network if network.failures else None,
        waits_ns=waits_ns,
    )


def _events_while_ranks_start(run: Run) -> int:
    """Return a number of events that starts few nodes: a rank sets the state of all its nodes."""
    most = int(run.plan.templates["nodes"].max(initial=1))
    return max(min(NODES_STARTED // most, FEWEST_EVENTS), 1)


def _events_until_next_look(events: int, seconds: float) -> int:
    """Return the number of events that take the time between reports at the rate of the last ones."""
    rate = SECONDS_BETWEEN_REPORTS / max(seconds, 1e-9)
    return max(FEWEST_EVENTS, min(int(events * min(rate, MOST_GROWTH)), MOST_EVENTS))


def _seconds_of(alike: int, plan: LoweredPlan, run: Run, packets: int) -> float:
    """Return the estimated time of as many alike runs without compilation."""
    return alike * _seconds_interpreted(plan, run, packets)


def _seconds_interpreted(plan: LoweredPlan, run: Run, packets: int) -> float:
    """Return the estimated time of a run without compilation."""
    seconds = expected_messages(plan) * SECONDS_PER_MESSAGE + len(run.nodes) * SECONDS_PER_NODE
    seconds += packets * SECONDS_PER_MESSAGE
    return seconds * (1 + len(run.causes.on) + len(run.traffic.on))


def _last_ns(plan: LoweredPlan, network: Network, run: Run) -> int:
    """Return the time of the last event that had an effect; replaced ends of slowed nodes have none, nor have
    those of messages on links that fail.
    """
    ends_late = network.failures and (run.actors["finish_ns"] >= 0).all()
    if not (len(plan.slowing) or ends_late):
        return int(run.clock[0].now)
    return int(max(run.nodes[column].max(initial=0) for column in ("start_ns", "end_ns")))


def without_lost(finish_ns: Any, plan: LoweredPlan, network: Network) -> Any:
    """Return when actors finish; NONE for those whose ranks fail before."""
    for failure in network.failures:
        actors = np.unique(plan.actor_of_rank[list(failure.ranks)])
        finish_ns[actors] = np.where(finish_ns[actors] > failure.at_ns, NONE, finish_ns[actors])
    return finish_ns


def _messages(plan: LoweredPlan, run: Run) -> int:
    """Return the number of messages delivered to all ranks."""
    if not plan.is_folded:
        return int(run.clock[0].delivered)
    ranks_per_actor = np.bincount(plan.actor_of_rank, minlength=len(plan.actors))
    return int((run.actors["messages"] * ranks_per_actor).sum())
