"""Analytical network: a message takes its latency and its serialisation, independent of other messages.

Links have no state. A message is charged for the first leg of its path, as in the reference. In a grid, that
is the *lowest* dimension in which the two ranks differ: hops * latency + bytes / bandwidth, truncated once. A
ring goes the shorter way round, a switch takes two hops, a fully connected dimension one. With WHOLE_PATH,
the message is charged for every leg, one after the other. On idle links, the link model gives the same where
all hops are fully connected; it serialises a message on every link, so a ring of h hops takes h
serialisations there and one here, a switch two and one. Where links of a dimension differ in speed, the
latencies of those on the path are summed, and the slowest one sets the bandwidth.

Data streams through switches that reduce. A chunk takes all latencies of its path, and once, on its first
link, the serialisation of the slowest link or switch of the tree. A member sends its chunks one after the
other.

On the levels of ASTRA-sim 1.0, a message has one leg, over the highest level.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

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
from et_sim.plan.records import LoweredPlan, record, table

HAS_CONTENTION = False
REACHES_SWITCHES = True
FOLDS_GRAPHS = True
WITH_PORTS = "et_sim.network.link"  # where port bandwidth is limited
SLOWEST = record(  # the longest time of a chunk in a tree of switches
    ("program", "i4"),  # the program for which it is computed
    ("ns", "i8"),
)
LONGEST = record(  # the longest times of a chunk there, by class of links and kind of switches
    ("root", "i4"),  # the tree and
    ("program", "i4"),  # the program for which they are computed
)
WHOLE_PATH = setting_of(Correction.WHOLE_PATH)


class AnalyticalTables(Tables, Struct, frozen=True):
    """Tables of the analytical network for compiled code."""

    fabric: Any
    step_flight_ns: Any  # per row of the plan's steps; NONE: it depends on the sender
    slowest: Any  # per switch that reduces; used where it is a root
    longest: Any  # one row: the tree and program of the two below
    links_ns: Any  # per class of links and
    rates_ns: Any  # per kind of switches: the longest
    own_ns: Any  # per class of links: the same for one sender


def check(network: Network, most_bytes: int = 0) -> None:
    """Refuse messages that would take too long."""
    fabric_of(network).check_reach(network, most_bytes)


def tables(network: Network, plan: LoweredPlan) -> AnalyticalTables:
    """Return the tables, with the flight times of steps that stay within one dimension."""
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


def resources(network: Network, plan: LoweredPlan) -> ResourceTable:
    """Return the resources: what actors send along a dimension, over a level, or over a tier of a graph's
    links.

    The links of a graph are separate if every rank is simulated.
    """
    fabric: Any = fabric_of(network)
    if isinstance(network.fabric, GraphFabric) and not plan.is_folded:
        return replace(fabric.link_resources(network), are_links=False)
    found: ResourceTable = fabric.sending_resources(network, len(plan.actors))
    return found


def counts_links(network: Network) -> bool:
    """Return whether a folded run counts what each link carries; it does not for the links of a graph."""
    return not isinstance(network.fabric, GraphFabric)


def path_keys(network: Network, *, whole: bool) -> PathKeys:
    """Return keys that separate messages by their charges."""
    return fabric_of(network).path_keys(network, on_links=False, whole=whole)


def needs(network: Network) -> Needs:
    """Return the needs: no row per message; all links and switches of a tree may bound a chunk."""
    events = fabric_of(network).causal_events_of_message(network)
    if network.reducers:
        events += 2 * (fabric_of(network).causal_classes(network) + len(network.reducers))
    return Needs(causal_events=events)


@works_on_tables
def may_repeat(_run: Run) -> bool:
    """Return true: messages have no state."""
    return True


@works_on_tables
def ways_turn(run: Run, source: int, target: int, other_source: int, other_target: int, size: int) -> bool:
    """Return whether two messages take equal times."""
    return flight_ns(run, source, target, size) == flight_ns(run, other_source, other_target, size)


@works_on_tables
def inject(
    run: Run, source: int, target: int, size: int, kind: int, a: int, b: int, c: int, done: int
) -> None:
    """Schedule the arrival of a message, which is fixed when it is sent."""
    now = run.clock[0].now
    if done != NONE:
        end_sending(run, now + _leaving_ns(run, source, target, size), done, b, c)
    schedule(run, now + flight_ns(run, source, target, size), kind, a, b, c)


@works_on_tables
def flight_ns(run: Run, source: int, target: int, size: int) -> int:
    """Return how long a message that is sent now takes; a message to its own rank takes no time."""
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
    """Return how long it takes until the last byte has left the source."""
    leg = next_leg(run.network.fabric, source, target)
    if leg.row == NONE:
        return 0
    describe_leaving(run.network.fabric, run, leg, size)
    return leaving_ns(run.network.fabric, leg, size)


@works_on_tables
def step_flight_ns(run: Run, step_row: int) -> int:
    """Return the flight time of a step of a collective; NONE if it depends on the sender."""
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
    """Pass a chunk over a branch: latency and, from a rank, the serialisation of the whole tree.

    Later parts stream through: they were sent earlier by that time.
    """
    fabric, now = run.network.fabric, run.clock[0].now
    source, target = ends_of_branch(run, branch_row, way)
    leg = next_leg(fabric, source, target)
    slowest = _slowest(run, branch_row, program_row)
    flight, left, begin = leg_ns(fabric, leg, 0), now, now - slowest
    if way == UP and run.plan.branches[branch_row].below == NONE:
        slowest = max(slowest, leaving_ns(fabric, leg, size))  # the source of a broadcast may take longer
        left, flight, begin = now + slowest, flight + slowest, now
        _describe_all(run, branch_row, program_row, leg, size)
        through = observe.described_so_far(run)
        schedule(run, left, done, 0, b, 0)
        observe.describe_from(run, through, left)
    if observe.is_recording(run) and leg.here != NONE:  # a dimension's switch sends for no rank
        note_leg(fabric, run, leg, begin, size)
    describe_leg(fabric, run, leg, 0)
    observe.message_flies(run, target, size, left, flight, leg.row)
    schedule(run, now + flight, kind, a, b, c)


@works_on_tables
def switch_done_ns(run: Run, switch_row: int, size: int) -> int:
    """Return when a switch has reduced a chunk: its latency, because the rate was charged at the source."""
    switch = run.plan.switches[switch_row]
    run.switches[switch.server].bytes += size
    observe.switch_delays(run, switch.sort)
    return run.clock[0].now + int(switch.latency_ns)


@works_on_tables
def _slowest(run: Run, branch_row: int, program_row: int) -> int:
    """Return the longest time of a chunk on any link or switch of a tree."""
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
    """Describe the time of a chunk on each class of links and in each kind of switches: the
    longest counts.
    """
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
    """Set the longest time of a chunk in a tree for each class of links and each kind of switches."""
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
    """Add the times of one branch; in a broadcast, only one rank sends."""
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
