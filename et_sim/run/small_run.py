"""A further simulation beside a run, if it costs little.

The number of messages and nodes alone decides whether it is simulated, and never a measured time: the same
inputs give the same result.
"""

from __future__ import annotations

from et_sim.engine.driver import run_plan
from et_sim.engine.outcome import Outcome
from et_sim.engine.transport.network_seam import NetworkModel
from et_sim.machine.model import Machine
from et_sim.plan.expected import expected_messages
from et_sim.plan.lowering import Lowering, assemble
from et_sim.plan.members import Actors
from et_sim.plan.records import LoweredPlan
from et_sim.run.options import RunOptions
from et_sim.run.planning import Plan, Planner, fewest_actors
from et_sim.run.simulation import Task, moves_needed
from et_sim.run.variation import NOT_SIMULATED, OUT_OF_MEMORY, Ending, ending_of
from et_sim.timeline.out_of_memory import out_of_memory
from et_sim.trace import Workload

# Messages and nodes that compiled code simulates in a few seconds, and in half a minute.
ALWAYS, AT_MOST = 3_000_000, 30_000_000


def ending_if_small(task: Task, options: RunOptions, affordable: int, alike: int = 1) -> Ending:
    """Return the result of a task, or that it is not simulated, as it has more messages and nodes than are
    `affordable`; `alike` is the number of such simulations."""
    lowering, model = Lowering(task.workload, task.machine), task.network_model()
    outcome = _outcome(lowering, model, options, affordable, alike)
    moves = outcome and moves_needed(task.workload, lowering, outcome)
    if moves:
        lowering = Lowering(moves.workload, task.machine)
        outcome = _outcome(lowering, model, options, affordable, alike)
    if outcome is None:
        return Ending(NOT_SIMULATED)
    full = out_of_memory(outcome, lowering.workload, task.machine.system.local_memory)
    return Ending(OUT_OF_MEMORY) if full is not None and full.stopped else ending_of(outcome)


def _outcome(
    lowering: Lowering, model: NetworkModel, options: RunOptions, affordable: int, alike: int
) -> Outcome | None:
    """Simulate, and return the outcome; None if it would cost too much."""
    network = lowering.machine.network_of(has_contention=model.HAS_CONTENTION)
    folded = fewest_actors(lowering, model, options.fold)
    for actors in (folded, Actors.one_per_rank(lowering.workload.ranks)):
        plan = assemble(lowering, actors)
        if size_of(plan) > affordable:
            return None
        outcome = run_plan(plan, network, model, alike=alike, ties_alike=options.ties_alike)
        if outcome is not None:
            return outcome
    raise AssertionError("only a folded run is given up")


def size_of(plan: LoweredPlan) -> int:
    """Return the number of messages and nodes to simulate."""
    return expected_messages(plan) + int(plan.templates["nodes"][plan.actors["template"]].sum())


class TooLargeError(Exception):
    """A run has more messages and nodes than are to be simulated."""


class PlannerUpTo(Planner):
    """A planner that gives up plans of more messages and nodes than a limit."""

    def __init__(self, most: int) -> None:
        self._most = most

    def plan(
        self, workload: Workload, machine: Machine, model: NetworkModel, *, may_fold: bool, by_link: bool
    ) -> Plan:
        """Return the checked plan of a workload on a machine; `by_link`: the run records links."""
        plan = super().plan(workload, machine, model, may_fold=may_fold, by_link=by_link)
        if size_of(plan.lowered) > self._most:
            raise TooLargeError
        return plan
