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

from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.compiled.tables_by_reference import Tables, works_on_tables
from et_sim.engine.calendar.clock import schedule
from et_sim.engine.observe import facade as observe
from et_sim.engine.state.resources import ResourceTable
from et_sim.engine.state.run import Run, setting_of
from et_sim.engine.transport.network_seam import DOWN, UP, Needs, end_sending, ends_of_branch
from et_sim.fold.path_keys import PathKeys
from et_sim.machine.corrections import Correction
from et_sim.machine.model import GraphFabric, Network
from et_sim.network.fabric import (
    NONE,
    Leg,
    add_serialisation,
    describe_leaving,
    describe_leg,
    leaving_ns,
    leg_ns,
    next_leg,
    note_leg,
)
from et_sim.network.fabrics import fabric_of
from et_sim.plan.records import Plan, record, table

HAS_CONTENTION = False
REACHES_SWITCHES = True
FOLDS_GRAPHS = True
WITH_PORTS = "et_sim.network.link"  # where each carries no more than it can
SLOWEST = record(  # of what a chunk passes in a tree of switches
    ("program", "i4"),  # for which it is known
    ("ns", "i8"),
)
LONGEST = record(  # of what a chunk passes there, by class of links and sort of switches
    ("root", "i4"),  # of the tree and
    ("program", "i4"),  # for which that is known
)
WHOLE_PATH = setting_of(Correction.WHOLE_PATH)


@quick_dataclass(frozen=True)
class AnalyticalTables(Tables):
    """What compiled code knows."""

    fabric: Any
    step_flight_ns: Any  # per row of the plan's steps; NONE: it depends on who sends
    slowest: Any  # per switch that reduces; of use where it is a root
    longest: Any  # one row, about
    links_ns: Any  # per class of links and
    rates_ns: Any  # per sort of switches: the longest
    own_ns: Any  # per class of links: to put together what a sender needs


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
        rows = slice(first, first + int(program["step_period"]) * max(int(program["own_steps"]), 1))
        steps = plan.steps[rows]
        known = fabric.flights_along(network, along, steps["distance"], steps["bytes"])
        if known is not None:
            flights[rows] = known
    slowest = table(SLOWEST, len(plan.switches))
    slowest["program"] = NONE
    longest = table(LONGEST, 1)
    longest["root"] = longest["program"] = NONE
    links_ns, own_ns = np.zeros((2, fabric.causal_classes(network) if len(plan.switches) else 0), np.int64)
    rates_ns = np.zeros(len(plan.switch_classes), np.int64)
    return AnalyticalTables(fabric.tables(network), flights, slowest, longest, links_ns, rates_ns, own_ns)


def resources(network: Network, plan: Plan) -> ResourceTable:
    """Return all that an actor sends along a dimension, over a level, or over a tier of a graph's links.

    The links of a graph are told apart if every rank is simulated.
    """
    fabric: Any = fabric_of(network)
    if isinstance(network.fabric, GraphFabric) and not plan.is_folded:
        return replace(fabric.link_resources(network), are_links=False)
    found: ResourceTable = fabric.sending_resources(network, len(plan.actors))
    return found


def counts_links(network: Network) -> bool:
    """Return whether a folded run counts what each link carries: not so for the links of a graph."""
    return not isinstance(network.fabric, GraphFabric)


def path_keys(network: Network, *, whole: bool) -> PathKeys:
    """Return messages differ by what they are charged for."""
    return fabric_of(network).path_keys(network, on_links=False, whole=whole)


def needs(network: Network) -> Needs:
    """Nothing is kept of a message. What bounds a chunk in switches are all links, and the switches."""
    events = fabric_of(network).causal_events_of_message(network)
    if network.reducers:
        events += 2 * (fabric_of(network).causal_classes(network) + len(network.reducers))
    return Needs(causal_events=events)


@works_on_tables
def may_repeat(_run: Run) -> bool:
    """Nothing is kept of a message."""
    return True


@works_on_tables
def ways_turn(run: Run, source: int, target: int, other_source: int, other_target: int, size: int) -> bool:
    """Return all that counts is how long a message is under way."""
    return flight_ns(run, source, target, size) == flight_ns(run, other_source, other_target, size)


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """Its arrival is known at once."""
    now = run.clock[0].now
    if done != NONE:
        end_sending(run, now + _leaving_ns(run, source, target, size), done, b, c)
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
    describe_leaving(run.network.fabric, run, leg, size)
    return leaving_ns(run.network.fabric, leg, size)


