"""Which points of a search are evaluated next: the ones that may be best, as bounds or Optuna say.

Points are chosen so many at once, before any of them is known, whoever evaluates them; so equal seeds choose
equal points. Not here: evaluating them (`search`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from et_sim.basics.errors import UsageError
from et_sim.sweeps.axes import Axis
from et_sim.sweeps.bounds import Bound
from et_sim.sweeps.goal import Goal, Values, bounded
from et_sim.sweeps.table import Point

SMALLEST = 1e-30  # of bounds that others are divided by
FIRST_AT_RANDOM = 10  # points that Optuna's sampler wants to see before it believes anything


class Chooser(Protocol):
    """Chooses points."""

    def choose(self, count: int) -> list[Point]:
        """So many points that were not chosen before, or fewer; none: no other one can be better."""

    def learn(self, point: Point, values: Values | None) -> None:
        """What became of a point; None: it is not what is looked for."""

    def left(self) -> int:
        """How many points may still be among the best."""


class ByBounds:
    """The points with the best bounds first, and none that others are certain to be better than.

    Of several objectives, the sums of their bounds count, each divided by its largest.
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
        """As they stand, without those that are ruled out."""
        self._rule_out()
        chosen, self._left = self._left[:count], self._left[count:]
        return chosen

    def _rule_out(self) -> None:
        numbers = np.array(self._numbers, np.int64)
        values = np.array(self._values, np.float64).reshape(len(numbers), len(self._goal.objectives))
        self._left = [point for point in self._left if not self._is_ruled_out(point, numbers, values)]

    def _is_ruled_out(self, point: Point, numbers: Any, values: Any) -> bool:
        least = self._least[point.number]
        never_more = (values <= least).all(axis=1)
        comes_first = (values < least).any(axis=1) | (numbers < point.number)
        return int((never_more & comes_first).sum()) >= self._goal.keep

    def learn(self, point: Point, values: Values | None) -> None:
        """Take a point that others are compared with."""
        if values is not None:
            self._numbers.append(point.number)
            self._values.append(values)

    def left(self) -> int:
        """How many points may still be among the best."""
        self._rule_out()
        return len(self._left)


class ByOptuna:
    """What Optuna's TPE sampler proposes: of the points that are left, the one nearest to it.

    A point that is not what is looked for counts as twice as bad as the worst that was found.
    """

    def __init__(self, goal: Goal, axes: Sequence[Axis], points: Sequence[Point]) -> None:
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
        """Each proposed before anything is known of the others."""
        chosen: list[Point] = []
        while len(chosen) < count and self._is_left.any():
            trial = self._study.ask(self._distributions)
            wanted = np.array([trial.params[axis.name] for axis in self._axes])
            # The trial is not the point that is evaluated: `learn` adds that one.
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            row = self._nearest(wanted)
            self._is_left[row] = False
            chosen.append(self._points[row])
        return chosen

    def left(self) -> int:
        """All that were not chosen."""
        return int(self._is_left.sum())

    def _nearest(self, wanted: Any) -> int:
        steps = np.abs(self._places - wanted) / np.maximum(self._sizes - 1, 1)
        far = np.where(self._is_word, self._places != wanted, steps).sum(axis=1)
        return int(np.argmin(np.where(self._is_left, far, np.inf)))

    def learn(self, point: Point, values: Values | None) -> None:
        """Tell the sampler."""
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


def _places(axes: Sequence[Axis], points: Sequence[Point]) -> tuple[Any, Any]:
    """Of every point, the place of its value on each axis, numbers by size; and how many values there are."""
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
