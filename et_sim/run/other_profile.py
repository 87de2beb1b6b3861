"""A run of the reference profile in the corrected profile, and the corrections that matter for it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from et_sim.basics.errors import EtSimError
from et_sim.engine.outcome import Outcome
from et_sim.machine.corrections import Correction, Profile
from et_sim.plan.acting import CONDITIONS, may_act
from et_sim.plan.lowering import Lowering, assemble
from et_sim.plan.members import Actors
from et_sim.plan.records import LoweredPlan
from et_sim.run.options import RunOptions
from et_sim.run.simulation import Change, Task
from et_sim.run.small_run import ALWAYS, AT_MOST, ending_if_small, size_of
from et_sim.run.variation import NOT_SIMULATED, REFUSED, Ending, Variations, ending_of
from et_sim.trace import Workload

MOST_NODES_LOWERED = 2_000_000
LIKELIEST = Correction.CONCURRENT_COMMUNICATION  # it usually makes all of the difference


def other_profile(
    options: RunOptions,
    change: Change,
    task: Task,
    outcome: Outcome,
    simulated: Workload,
) -> dict[str, Any]:
    """Return the result of the corrected profile as plain values; `outcome` is that of `task`, whose workload
    may have been `simulated` with moves to remote memory.

    Beside a complete run, it is simulated if that takes a few seconds; else it has to be named. Beside one
    that stalls, which is no result, it may take as long as that run.
    """
    again = Variations(task.given, replace(options, model=task.model.name), change)
    trials = _Trials(again, outcome.plan, task, simulated)
    now = ending_of(outcome)
    missing = frozenset(Correction) - task.machine.system.behaviour.corrections
    try:
        corrected = again.task(profile=Profile.CORRECTED.value)
        affordable = ALWAYS if outcome.is_complete else max(ALWAYS, min(size_of(outcome.plan), AT_MOST))
        tried = ending_if_small(corrected, again.options, affordable)
        missing &= corrected.machine.system.behaviour.corrections
    except EtSimError as error:
        tried = Ending(REFUSED, reason=str(error))
    acting = Acting((), is_measured=True)
    if tried.status != REFUSED and tried != now:
        acting = trials.acting(missing, now, tried)
    return {
        "profile": Profile.CORRECTED.value,
        **to_builtins(tried),
        "measured": acting.is_measured,
        "corrections": [
            {"correction": correction.value, **to_builtins(tried)} for correction, tried in acting.tried
        ],
    }


class Acting(Struct, frozen=True):
    """Corrections that act, and the result with each by itself."""

    tried: tuple[tuple[Correction, Ending], ...]
    is_measured: bool  # otherwise they may act


class _Trials:
    """Simulations of the same run with other corrections, as far as their cost is low."""

    def __init__(
        self,
        again: Variations,
        plan: LoweredPlan,
        task: Task,
        simulated: Workload,
    ) -> None:
        self._again = again
        self._simulated = simulated  # the workload of the plan
        self._plan, self._has_contention = plan, task.network_model().HAS_CONTENTION
        self._actors = Actors(plan.actor_of_rank, plan.actors["rank"])

    def acting(self, missing: frozenset[Correction], now: Ending, corrected: Ending) -> Acting:
        """Return those of the missing corrections that change the result by themselves; or only the one that
        makes the whole difference."""
        if self._has_contention:  # messages cross all links on their way, in any profile
            missing -= {Correction.WHOLE_PATH}
        size = size_of(self._plan)
        if LIKELIEST in missing and CONDITIONS[LIKELIEST](self._plan) and size <= ALWAYS:
            result = self._by_itself(LIKELIEST, ALWAYS, 1)
            if result == corrected:
                return Acting(((LIKELIEST, result),), is_measured=True)
        if len(self._plan.nodes) * len(missing) > MOST_NODES_LOWERED:
            return Acting((), is_measured=False)
        candidates = may_act(self._plan, missing, self._planned)
        if size * len(candidates) > ALWAYS:
            return Acting(
                tuple((candidate, Ending(NOT_SIMULATED)) for candidate in candidates), is_measured=False
            )
        acting: list[tuple[Correction, Ending]] = []
        for candidate in candidates:
            result = self._by_itself(candidate, ALWAYS // len(candidates), len(candidates))
            if result == corrected:
                return Acting(((candidate, result),), is_measured=True)
            acting += [(candidate, result)] * (result != now)
        return Acting(tuple(acting), is_measured=True)

    def _by_itself(self, correction: Correction, affordable: int, alike: int) -> Ending:
        try:
            task = self._with(frozenset({correction}))
            return ending_if_small(task, self._again.options, affordable, alike)
        except EtSimError as error:
            return Ending(REFUSED, reason=str(error))

    def _planned(self, more: frozenset[Correction]) -> LoweredPlan | None:
        """Return the plan with more corrections; None if the machine or the workload is refused."""
        try:
            task = self._with(more)
            workload = task.workload if task.layer_file else self._simulated
            return assemble(Lowering(workload, task.machine), self._actors)
        except EtSimError:
            return None

    def _with(self, more: frozenset[Correction]) -> Task:
        return self._again.task(corrections=more)
