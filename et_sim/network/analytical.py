"""Analytical network: a message takes its latency and its serialisation, whoever else is sending.

Links have no state. A message is charged the first leg of its way, as in the reference: in a grid, that is
the *lowest* dimension in which the two ranks differ, hops * latency + bytes / bandwidth, truncated once. A
ring goes the shorter way round, a switch takes two hops, a fully connected dimension one. With WHOLE_PATH,
the message is charged like that for every leg, one after the other. On idle links, the link model gives the
same where all hops are fully connected; it serialises a message on every link, so a ring of h hops takes h
serialisations there and one here, a switch two and one. Where links of a dimension differ in speed, the
latencies of those on the way are added up, and the slowest one sets the bandwidth.

What switches that reduce pass on streams through them: a chunk takes all latencies on its way, and once, on
its first link, the serialisation of the slowest link or switch in the tree. A member sends one chunk after
the other there.

On the levels of ASTRA-sim 1.0, a message has one leg, over the highest level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import Run, setting_of
from et_sim.engine.transport.network_seam import DOWN, UP, Needs, ends_of_branch
from et_sim.fold.path_keys import PathKeys
from et_sim.machine.corrections import Correction
from et_sim.machine.model import GraphFabric, Network
from et_sim.network.fabric import NONE, describe_leg, leaving_class, leaving_ns, leg_ns, next_leg, note_leg
from et_sim.network.fabrics import fabric_of
from et_sim.network.graph_links import link_resources
from et_sim.plan.tables import Plan, record, table

HAS_CONTENTION = False
REACHES_SWITCHES = True
SLOWEST = record(  # of what a chunk passes in a tree of switches
    ("program", "i4"),  # for which it is known
    ("link", "i4"),  # class of links; NONE: a switch
    ("ns", "i8"),
)
WHOLE_PATH = setting_of(Correction.WHOLE_PATH)


@dataclass(frozen=True, slots=True)
class AnalyticalTables(Tables):
    """What compiled code knows."""

    fabric: Any
    step_flight_ns: Any  # per row of the plan's steps; NONE: it depends on who sends
    slowest: Any  # per switch that reduces; of use where it is a root


def check(network: Network, most_bytes: int = 0) -> None:
    """Refuse messages that would take too long."""
    fabric_of(network).check_reach(network, most_bytes)


def tables(network: Network, plan: Plan) -> AnalyticalTables:
    """Steps that stay within one dimension get their flight time here, once."""
    fabric = fabric_of(network)
    flights = np.full(len(plan.steps), NONE, np.int64)
    for program in plan.programs:
        along = int(program["dimension"])
        if along < 0 or program["tree_first"] >= 0:  # the peers of a tree differ from member to member
            continue
        first = int(program["step_first"])
        rows = slice(first, first + int(program["step_period"]))
        steps = plan.steps[rows]
        known = fabric.flights_along(network, along, steps["distance"], steps["bytes"])
        if known is not None:
            flights[rows] = known
    slowest = table(SLOWEST, len(plan.switches))
    slowest["program"] = NONE
    return AnalyticalTables(fabric.tables(network), flights, slowest)


def resources(network: Network, plan: Plan) -> ResourceTable:
    """All that an actor sends along a dimension, over a level, or over a tier of a graph's links.

    The links of a graph are told apart if every rank is simulated.
    """
    fabric = fabric_of(network)
    if isinstance(network.fabric, GraphFabric) and not plan.is_folded:
        return replace(link_resources(network), are_links=False)
    return fabric.sending_resources(network, len(plan.actors))


def path_keys(network: Network, *, whole: bool) -> PathKeys:
    """Messages differ by what they are charged for."""
    return fabric_of(network).path_keys(network, on_links=False, whole=whole)


def needs(network: Network) -> Needs:
    """Nothing is kept of a message."""
    return Needs(causal_events=fabric_of(network).causal_events_of_message(network))


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """Its arrival is known at once."""
    now = run.clock[0].now
    if done != NONE:
        schedule(run, now + _leaving_ns(run, source, target, size), done, c, b, 0)
    schedule(run, now + flight_ns(run, source, target, size), kind, a, b, c)


@works_on_tables
def flight_ns(run: Run, source: int, target: int, size: int) -> int:
    """How long a message that sets out is under way; a message to oneself takes no time."""
    fabric, whole_path = run.network.fabric, run.plan.settings[WHOLE_PATH]
    flight, left, tier = 0, run.clock[0].now, NONE
    leg = next_leg(fabric, source, target)
    while leg.row != NONE:
        if observe.is_recording(run):
            describe_leg(fabric, run, leg, size)
            note_leg(fabric, run, leg, run.clock[0].now + flight, size)
            if tier == NONE:
                tier, left = leg.row, left + leaving_ns(fabric, leg, size)
        flight += leg_ns(fabric, leg, size)
        if not whole_path:
            break
        leg = next_leg(fabric, leg.end, target)
    observe.message_flies(run, target, size, left, flight, tier)
    return flight


@works_on_tables
def _leaving_ns(run: Run, source: int, target: int, size: int) -> int:
    """How long it takes until its last byte has left the source."""
    leg = next_leg(run.network.fabric, source, target)
    if leg.row == NONE:
        return 0
    observe.next_event_is_serialised(run, leaving_class(run.network.fabric, leg))
    return leaving_ns(run.network.fabric, leg, size)


@works_on_tables
def step_flight_ns(run: Run, step_row: int) -> int:
    """The same for a step of a collective, if it does not depend on who sends."""
    return run.network.step_flight_ns[step_row]


@works_on_tables
def pass_branch(
    run: Run,
    branch_row: int,
    way: int,
    size: int,
    program_row: int,
    kind: int,
    a: int,
    b: int,
    c: int,
    done: int,
) -> None:
    """Latency; on the way from a rank, everything else too that the chunk will take."""
    fabric, now = run.network.fabric, run.clock[0].now
    source, target = ends_of_branch(run, branch_row, way)
    leg = next_leg(fabric, source, target)
    flight, left = leg_ns(fabric, leg, 0), now
    if way == UP and run.plan.branches[branch_row].below == NONE:
        slowest, link = _slowest(run, branch_row, program_row)
        own = leaving_ns(fabric, leg, size)
        if own > slowest:  # of a broadcast
            slowest, link = own, leaving_class(fabric, leg)
        left, flight = now + slowest, flight + slowest
        observe.describe_slowest(run, link, left)
        schedule(run, left, done, 0, b, 0)
        observe.describe_slowest(run, link, left)
    if observe.is_recording(run) and leg.here != NONE:  # what a dimension's switch sends is no rank's
        note_leg(fabric, run, leg, now, size)
    describe_leg(fabric, run, leg, 0)
    observe.message_flies(run, target, size, left, flight, leg.row)
    schedule(run, now + flight, kind, a, b, c)


@works_on_tables
def switch_done_ns(run: Run, switch_row: int, _size: int) -> int:
    """Its rate is counted where the chunk sets out."""
    return run.clock[0].now + int(run.plan.switches[switch_row].latency_ns)


@works_on_tables
def _slowest(run: Run, branch_row: int, program_row: int) -> tuple[int, int]:
    """What takes a chunk longest in a tree: the time, and the class of links."""
    root = run.plan.switches[run.plan.branches[branch_row].switch].first_of_tree
    kept = run.network.slowest[root]
    if kept.program == program_row:
        return kept.ns, kept.link
    program, first = run.plan.programs[program_row], run.plan.switches[root]
    slowest, link = 0, NONE
    for row in range(root, root + first.switches):
        switch = run.plan.switches[row]
        for below in range(switch.first_branch, switch.first_branch + switch.branches):
            slowest, link = _slower(run, below, program, slowest, link)
    for row in range(root, root + first.switches):
        switch = run.plan.switches[row]
        size = program.up_fixed + program.up_each * switch.members
        if int(size / switch.bytes_per_ns) > slowest:
            slowest, link = int(size / switch.bytes_per_ns), NONE
    kept.program, kept.ns, kept.link = program_row, slowest, link
    return slowest, link


@works_on_tables
def _slower(run: Run, branch_row: int, program: Any, slowest: int, link: int) -> tuple[int, int]:
    """The same, with one branch more; of a broadcast, ranks send nothing but for one."""
    fabric, branch = run.network.fabric, run.plan.branches[branch_row]
    for way in (UP, DOWN):
        if way == UP and not program.joins and branch.below == NONE:
            continue
        source, target = ends_of_branch(run, branch_row, way)
        leg = next_leg(fabric, source, target)
        size = program.up_fixed + program.up_each * branch.members
        if way == DOWN:
            size = program.down_fixed + program.down_each * branch.members
        if leaving_ns(fabric, leg, size) > slowest:
            slowest, link = leaving_ns(fabric, leg, size), leaving_class(fabric, leg)
    return slowest, link
