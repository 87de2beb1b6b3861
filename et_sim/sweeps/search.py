"""Searches: the evaluation of those points of a sweep that may be best, chosen by bounds or by Optuna.

Points are chosen in batches of a fixed size, before any of the batch is evaluated, whatever the runner; so
equal seeds choose equal points. Rows in the journal replace evaluations while all choices are repeated from
the beginning; so an interrupted search continues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from msgspec import Struct, to_builtins

from et_sim.basics.errors import EtSimError, InputError, UsageError
from et_sim.recipes.recipe import is_serving
from et_sim.sweeps.axes import SweepAxis
from et_sim.sweeps.bounds import Bound, FullError, PointBounds, bounds_of_points, gap_of, reasons
from et_sim.sweeps.evaluate import OUT_OF_MEMORY, Runner
from et_sim.sweeps.goal import (
    ALL,
    BOUNDS,
    OPTUNA,
    Goal,
    SearchResult,
    Values,
    bounded,
    front_of,
    least_dominated,
)
from et_sim.sweeps.journal import Journal, Point
from et_sim.sweeps.state import State, SweepPlan, SweepWatcher
from et_sim.views.sweep.scales import quantity_named

SMALLEST = 1e-30  # least divisor of bounds
FIRST_AT_RANDOM = 10  # points before Optuna's sampler uses its model


class Chooser(Protocol):
    """A chooser of points."""

    def choose(self, count: int) -> list[Point]:
        """Return up to `count` points that were not chosen before; none if no other one can be better."""

    def learn(self, point: Point, values: Values | None) -> None:
        """Record the objectives of a point; None: it breaks a condition, or is incomplete."""

    def left(self) -> int:
        """Return the number of points that may still be among the best."""

    def to_come(self) -> int:
        """Return the number of points that would be chosen if no better one was found."""

    def gap(self) -> float | None:
        """Return the share by which points that were not chosen may be better; None: not known."""


class ByBounds:
    """A chooser of the points with the best bounds, without points that are certain to be worse than others.

    If there are several objectives, points are sorted by the sum of their bounds, each divided by its
    largest.
    """

    def __init__(self, goal: Goal, points: Sequence[Point], bounds: Mapping[int, Bound]) -> None:
        self._goal = goal
        least = {
            point.number: tuple(bounded(name, bounds.get(point.number, {})) for name in goal.objectives)
            for point in points
        }
        table = np.array(list(least.values()), np.float64).reshape(len(least), -1)
        size = np.where(np.isfinite(table), np.abs(table), 0.0)
        scale = np.maximum(size.max(axis=0, initial=0.0), SMALLEST)
        order = np.lexsort((np.arange(len(points)), (table / scale).sum(axis=1)))
        self._left = [points[place] for place in order.tolist()]
        self._least = least
        self._numbers: list[int] = []
        self._values: list[Values] = []

    def choose(self, count: int) -> list[Point]:
        """Return the next points, without those that are ruled out."""
        self._rule_out()
        chosen, self._left = self._left[:count], self._left[count:]
        for point in chosen:
            del self._least[point.number]
        return chosen

    def gap(self) -> float | None:
        """Return the share by which other points may be better; None: not known, or several objectives."""
        if len(self._goal.objectives) > 1 or not self._values:
            return None
        return gap_of(min(self._values)[0], (least[0] for least in self._least.values()))

    def _rule_out(self) -> None:
        if len(self._values) > self._goal.runners_up:
            self._left = self._possible()

    def _possible(self) -> list[Point]:
        """Return the points that are not chosen, and may be better than those that are."""
        numbers = np.array(self._numbers, np.int64)
        values = np.array(self._values, np.float64).reshape(len(numbers), len(self._goal.objectives))
        eased = 1 + self._goal.within
        values = np.where(values > 0, values / eased, values * eased)  # less is better
        return [point for point in self._left if not self._is_ruled_out(point, numbers, values)]

    def _is_ruled_out(self, point: Point, numbers: Any, values: Any) -> bool:
        least = self._least[point.number]
        never_more = (values <= least).all(axis=1)
        comes_first = (values < least).any(axis=1) | (numbers < point.number)
        return int((never_more & comes_first).sum()) >= self._goal.keep

    def learn(self, point: Point, values: Values | None) -> None:
        """Record a point that others are compared with."""
        if values is not None:
            self._numbers.append(point.number)
            self._values.append(values)

    def left(self) -> int:
        """Return the number of points that may still be among the best."""
        self._rule_out()
        return len(self._left)

    def to_come(self) -> int:
        """Return the number of points that may be better than the best so far, with those behind it."""
        behind = self._goal.runners_up + 1 - len(self._values)
        return min(max(len(self._possible()), behind), len(self._left))


class ByNumber:
    """A chooser of all points, in their order."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._left = list(points)

    def choose(self, count: int) -> list[Point]:
        """Return the next points."""
        chosen, self._left = self._left[:count], self._left[count:]
        return chosen

    def learn(self, point: Point, values: Values | None) -> None:
        """Take no notice of a result, since none rules out another point."""

    def gap(self) -> float | None:
        """Return None: nothing is known of points that were not evaluated."""
        return None

    def left(self) -> int:
        """Return the number of points that were not chosen."""
        return len(self._left)

    def to_come(self) -> int:
        """Return the number of points that were not chosen, all of which will be."""
        return len(self._left)


