"""What a search evaluates: of the points of a sweep those that may be best, on one network model or several.

What is in the journal stands for an evaluation, and all choices are made again from the beginning; so an
interrupted search goes on. Not here: which points are chosen (`choosing`), and what is looked for (`goal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from et_sim.basics.errors import EtSimError, InputError
from et_sim.sweeps.bounds import Bound, bounds_of_points
from et_sim.sweeps.choosing import ByBounds, ByOptuna, Chooser
from et_sim.sweeps.goal import BOUNDS, OPTUNA, Goal, SearchResult, Values, bounded, front_of, least_dominated
from et_sim.sweeps.journal import Journal
from et_sim.sweeps.progress import Watcher
from et_sim.sweeps.runners import Runner
from et_sim.sweeps.state import State, SweepPlan
from et_sim.sweeps.table import Point

RUNG = "rung-"  # folders of what was found on cheaper models


def search(
    plan: SweepPlan, goal: Goal, journal: Journal, folder: Path, runner: Runner, watch: Watcher
) -> tuple[State, SearchResult, Any]:
    """Evaluate what may be best, and write the tables; the last state, what was found, the last table."""
    findings: SearchResult | None = None
    values: dict[int, Values] = {}
    for place, model in enumerate(goal.ladder):
        if findings is not None:
            survivors = set(least_dominated(values, goal.keep))
            plan = plan.on_model(model, [point for point in plan.points if point.number in survivors])
        is_last = place + 1 == len(goal.ladder)
        at = folder if is_last else folder / f"{RUNG}{place + 1}"
        rung = _Rung(goal, State(plan, journal, at, model), runner, watch)
        with rung.state.written_at_worst():
            if findings is None:
                findings, values = rung.descend()
            else:
                watch.begin(f"searching on {model}", len(plan.points))
                values = rung.evaluate(plan.points)
                findings.front = front_of(values)
        at.mkdir(exist_ok=True)
        table = rung.state.write(to_builtins(findings))
    assert findings is not None
    return rung.state, findings, table


class _Rung(Struct):
    """A search on one network model."""

    goal: Goal
    state: State
    runner: Runner
    watch: Watcher

    def descend(self) -> tuple[SearchResult, dict[int, Values]]:
        """Evaluate what may be best, as far as the budget reaches; the objectives of what is looked for."""
        goal, points = self.goal, self.state.plan.points
        bounds, refusals = self._bounds()
        possible = [
            point
            for point in points
            if point.number not in refusals
            and goal.admits(self.state.plan.named(point))
            and not _exceeds(goal, bounds.get(point.number, {}))
        ]
        if not possible:
            if refusals:
                raise next(iter(refusals.values()))
            return SearchResult.of(goal, BOUNDS, impossible=len(points)), {}
        chooser, method = self._chooser(possible, bounds)
        findings = SearchResult.of(goal, method)
        findings.impossible = len(points) - len(possible)
        most = len(possible) if goal.budget is None else min(goal.budget, len(possible))
        self.watch.begin("searching", most)
        values: dict[int, Values] = {}
        while findings.evaluated < most:
            batch = chooser.choose(min(goal.at_once, most - findings.evaluated))
            if not batch:
                break
            learnt = self.evaluate(batch)
            for point in batch:
                chooser.learn(point, learnt.get(point.number))
            values |= learnt
            findings.evaluated += len(batch)
        findings.left = chooser.left()
        findings.ruled_out = len(possible) - findings.evaluated - findings.left
        findings.front = front_of(values)
        return findings, values

    def _bounds(self) -> tuple[Mapping[int, Bound], Mapping[int, EtSimError]]:
        if self.goal.method == OPTUNA:
            return {}, {}
        points = self.state.plan.points
        self.watch.begin("finding bounds", len(points))
        return bounds_of_points(self.state.plan.space, points, self.watch)

    def _chooser(self, points: Sequence[Point], bounds: Mapping[int, Bound]) -> tuple[Chooser, str]:
        goal = self.goal
        has_bounds = any(
            bounds.get(point.number, {}).get(name) for point in points for name in goal.objectives
        )
        if goal.method == BOUNDS and not has_bounds:
            raise InputError(
                "search: no bounds are known of these points",
                place=self.state.plan.sweep.text.at("search", "method"),
                remedy="they are of workloads of kind llm: take the method optuna",
            )
        if has_bounds:
            return ByBounds(goal, points, bounds), BOUNDS
        if goal.budget is None:
            why = "optuna rules no point out" if goal.method else "no bounds are known of these points"
            raise InputError(
                f"search: {why}, so nothing says when it may end",
                place=self.state.plan.sweep.text.at("search"),
                remedy="add a budget, such as budget: 50",
            )
        return ByOptuna(goal, self.state.plan.sweep.axes, points), OPTUNA

    def evaluate(self, points: Sequence[Point]) -> dict[int, Values]:
        """All of some points; the objectives of those that are looked for."""
        known = self.state.known()
        new = list({point.digest: point for point in points if point.digest not in known}.values())
        self.watch.add(len(points) - len(new), 0)
        if new:
            self.state.work(self.runner, self.state.tasks(new, saves=False), self.watch)
        return self.state.values(self.goal, points)


def _exceeds(goal: Goal, bound: Bound) -> bool:
    """Whether a point with such bounds cannot meet the constraints."""
    return any(bounded(name, bound) > most for name, most in goal.limits.items())
