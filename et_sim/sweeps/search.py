"""A search from its description to its table: points of a sweep that may be best are evaluated, others not.

It keeps what it evaluates as a sweep does, so nothing is evaluated twice, and an interrupted search goes on:
what is in the journal stands for an evaluation, and all choices are made again from the beginning.

Not here: which points are chosen (`choosing`), and what is looked for (`goal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from et_sim.basics.errors import EtSimError, InputError, UsageError
from et_sim.sweeps.bounds import Bound, bounds_of_points
from et_sim.sweeps.choosing import ByBounds, ByOptuna, Chooser
from et_sim.sweeps.goal import (
    BOUNDS,
    OPTUNA,
    Found,
    Goal,
    Values,
    bounded,
    front_of,
    goal_of,
    least_dominated,
)
from et_sim.sweeps.journal import Journal
from et_sim.sweeps.progress import Nobody, Watcher
from et_sim.sweeps.runners import Runner
from et_sim.sweeps.spec import Given
from et_sim.sweeps.sweep import NOTHING, Keep, State, SweepPlan, on_model, parse_keep, plan_sweep, runners
from et_sim.sweeps.table import Point
from et_sim.tables.of_sweeps import FILES, TABLE

RUNG = "rung-"  # folders of what was found on cheaper models


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """A search with its inputs read and its points counted."""

    plan: SweepPlan
    goal: Goal

    @property
    def name(self) -> str:
        """What its directory is called if nobody says it."""
        return f"{Path(self.plan.sweep.text.place).stem}.search"


@dataclass(frozen=True, slots=True)
class SearchReport:
    """What a search did, and its table."""

    table: Any
    found: Found
    known: int  # points that were evaluated before


def plan_search(given: Given) -> SearchPlan:
    """Read a search."""
    plan = plan_sweep(given, may_be_large=True)
    goal = goal_of(plan.sweep)
    first = goal.ladder[0]
    return SearchPlan(plan if first is None else on_model(plan, first, plan.points), goal)


def search(
    planned: SearchPlan,
    folder: Path,
    *,
    workers: int | None = None,
    dask: str | None = None,
    keep: str = NOTHING,
    watch: Watcher | None = None,
) -> SearchReport:
    """Evaluate what may be best, and write the tables; so they are, too, when something ends it early.

    Of the points that `keep` names, the whole runs are written; the best ones are the first of the front.
    """
    plan, goal = planned.plan, planned.goal
    watch = watch or Nobody()
    kept = parse_keep(keep, len(plan.points))
    with runners(plan.space, workers, dask) as (runner, local), Journal(folder) as journal:
        before = len(journal.finished)
        last = len(goal.ladder) - 1
        found: Found | None = None
        chosen: dict[int, Values] = {}
        for place, model in enumerate(goal.ladder):
            if place:
                assert model is not None
                survivors = set(least_dominated(chosen, goal.keep))
                plan = on_model(plan, model, [one for one in plan.points if one.number in survivors])
            at = folder if place == last else folder / f"{RUNG}{place + 1}"
            rung = _Rung(goal, State(plan, journal, at, model), runner, watch)
            try:
                if found is None:
                    found, chosen = rung.descend()
                else:
                    chosen = rung.evaluate(plan.points)
                    found.front = front_of(chosen)
            except BaseException:
                with suppress(EtSimError):  # what ended the search is said, not what it brings about
                    rung.state.write()
                raise
            at.mkdir(exist_ok=True)
            table = rung.state.write(asdict(found))
        assert found is not None
        _keep(
            replace(kept, best=0, numbers=kept.numbers | {*found.front[: kept.best]}),
            rung.state,
            local,
            watch,
        )
        return SearchReport(table, found, before)


def _keep(kept: Keep, state: State, local: Runner, watch: Watcher) -> None:
    """Write whole runs of points that were evaluated."""
    known = state.known()
    missing = kept.numbers - {one.number for one in state.plan.points if one.digest in known}
    if missing:
        raise UsageError(
            f"--keep names point {min(missing)}, which the search did not evaluate",
            remedy=f"it evaluated those of {FILES[TABLE]}",
        )
    state.evaluate(local, state.tasks(state.to_keep(kept), saves=True), "keeping runs", watch)


@dataclass(slots=True)
class _Rung:
    """A search on one network model."""

    goal: Goal
    state: State
    runner: Runner
    watch: Watcher

    def descend(self) -> tuple[Found, dict[int, Values]]:
        """Evaluate what may be best, as far as the budget reaches; the objectives of what is looked for."""
        goal, points = self.goal, self.state.plan.points
        bounds, refusals = self._bounds()
        possible = [
            one
            for one in points
            if one.number not in refusals
            and goal.admits(self.state.plan.named(one))
            and not _exceeds(goal, bounds.get(one.number, {}))
        ]
        if not possible:
            if refusals:
                raise next(iter(refusals.values()))
            return Found.of(goal, BOUNDS, impossible=len(points)), {}
        chooser, method = self._chooser(possible, bounds)
        found = Found.of(goal, method)
        found.impossible = len(points) - len(possible)
        most = len(possible) if goal.budget is None else min(goal.budget, len(possible))
        self.watch.begin("searching", most)
        values: dict[int, Values] = {}
        while found.evaluated < most:
            batch = chooser.choose(min(goal.at_once, most - found.evaluated))
            if not batch:
                break
            values |= self._learn(batch, chooser)
            found.evaluated += len(batch)
        found.left = chooser.left()
        found.ruled_out = len(possible) - found.evaluated - found.left
        found.front = front_of(values)
        return found, values

    def _bounds(self) -> tuple[Mapping[int, Bound], Mapping[int, EtSimError]]:
        if self.goal.method == OPTUNA:
            return {}, {}
        points = self.state.plan.points
        self.watch.begin("finding bounds", len(points))
        return bounds_of_points(self.state.plan.space, points, self.watch)

    def _chooser(self, points: Sequence[Point], bounds: Mapping[int, Bound]) -> tuple[Chooser, str]:
        goal = self.goal
        has_bounds = any(bounds.get(one.number, {}).get(name) for one in points for name in goal.objectives)
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

    def _learn(self, batch: Sequence[Point], chooser: Chooser) -> dict[int, Values]:
        found = self._rows(batch)
        for one in batch:
            chooser.learn(one, found.get(one.number))
        return found

    def evaluate(self, points: Sequence[Point]) -> dict[int, Values]:
        """All of some points; the objectives of those that are looked for."""
        self.watch.begin(f"searching on {self.state.model}", len(points))
        return self._rows(points)

    def _rows(self, points: Sequence[Point]) -> dict[int, Values]:
        known = self.state.known()
        new = list({one.digest: one for one in points if one.digest not in known}.values())
        self.watch.add(len(points) - len(new), 0)
        if new:
            self.state.work(self.runner, self.state.tasks(new, saves=False), self.watch)
            known = self.state.known()
        found: dict[int, Values] = {}
        for one in points:
            values = self.goal.values(self.state.plan.named(one), known[one.digest].row)
            if values is not None:
                found[one.number] = values
        return found


def _exceeds(goal: Goal, bound: Bound) -> bool:
    """Whether a point with such bounds cannot meet the constraints."""
    return any(bounded(name, bound) > most for name, most in goal.limits.items())
