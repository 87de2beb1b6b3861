"""The goal of a search: columns to minimise or maximise, constraints, and the budget of evaluations.

The declaration of a column states its direction. Columns to maximise are negated here, so that less is better
throughout. A point dominates another one if no objective of it is larger, and one is smaller; of equal
points, the one with the lower number counts. The best points, the Pareto front, are those that none
dominates.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from et_sim.basics.errors import EtSimError, InputError, did_you_mean
from et_sim.basics.units import parse_bytes, parse_time_ns
from et_sim.network.registry import model_named
from et_sim.sweeps.evaluate import COMPLETE
from et_sim.sweeps.expressions import Condition, parse_condition
from et_sim.sweeps.spec import SearchSpec, Sweep
from et_sim.tables.sweep_tables import OBJECTIVES, Best

BOUNDS, OPTUNA, ALL = "bounds", "optuna", "all"
METHODS = (BOUNDS, OPTUNA, ALL)
KEYS = {Best.LEAST: "minimise", Best.MOST: "maximise"}
LIMITING = {Best.LEAST: (ast.LtE, ast.Lt), Best.MOST: (ast.GtE, ast.Gt)}
USED_BY = {"seed": (OPTUNA,), "within": (BOUNDS,)}  # keys that other methods do not read
USUAL_KEEP = 8
_QUANTITY = re.compile(
    r"(?<![\w.])(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?) ?([kKMGTP]i?B|B|ns|us|ms|s)(?!\w)", re.ASCII
)
Values = tuple[float, ...]  # of the objectives, in their order; less is better


class Goal(Struct, frozen=True):
    """The section `search` of a description, checked."""

    objectives: tuple[str, ...]
    conditions: tuple[Condition, ...]
    limits: Mapping[str, float]  # by column, from simple conditions; negated if more is better
    budget: int | None  # points; None: no limit
    method: str | None  # None: bounds, if there are any
    seed: int
    ladder: tuple[str | None, ...]  # network models, the cheapest first; None: that of the run
    keep: int  # points that pass from one model to the next
    at_once: int
    within: float = 0.0  # no other point is better by more than this share when the search ends
    runners_up: int = 0  # points besides the best one that are evaluated in any case

    def admits(self, point: Mapping[str, Any]) -> bool:
        """Return whether the values of a point's axes meet the conditions on axes alone."""
        return all(
            condition.holds(point)
            for condition in self.conditions
            if point.keys() >= {*condition.axes.values()}
        )

    def values(self, point: Mapping[str, Any], row: Mapping[str, Any]) -> Values | None:
        """Return the objectives of a point; None if it is incomplete or breaks a condition."""
        if row["status"] != COMPLETE:
            return None
        known = {**dict.fromkeys(OBJECTIVES), **row, **point}
        for condition in self.conditions:
            for name in condition.axes.values():
                _refuse_unknown_figure(name, known)
            if not condition.holds(known):
                return None
        for name in self.objectives:
            _refuse_unknown_figure(name, known)
        return tuple(signed(name, known[name]) for name in self.objectives)


def signed(name: str, value: float) -> float:
    """Return the value of an objective for comparison: less is better."""
    return -value if OBJECTIVES[name] is Best.MOST else value


def bounded(name: str, bound: Mapping[str, float]) -> float:
    """Return the bound of an objective for comparison; without a bound, the best possible value."""
    return signed(name, bound.get(name, math.inf if OBJECTIVES[name] is Best.MOST else 0.0))


class SearchResult(Struct):
    """The result of a search, as its table records it."""

    minimise: list[str]
    maximise: list[str]
    method: str
    models: list[str | None]
    evaluated: int = 0  # points, on the first model
    impossible: int = 0  # points that cannot be simulated, or cannot meet the constraints
    ruled_out: int = 0  # points that are certain to be worse than others
    left: int = 0  # points without any result
    front: list[int] = field(default_factory=list)  # numbers of the best points, in order
    runners_up: int = 0  # points besides the best one that were evaluated in any case
    gap: float | None = None  # no other point is better by more than this share; None: not known
    lost: dict[str, int] = field(default_factory=dict)  # points by the main reason why they are not the best
    why: dict[int, str] = field(default_factory=dict)  # the reason, by number of evaluated point

    @staticmethod
    def of(goal: Goal, method: str, evaluated: int = 0, impossible: int = 0) -> SearchResult:
        """Return an empty result for a goal and a method."""
        least, most = (
            [name for name in goal.objectives if OBJECTIVES[name] is best] for best in (Best.LEAST, Best.MOST)
        )
        result = SearchResult(least, most, method, list(goal.ladder), evaluated, impossible)
        result.runners_up = goal.runners_up
        return result


def _refuse_unknown_figure(name: str, known: Mapping[str, Any]) -> None:
    if known[name] is None:
        raise InputError(
            f"{name} is not known of these runs",
            place="search",
            remedy="leave it out, or state it: samples or goodput in base; memory, costs, peaks in machine",
        )


