"""The plan of a run: what must happen, and the actors that stand for all ranks; and plans that runs share.

Runs of one workload often differ in figures that only the simulation reads, such as bandwidths. `KeptPlans`
plans such runs once. No list names these figures: planning runs on a machine in which the figures that differ
between runs are unreadable (`unread`), and a plan that is complete all the same is that of all these runs.

Three kinds of figures are read when runs are planned, and mostly change times alone. Links of a graph have
numbers for their figures (`Graph.numbers`), which take their place unless messages spread by bandwidths that
differ. Where `time-factors` concern all ranks, a kept plan gets new durations for other values. And a
collective library chooses by bandwidths: only it reads them while a plan is made, and a kept plan gets the
paces of the library's collectives on another machine, where these send the same messages. A small plan keeps
the values that its shape determines, such as columns of its nodes (`LoweredPlan.derived`); so does a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError
from et_sim.basics.kept import Kept
from et_sim.engine.start import KeptStart
from et_sim.engine.transport.network_seam import NetworkModel
from et_sim.fold import fold as fold_ranks
from et_sim.fold.path_keys import ByLink
from et_sim.fold.shapes import shapes_of_templates
from et_sim.machine import Machine, Notice, read_machine
from et_sim.machine.corrections import Correction
from et_sim.machine.model import GraphFabric
from et_sim.plan.host import with_host
from et_sim.plan.lowering import Lowering, assemble, with_content, with_paces
from et_sim.plan.members import Actors
from et_sim.plan.mismatches import rules_of
from et_sim.plan.records import FoldLimit, LoweredPlan
from et_sim.trace import Workload
from et_sim.trace.preflight import Problem, find_mismatches

if TYPE_CHECKING:
    from et_sim.run.unread import Reads


MOST_KEPT = 4  # plans, the latest first
MOST_NODES_KEPT = 1 << 16  # of all actors: beside a larger run, making columns of nodes takes no time
REMARKS = ("configuration", "inputs", "warnings", "defaults")  # of a machine, which differ between any two

Result = TypeVar("Result")


class Plan(Struct, frozen=True, eq=False):
    """The plan of a run."""

    workload: Workload
    lowering: Lowering
    actors: Actors
    lowered: LoweredPlan
    mismatches: list[Problem] = []  # between ranks, if they were searched for
    start: KeptStart | None = None  # of the last run, if the plan is kept
    ties_alike: bool = False  # where the order of events matters, it may be the same on all folded ranks

    def unfolded(self, limits: tuple[FoldLimit, ...]) -> LoweredPlan:
        """Return the plan with an actor for each rank; `limits` are why ranks are not folded."""
        return assemble(self.lowering, Actors.one_per_rank(self.workload.ranks, limits))

    def assembled(self) -> Plan:
        """Return the plan of the content of its lowering, which further small runs begin from."""
        start = KeptStart(self.start, is_due=True)
        start.goes_ahead = False  # they have few messages
        return replace(self, lowered=assemble(self.lowering, self.actors), start=start)

    def with_content(self) -> Plan:
        """Return the plan with the nodes and collectives of its lowering, which has no others than before."""
        return replace(self, lowered=with_content(self.lowered, self.lowering))

    def on(self, machine: Machine) -> Plan | None:
        """Return the plan for a machine with other figures that only a library reads; None if it must be made
        anew.
        """
        lowering, lowered = self.lowering.on(machine), self.lowered
        if lowering is None:
            return None
        if lowering.collectives is not self.lowering.collectives:
            lowered = with_paces(lowered, lowering)
        return replace(self, lowering=lowering, lowered=lowered)

    def retimed(self, machine: Machine) -> Plan | None:
        """Return the plan for a machine with other values of `time-factors`; None if it must be made anew."""
        lowering = self.lowering.retimed(machine)
        if lowering is None:
            return None
        is_one = len(self.workload.templates) == 1  # else durations decide which are the same program
        if not is_one and not np.array_equal(*map(shapes_of_templates, (self.lowering, lowering))):
            return None
        lowered = replace(self.lowered, nodes=lowering.nodes, notices=lowering.notices)
        return replace(self, lowering=lowering, lowered=lowered)


def plan_of(
    workload: Workload,
    machine: Machine,
    model: NetworkModel,
    *,
    may_fold: bool,
    by_link: bool = False,
    paced_on: Machine | None = None,
) -> Plan:
    """Return the plan of a workload on a machine; `by_link`: the run records the actors' links.

    The collectives of a library are those on `paced_on`, as a rule the machine itself.
    """
    lowering = Lowering(workload, machine, paced_on)
    actors = fewest_actors(lowering, model, may_fold, by_link=by_link)
    return Plan(workload, lowering, actors, assemble(lowering, actors))


def checked_plan(
    workload: Workload,
    machine: Machine,
    model: NetworkModel,
    *,
    may_fold: bool,
    by_link: bool,
    paced_on: Machine | None = None,
) -> Plan:
    """Return the plan (`plan_of`), with messages and collectives that do not match."""
    plan = plan_of(workload, machine, model, may_fold=may_fold, by_link=by_link, paced_on=paced_on)
    return replace(plan, mismatches=find_mismatches(workload, machine.groups, rules_of(machine.system)))


class Planner:
    """A planner that plans every run by itself."""

    def machine(self, **given: Any) -> Machine:
        """Return the machine that files describe (`read_machine`)."""
        return read_machine(**given)

    def plan(
        self, workload: Workload, machine: Machine, model: NetworkModel, *, may_fold: bool, by_link: bool
    ) -> Plan:
        """Return the checked plan of a workload on a machine; `by_link`: the run records links."""
        return checked_plan(workload, machine, model, may_fold=may_fold, by_link=by_link)

    def with_host(
        self, workload: Workload, launch_ns: float, step_ns: float, *, waits: bool
    ) -> tuple[Workload, list[Notice]]:
        """Return the workload with the launches of its host, and remarks (`plan.host.with_host`)."""
        return with_host(workload, launch_ns, step_ns, waits=waits)


def fewest_actors(
    lowering: Lowering, model: NetworkModel, may_fold: bool, *, by_link: bool = False
) -> Actors:
    """Return as few actors as may behave like all ranks; `by_link`: they also use equal links."""
    unfolded = Actors.one_per_rank(lowering.workload.ranks)
    if not may_fold:
        return unfolded
    machine, network = lowering.machine, lowering.machine.network
    if isinstance(network.fabric, GraphFabric):
        from et_sim.network.spread import by_numbers

        network = by_numbers(network)
    if by_link and not model.counts_links(network):
        return unfolded
    whole = machine.system.behaviour.corrects(Correction.WHOLE_PATH)
    paths = model.path_keys(network, whole=whole)
    actors = fold_ranks(lowering, ByLink(paths) if by_link and paths is not None else paths)
    # The search for ties must not separate ranks that start together.
    if lowering.start_together and len(actors) > 1:
        return replace(unfolded, limits=actors.limits)
    return actors


class _Case(Struct, eq=False):
    """Runs of one workload that may share plans."""

    workload: Workload
    rules: tuple[Any, ...]  # the model's functions, and the choices for folding
    reads: Reads  # of figures that planning needs


class _Kept(Struct, eq=False):
    case: _Case
    machine: Machine  # the common part of all machines that have the plan
    plan: Plan


class KeptPlans(Planner):
    """A planner that keeps plans, and finds the runs that share one; `guarded` calls these runs.

    Their outcomes are valid until the next run begins.
    """

    def __init__(self) -> None:
        from et_sim.machine.kept_systems import KeptSystems

        self.made = 0  # plans, for tests
        self._kept: list[_Kept] = []
        self._cases: list[_Case] = []
        self._hosted: list[tuple[Workload, tuple[Any, ...], tuple[Workload, list[Notice]]]] = []
        self._reads = 0  # of cases that are no longer kept
        self._systems = KeptSystems()

    def guarded(self, run: Callable[[Planner], Result]) -> Result:
        """Return the result of a run with kept plans, or without if it reads a figure that they hide."""
        from et_sim.run.unread import FigureReadError

        before = self._all_reads()
        try:
            result = run(self)
        except (FigureReadError, Exception):
            if self._all_reads() == before:
                raise
        else:
            if self._all_reads() == before:
                return result
        return run(Planner())

    def machine(self, **given: Any) -> Machine:
        """Return the machine that files describe; machines may share a system that is read once."""
        return read_machine(**given, systems=self._systems)

    def _all_reads(self) -> int:
        return self._reads + sum(case.reads.count for case in self._cases)

    def plan(
        self, workload: Workload, machine: Machine, model: NetworkModel, *, may_fold: bool, by_link: bool
    ) -> Plan:
        """Return the plan of a workload on a machine, which may be that of an earlier machine."""
        case = self._case(workload, (model.tables, model.path_keys, may_fold, by_link))
        for kept in self._kept:
            if kept.case is case and (plan := _fitted(kept, machine)) is not None:
                self._use(kept)
                return plan
        plan = self._made(case, machine, model, may_fold=may_fold, by_link=by_link).on(machine)
        assert plan is not None, "its library's collectives are those on this machine"
        return plan

    def with_host(
        self, workload: Workload, launch_ns: float, step_ns: float, *, waits: bool
    ) -> tuple[Workload, list[Notice]]:
        """Return the workload with the launches of its host, and remarks; the same one for the same times."""
        times = (launch_ns, step_ns, waits)
        for given, known, hosted in self._hosted:
            if given is workload and known == times:
                return hosted
        hosted = super().with_host(workload, launch_ns, step_ns, waits=waits)
        self._hosted = [(workload, times, hosted), *self._hosted[: MOST_KEPT - 1]]
        return hosted

    def _case(self, workload: Workload, rules: tuple[Any, ...]) -> _Case:
        from et_sim.run.unread import Reads

        for case in self._cases:
            if case.workload is workload and case.rules == rules:
                return case
        case = _Case(workload, rules, Reads())
        self._reads += sum(old.reads.count for old in self._cases[MOST_KEPT - 1 :])
        self._cases = [case, *self._cases[: MOST_KEPT - 1]]
        self._kept = [kept for kept in self._kept if kept.case in self._cases]
        return case

    def _made(
        self, case: _Case, machine: Machine, model: NetworkModel, *, may_fold: bool, by_link: bool
    ) -> Plan:
        """Make a plan for as many machines as possible: this one, and those of a kept plan."""
        from et_sim.run.unread import Unread

        hidden = replace(machine, **{name: Unread(f".{name}", case.reads.note) for name in REMARKS})
        how: dict[str, Any] = {"may_fold": may_fold, "by_link": by_link, "paced_on": machine}
        for kept in [kept for kept in self._kept if kept.case is case]:
            while (common := _common(kept.machine, hidden, case)) is not None:
                known = len(case.reads.paths)
                plan = self._without_reads(case, common, model, how)
                if plan is not None:
                    if common is kept.machine:  # whose library sends other messages on this machine
                        kept = _Kept(case, common, plan)
                    kept.plan, kept.machine = plan, common
                    self._use(kept)
                    return plan
                if len(case.reads.paths) == known:
                    break
        plan = self._without_reads(case, hidden, model, how)
        if plan is None:  # it reads remarks
            self.made += 1
            return checked_plan(case.workload, machine, model, **how)
        self._use(_Kept(case, hidden, plan))
        return plan

    def _without_reads(
        self, case: _Case, machine: Machine, model: NetworkModel, how: dict[str, Any]
    ) -> Plan | None:
        """Return the plan on a machine with unreadable figures; None if it depends on one of them.

        Functions of C, such as those of regular expressions, refuse such a figure without a read.
        """
        from et_sim.run.unread import FigureReadError

        before = case.reads.count
        try:
            plan = checked_plan(case.workload, machine, model, **how)
        except (FigureReadError, Exception) as error:
            if case.reads.count == before and isinstance(error, EtSimError):
                raise
            return None
        if case.reads.count != before:
            return None
        self.made += 1
        is_small = len(plan.lowered.actors) * len(plan.lowered.nodes) <= MOST_NODES_KEPT
        lowered = replace(plan.lowered, kept=Kept()) if is_small else plan.lowered
        return replace(plan, start=KeptStart(), lowered=lowered)

    def _use(self, used: _Kept) -> None:
        """Put a plan before all others, the last of which is dropped if they are too many."""
        if self._kept and self._kept[0] is used:
            return
        self._kept = [used, *(kept for kept in self._kept if kept is not used)][:MOST_KEPT]


def _fitted(kept: _Kept, machine: Machine) -> Plan | None:
    """Return a kept plan for a machine; None if it must be planned anew."""
    factors, plan, alike = kept.machine.system.time_factors, kept.plan, machine
    is_retimed = type(factors) is tuple and bool(factors) and factors != machine.system.time_factors
    if is_retimed:
        alike = replace(machine, system=replace(machine.system, time_factors=factors))
    if _common(kept.machine, alike, kept.case) is not kept.machine:
        return None
    retimed = plan.retimed(machine) if is_retimed else plan
    return None if retimed is None else retimed.on(machine)


def _common(first: Machine, second: Machine, case: _Case) -> Machine | None:
    """Return the common part of two machines; None if planning reads figures in which they differ."""
    from et_sim.run.unread import DifferentError, merged

    try:
        common: Machine = merged(first, second, case.reads)
    except DifferentError:
        return None
    return common