@works_on_tables
def step_flight_ns(run: Run, step_row: int) -> int:
    """Return the same for a step of a collective, if it does not depend on who sends."""
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
    """Latency; on the way from a rank, everything else too that the chunk will take.

    What comes later streams through: it set out as much earlier.
    """
    fabric, now = run.network.fabric, run.clock[0].now
    source, target = ends_of_branch(run, branch_row, way)
    leg = next_leg(fabric, source, target)
    slowest = _slowest(run, branch_row, program_row)
    flight, left, begin = leg_ns(fabric, leg, 0), now, now - slowest
    if way == UP and run.plan.branches[branch_row].below == NONE:
        slowest = max(slowest, leaving_ns(fabric, leg, size))  # more, of a broadcast
        left, flight, begin = now + slowest, flight + slowest, now
        _describe_all(run, branch_row, program_row, leg, size)
        through = observe.described_so_far(run)
        schedule(run, left, done, 0, b, 0)
        observe.describe_from(run, through, left)
    if observe.is_recording(run) and leg.here != NONE:  # what a dimension's switch sends is no rank's
        note_leg(fabric, run, leg, begin, size)
    describe_leg(fabric, run, leg, 0)
    observe.message_flies(run, target, size, left, flight, leg.row)
    schedule(run, now + flight, kind, a, b, c)


@works_on_tables
def switch_done_ns(run: Run, switch_row: int, size: int) -> int:
    """Its rate is counted where the chunk sets out."""
    switch = run.plan.switches[switch_row]
    run.switches[switch.server].bytes += size
    observe.switch_delays(run, switch.sort)
    return run.clock[0].now + int(switch.latency_ns)


@works_on_tables
def _slowest(run: Run, branch_row: int, program_row: int) -> int:
    """What takes a chunk longest in a tree."""
    root = run.plan.switches[run.plan.branches[branch_row].switch].first_of_tree
    kept = run.network.slowest[root]
    if kept.program != program_row:
        _find_longest(run, root, program_row)
        kept.program, kept.ns = program_row, max(_most(run.network.links_ns), _most(run.network.rates_ns))
    return int(kept.ns)


@works_on_tables
def _most(times: Any) -> int:
    most = 0
    for time in times:
        most = max(most, time)
    return most


@works_on_tables
def _describe_all(run: Run, branch_row: int, program_row: int, leg: Leg, size: int) -> None:
    """What a chunk takes on each class of links, and in each sort of switches: the longest of all that."""
    if not observe.describes_causes(run):
        return
    network, now = run.network, run.clock[0].now
    root, longest = run.plan.switches[run.plan.branches[branch_row].switch].first_of_tree, network.longest[0]
    if longest.root != root or longest.program != program_row:
        _find_longest(run, root, program_row)
    for link in range(len(network.links_ns)):
        network.own_ns[link] = network.links_ns[link]
    add_serialisation(network.fabric, leg, size, network.own_ns)
    cause = observe.described_so_far(run)
    for link in range(len(network.own_ns)):
        observe.describe_beside(run, link, cause, now, now + network.own_ns[link])
    for switch_class in range(len(network.rates_ns)):
        observe.describe_rate_beside(run, switch_class, cause, now, now + network.rates_ns[switch_class])


@works_on_tables
def _find_longest(run: Run, root: int, program_row: int) -> None:
    """What a chunk takes in a tree on each class of links, and in each sort of switches."""
    network, program, first = run.network, run.plan.programs[program_row], run.plan.switches[root]
    network.longest[0].root, network.longest[0].program = root, program_row
    for times in (network.links_ns, network.rates_ns):
        for row in range(len(times)):
            times[row] = 0
    for row in range(root, root + first.switches):
        switch = run.plan.switches[row]
        size = program.up_fixed + program.up_each * switch.members
        rate_ns = int(size / switch.bytes_per_ns)
        network.rates_ns[switch.sort] = max(network.rates_ns[switch.sort], rate_ns)
        for below in range(switch.first_branch, switch.first_branch + switch.branches):
            _add_branch(run, below, program)


@works_on_tables
def _add_branch(run: Run, branch_row: int, program: Any) -> None:
    """The same of one branch; of a broadcast, ranks send nothing but for one."""
    fabric, branch = run.network.fabric, run.plan.branches[branch_row]
    for way in (UP, DOWN):
        if way == UP and not program.joins and branch.below == NONE:
            continue
        source, target = ends_of_branch(run, branch_row, way)
        leg = next_leg(fabric, source, target)
        size = program.up_fixed + program.up_each * branch.members
        if way == DOWN:
            size = program.down_fixed + program.down_each * branch.members
        add_serialisation(fabric, leg, size, run.network.links_ns)