class ByOptuna:
    """A chooser by Optuna's TPE sampler: it takes the remaining point nearest to each proposal.

    A point that breaks a condition counts as twice as bad as the worst one found.
    """

    def __init__(self, goal: Goal, axes: Sequence[SweepAxis], points: Sequence[Point]) -> None:
        optuna = _optuna()
        self._optuna, self._axes, self._points = optuna, axes, points
        self._places, self._sizes = _places(axes, points)
        self._is_left = np.ones(len(points), np.bool_)
        self._row = {point.number: row for row, point in enumerate(points)}
        self._worst = np.ones(len(goal.objectives))
        sampler = optuna.samplers.TPESampler(seed=goal.seed, n_startup_trials=FIRST_AT_RANDOM)
        directions = ["minimize"] * len(goal.objectives)
        self._study = optuna.create_study(sampler=sampler, directions=directions)
        is_word = [not _are_numbers(points, place) for place in range(len(axes))]
        self._is_word = np.array(is_word, np.bool_)
        self._distributions = {
            axis.name: optuna.distributions.CategoricalDistribution(list(range(size)))
            if word
            else optuna.distributions.IntDistribution(0, size - 1)
            for axis, size, word in zip(axes, self._sizes, is_word, strict=True)
        }

    def choose(self, count: int) -> list[Point]:
        """Return points, each proposed before the others of the batch are evaluated."""
        chosen: list[Point] = []
        while len(chosen) < count and self._is_left.any():
            trial = self._study.ask(self._distributions)
            wanted = np.array([trial.params[axis.name] for axis in self._axes])
            # The trial differs from the evaluated point, which `learn` adds.
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            row = self._nearest(wanted)
            self._is_left[row] = False
            chosen.append(self._points[row])
        return chosen

    def gap(self) -> float | None:
        """Return None: nothing is known of points that were not evaluated."""
        return None

    def left(self) -> int:
        """Return the number of points that were not chosen."""
        return int(self._is_left.sum())

    def to_come(self) -> int:
        """Return the number of points that were not chosen."""
        return self.left()

    def _nearest(self, wanted: Any) -> int:
        steps = np.abs(self._places - wanted) / np.maximum(self._sizes - 1, 1)
        far = np.where(self._is_word, self._places != wanted, steps).sum(axis=1)
        return int(np.argmin(np.where(self._is_left, far, np.inf)))

    def learn(self, point: Point, values: Values | None) -> None:
        """Report a point to the sampler."""
        if values is not None:
            self._worst = np.maximum(self._worst, values)
        objectives = list(values) if values is not None else (2 * self._worst).tolist()
        places = self._places[self._row[point.number]].tolist()
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params={axis.name: place for axis, place in zip(self._axes, places, strict=True)},
                distributions=self._distributions,
                values=objectives,
            )
        )


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UsageError(
            "no bounds are known of these points, and searching without them needs Optuna",
            remedy="pip install 'et-sim[search]'",
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _places(axes: Sequence[SweepAxis], points: Sequence[Point]) -> tuple[Any, Any]:
    """Return the index of every point's value on each axis (numbers by size), and the counts of values."""
    columns, sizes = [], []
    for place in range(len(axes)):
        values = [point.values[place] for point in points]
        keys = values if _are_numbers(points, place) else [repr(value) for value in values]
        distinct = sorted(dict.fromkeys(keys)) if _are_numbers(points, place) else list(dict.fromkeys(keys))
        at = {key: number for number, key in enumerate(distinct)}
        columns.append([at[key] for key in keys])
        sizes.append(len(distinct))
    return np.array(columns, np.int64).T.reshape(len(points), -1), np.array(sizes, np.int64)


def _are_numbers(points: Sequence[Point], place: int) -> bool:
    return all(type(point.values[place]) in (int, float) for point in points)


RUNG = "rung-"  # folders of results on cheaper models


def search(
    plan: SweepPlan, goal: Goal, journal: Journal, folder: Path, runner: Runner, watch: SweepWatcher
) -> tuple[State, SearchResult, Any]:
    """Evaluate points that may be best, and write tables; return the last state, result and table."""
    findings: SearchResult | None = None
    values: dict[int, Values] = {}
    for place, model in enumerate(goal.ladder):
        if findings is not None:
            survivors = set(least_dominated(values, goal.keep))
            plan = plan.on_model(model, [point for point in plan.points if point.number in survivors])
        is_last = place + 1 == len(goal.ladder)
        at = folder if is_last else folder / f"{RUNG}{place + 1}"
        rung = _Rung(goal, State(plan, journal, at, model), runner, watch)
        at.mkdir(exist_ok=True)
        with rung.state.written_at_worst():
            if findings is None:
                findings, values = rung.descend()
            else:
                watch.begin(f"searching on {model}", len(plan.points))
                values = rung.evaluate(plan.points)
                findings.front = front_of(values)
        table = rung.state.write(to_builtins(findings, str_keys=True))
    assert findings is not None
    return rung.state, findings, table


class _Rung(Struct):
    """A search on one network model."""

    goal: Goal
    state: State
    runner: Runner
    watch: SweepWatcher

    def descend(self) -> tuple[SearchResult, dict[int, Values]]:
        """Evaluate points that may be best, within the budget; return the result and valid objectives."""
        goal, points = self.goal, self.state.plan.points
        found = self._bounds()
        possible = [
            point
            for point in points
            if point.number not in found.refusals
            and goal.admits(self.state.plan.named(point))
            and not _exceeds(goal, found.bounds.get(point.number, {}))
        ]
        if not possible:
            if found.refusals:
                raise _most_telling(found)
            return SearchResult.of(goal, BOUNDS, impossible=len(points)), {}
        chooser, method = self._chooser(possible, found.bounds)
        findings = SearchResult.of(goal, method)
        findings.impossible = len(points) - len(possible)
        most = len(possible) if goal.budget is None else min(goal.budget, len(possible))
        self.watch.begin("searching", min(most, max(goal.at_once, goal.runners_up + 1)))
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
            self._record(findings, values, chooser, found, len(possible))
        self._record(findings, values, chooser, found, len(possible))
        return findings, values

    def _record(
        self,
        findings: SearchResult,
        values: Mapping[int, Values],
        chooser: Chooser,
        found: PointBounds,
        possible: int,
    ) -> None:
        """Update the result after a batch, and write it, so that an interrupted search can be read."""
        findings.left = chooser.left()
        findings.ruled_out = possible - findings.evaluated - findings.left
        findings.front = front_of(values)
        findings.gap = chooser.gap()
        self._explain(findings, found)
        expected, budget = findings.evaluated + chooser.to_come(), self.goal.budget
        self.watch.expect(
            expected if budget is None else min(expected, budget), best_text(self.goal, values, findings.gap)
        )
        self.state.write(to_builtins(findings, str_keys=True))

    def _explain(self, findings: SearchResult, found: PointBounds) -> None:
        """Record why points are not the best, of a search with one objective."""
        if len(self.goal.objectives) > 1:
            return
        best = findings.front[0] if findings.front else None
        known = self.state.known()
        full = [
            point.number
            for point in self.state.plan.points
            if point.digest in known and known[point.digest].row["status"] == OUT_OF_MEMORY
        ]
        findings.lost, why = reasons(found.parts, found.refusals, full, best)
        evaluated = {point.number for point in self.state.plan.points if point.digest in known}
        findings.why = {number: text for number, text in why.items() if number in evaluated}

    def _bounds(self) -> PointBounds:
        if self.goal.method == OPTUNA:
            return PointBounds()
        points = self.state.plan.points
        self.watch.begin("finding bounds", len(points))
        return bounds_of_points(self.state.plan.space, points, self.watch)

    def _chooser(self, points: Sequence[Point], bounds: Mapping[int, Bound]) -> tuple[Chooser, str]:
        goal = self.goal
        of_points = [bounds.get(point.number, {}) for point in points]
        with_bounds = [name for name in goal.objectives if any(bound.get(name) for bound in of_points)]
        is_whole = len(with_bounds) == len(goal.objectives)  # else bounds rule no fleet out
        has_bounds = bool(with_bounds) and (is_whole or not self._serves(points))
        if goal.method == BOUNDS and not has_bounds:
            raise InputError(
                "search: no bounds are known of these points",
                place=self.state.plan.sweep.section.at("search", "method"),
                remedy="they are of workloads of kind llm: take the method optuna",
            )
        if has_bounds:
            return ByBounds(goal, points, bounds), BOUNDS
        if goal.method == ALL or (goal.method is None and goal.budget is None and self._serves(points)):
            return ByNumber(points), ALL
        if goal.budget is None:
            why = "optuna rules no point out" if goal.method else "no bounds are known of these points"
            raise InputError(
                f"search: {why}, so the search needs a limit",
                place=self.state.plan.sweep.section.at("search"),
                remedy="add a budget, such as budget: 50",
            )
        return ByOptuna(goal, self.state.plan.sweep.axes, points), OPTUNA

    def _serves(self, points: Sequence[Point]) -> bool:
        """Return whether points serve requests, which takes little longer than to choose among them."""
        return all(is_serving(self.state.plan.space.inputs(point.values).workload) for point in points)

    def evaluate(self, points: Sequence[Point]) -> dict[int, Values]:
        """Evaluate all of these points; return the objectives of valid ones."""
        known = self.state.known()
        new = list({point.digest: point for point in points if point.digest not in known}.values())
        self.watch.add(len(points) - len(new), 0)
        if new:
            self.state.work(self.runner, self.state.tasks(new, saves=False), self.watch)
        return self.state.values(self.goal, points)


def _most_telling(found: PointBounds) -> EtSimError:
    """Return the refusal of all points: that of memory, with the least need first, if there is one."""
    full = [error for error in found.refusals.values() if isinstance(error, FullError)]
    return min(full, key=lambda error: error.needed) if full else next(iter(found.refusals.values()))


def best_text(goal: Goal, values: Mapping[int, Values], gap: float | None) -> str:
    """Return the best value so far, and what is known of others, for the display of progress."""
    if not values or len(goal.objectives) > 1:
        return ""
    quantity = quantity_named(goal.objectives[0])
    best = f"best {quantity.title} {quantity.shown(abs(min(values.values())[0]))}"
    return best if gap is None or gap == inf else f"{best}, others at most {gap:.1%} better"


def _exceeds(goal: Goal, bound: Bound) -> bool:
    """Return whether a point with these bounds cannot meet the constraints."""
    return any(bounded(name, bound) > most for name, most in goal.limits.items())