def goal_of(sweep: Sweep) -> Goal:
    """Return the goal in the description of a sweep."""
    spec = sweep.search
    if spec is None:
        raise InputError(
            "has no section `search`",
            place=sweep.section.place,
            remedy="add search, as in search: {minimise: [makespan_ns]}",
        )
    names = [axis.name for axis in sweep.axes]
    at = "search"
    try:
        for best, at in KEYS.items():
            _check_objectives(best, getattr(spec, at))
        at = KEYS[Best.LEAST]
        if not spec.minimise and not spec.maximise:
            raise InputError("there is no objective", remedy="add one, as in minimise: [makespan_ns]")
        at = "constraints"
        conditions = tuple(_condition(text, names) for text in spec.constraints)
        at = "ladder"
        ladder = _ladder(spec, sweep)
        at = "method"
        if spec.method is not None and spec.method not in METHODS:
            remedy = did_you_mean(spec.method, METHODS) or f"known: {', '.join(METHODS)}"
            raise InputError(f"there is no method {spec.method!r}", remedy=remedy)
        for at, methods in USED_BY.items():
            if at in sweep.section.content["search"] and spec.method not in (None, *methods):
                raise InputError(
                    f"`{at}` has no effect with method {spec.method}",
                    remedy=f"leave it out, or take method {methods[0]}",
                )
        at = "keep"
        if spec.keep is not None and len(ladder) == 1:
            raise InputError("`keep` requires a ladder", remedy="leave it out")
    except EtSimError as error:
        place = sweep.section.at("search", at)
        raise InputError(f"search: {error.cause}", place=place, remedy=error.remedy) from None
    return Goal(
        (*spec.minimise, *spec.maximise),
        conditions,
        _limits(conditions),
        spec.budget,
        spec.method,
        spec.seed,
        ladder,
        1 if len(ladder) == 1 else USUAL_KEEP if spec.keep is None else spec.keep,
        spec.at_once,
        spec.within,
        spec.runners_up,
    )


def _check_objectives(best: Best, names: Sequence[str]) -> None:
    for number, name in enumerate(names):
        if name not in OBJECTIVES:
            remedy = did_you_mean(name, tuple(OBJECTIVES))
            known = ", ".join(objective for objective, wanted in OBJECTIVES.items() if wanted is best)
            raise InputError(f"{name!r} is no objective", remedy=remedy or f"known: {known}")
        if OBJECTIVES[name] is not best:
            size = "larger" if best is Best.LEAST else "smaller"
            raise InputError(
                f"{name!r} is better if it is {size}", remedy=f"name it in {KEYS[OBJECTIVES[name]]}"
            )
        if name in names[:number]:
            raise InputError(f"{name!r} is named twice in {KEYS[best]}", remedy="name it once")


def _condition(text: str, axes: Sequence[str]) -> Condition:
    """Return a condition on columns and axes, in which quantities may have units."""

    def plain(quantity: re.Match[str]) -> str:
        number, unit = quantity[1], quantity[2]
        size = parse_bytes(number + unit) if unit.endswith("B") else parse_time_ns(number + unit)
        return f"{size:g}" if isinstance(size, float) and not size.is_integer() else str(int(size))

    return parse_condition(_QUANTITY.sub(plain, text), [*axes, *OBJECTIVES], "axis and no figure of a run")


def _ladder(spec: SearchSpec, sweep: Sweep) -> tuple[str | None, ...]:
    if not spec.ladder:
        return (None,)
    for name in spec.ladder:
        model_named(name)
    if len(set(spec.ladder)) < max(len(spec.ladder), 2):
        raise InputError(
            "a ladder needs two or more different network models", remedy="list them, the cheapest first"
        )
    if any(axis.field.root == "model" for axis in sweep.axes) or sweep.base.model is not None:
        raise InputError(
            "the ladder names network models, and so does the run", remedy="leave one of them out"
        )
    return tuple(spec.ladder)


def _limits(conditions: Sequence[Condition]) -> dict[str, float]:
    """Return limits of columns from simple conditions such as `makespan_ns <= 5` or `mfu >= 0.4`."""
    limits: dict[str, float] = {}
    for condition in conditions:
        match condition.tree:
            case ast.Compare(
                left=ast.Name(id=name), ops=[comparison], comparators=[ast.Constant(value=limit)]
            ) if isinstance(limit, int | float) and condition.axes.get(name) in OBJECTIVES:
                column = condition.axes[name]
                if isinstance(comparison, LIMITING[OBJECTIVES[column]]):
                    limits[column] = min(signed(column, float(limit)), limits.get(column, math.inf))
    return limits


def dominators(values: Values, others: Any) -> int:
    """Return the number of rows that are in no objective larger."""
    return int((others <= values).all(axis=1).sum()) if len(others) else 0


def least_dominated(values_of: Mapping[int, Values], count: int) -> list[int]:
    """Return the numbers of the points that fewest others dominate; equal ones in the order of numbers."""
    import numpy as np

    numbers = sorted(values_of, key=lambda number: (values_of[number], number))
    values = np.array([values_of[number] for number in numbers], np.float64).reshape(len(numbers), -1)
    # In this order, only earlier points dominate a point.
    ranks = [dominators(values_of[number], values[:place]) for place, number in enumerate(numbers)]
    order = sorted(range(len(numbers)), key=lambda place: (ranks[place], place))
    return [numbers[place] for place in order[:count]]


def front_of(values_of: Mapping[int, Values]) -> list[int]:
    """Return the numbers of the points that no other dominates, sorted by objectives."""
    best: list[int] = []
    for number in sorted(values_of, key=lambda number: (values_of[number], number)):
        values = values_of[number]
        if not any(
            all(value <= other for value, other in zip(values_of[before], values, strict=True))
            for before in best
        ):
            best.append(number)
    return best
