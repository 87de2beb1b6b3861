"""Draws are functions of seed, element and event alone, and have the distributions that entries describe."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from et_sim.machine.variation import Family, MixturePart, Variation, VariationLevel, VariedKind
from et_sim.samples.draws import Draws, draws_of
from et_sim.samples.families import gamma_table

ELEMENTS, EVENTS = 400, 500
FAMILIES: dict[str, dict[str, Any]] = {
    "normal": {"family": Family.NORMAL, "spread": 0.2},
    "log-normal": {"family": Family.LOG_NORMAL, "spread": 0.5},
    "gamma": {"family": Family.GAMMA, "spread": 1.0},
    "mixture": {
        "family": Family.MIXTURE,
        "parts": (MixturePart(weight=3, spread=0.1), MixturePart(weight=1, factor=2.5, spread=0.2)),
    },
    "empirical": {"family": Family.EMPIRICAL, "factors": (4.0, 1.0, 2.0)},
}


def entry(level: str = "event", **keys: Any) -> Variation:
    keys = {"family": Family.LOG_NORMAL, "spread": 0.1, **keys}
    return Variation(kind=VariedKind.KERNEL, level=VariationLevel(level), **keys)


def moments(name: str) -> tuple[float, float]:
    """Return mean and standard deviation, from textbooks."""
    match name:
        case "mixture":
            parts = ((0.75, 1.0, 0.1), (0.25, 2.5, 0.2))
            mean = sum(weight * factor for weight, factor, _ in parts)
            square = sum(weight * factor**2 * (1 + spread**2) for weight, factor, spread in parts)
            return mean, math.sqrt(square - mean**2)
        case "empirical":
            return 7 / 3, math.sqrt(7 - (7 / 3) ** 2)
        case _:
            return 1.0, FAMILIES[name]["spread"]


@pytest.mark.parametrize("name", FAMILIES)
def test_factors_have_the_moments_of_their_family(name: str) -> None:
    drawn = Draws(entry(**FAMILIES[name]), 0, 7).factors(np.arange(ELEMENTS), 3, EVENTS)
    mean, deviation = moments(name)
    error = deviation / math.sqrt(drawn.size)
    assert drawn.shape == (ELEMENTS, EVENTS)
    assert abs(drawn.mean() - mean) < 4 * error
    assert drawn.std() == pytest.approx(deviation, rel=0.02)


def test_a_factor_multiplies_all_draws() -> None:
    for keys in FAMILIES.values():
        plain = Draws(entry(**keys), 0, 7).factors(np.arange(5), 3, 6)
        assert (Draws(entry(factor=1.5, **keys), 0, 7).factors(np.arange(5), 3, 6) == 1.5 * plain).all()


def test_gamma_with_a_spread_of_one_is_the_exponential_distribution() -> None:
    scores, logarithms = gamma_table(1.0)
    for score in (-5.0, -2.0, 0.0, 1.0, 3.0, 5.0):
        value = math.exp(float(np.interp(score, scores, logarithms)))
        assert value == pytest.approx(-math.log(NormalDist().cdf(-score)), rel=1e-5)


def test_a_draw_does_not_depend_on_other_elements_or_later_events() -> None:
    for level in ("element", "step", "event"):
        for correlation in (0.0, 0.4) if level != "element" else (0.0,):
            draws = Draws(entry(level, correlation=correlation), 0, 7)
            many, few = draws.factors(np.arange(9), 5, 8), draws.factors(np.array([6, 2]), 5, 3)
            assert (many[[6, 2], : few.shape[1]] == few).all()


@pytest.mark.parametrize("other", ["seed", "place", "kind", "level", "step", "element"])
def test_draws_differ_by_each_part_of_their_key(other: str) -> None:
    first = Draws(entry(), 0, 7).factors(np.array([3]), 5, 50)
    match other:
        case "seed":
            second = Draws(entry(), 0, 8).factors(np.array([3]), 5, 50)
        case "place":
            second = Draws(entry(), 1, 7).factors(np.array([3]), 5, 50)
        case "kind":
            host = Variation(
                kind=VariedKind.HOST, level=VariationLevel.EVENT, family=Family.LOG_NORMAL, spread=0.1
            )
            second = Draws(host, 0, 7).factors(np.array([3]), 5, 50)
        case "level":
            second = Draws(entry("step"), 0, 7).factors(np.array([3]), 5, 50)
        case "step":
            second = Draws(entry(), 0, 7).factors(np.array([3]), 6, 50)
        case _:
            second = Draws(entry(), 0, 7).factors(np.array([4]), 5, 50)
    assert (first != second).all()


def test_equal_entries_draw_by_themselves_and_others_do_not_change_them() -> None:
    slow = entry("element")
    alone, (first, *_, second) = draws_of([entry()], 7), draws_of([entry(), slow, entry()], 7)
    one, other = (draws.factors(np.arange(4), 1, 6) for draws in (first, second))
    assert (one == alone[0].factors(np.arange(4), 1, 6)).all()
    assert (one != other).all()


@pytest.mark.parametrize("correlation", [0.5, -0.4])
def test_draws_are_correlated_along_events_and_steps(correlation: float) -> None:
    keys: dict[str, Any] = {"family": Family.NORMAL, "spread": 0.1, "correlation": correlation}
    along = Draws(entry(**keys), 0, 7).factors(np.arange(ELEMENTS), 3, 100)
    step = Draws(entry("step", **keys), 0, 7)
    before, after = (step.factors(np.arange(40_000), number, 1) for number in (200, 201))
    for one, next_ in ((along[:, :-1], along[:, 1:]), (before, after)):
        found = np.corrcoef(one.reshape(-1), next_.reshape(-1))[0, 1]
        assert found == pytest.approx(correlation, abs=4 / math.sqrt(one.size))
    assert before.std() == pytest.approx(0.1, rel=0.02)


def test_an_element_keeps_its_draw_through_all_steps() -> None:
    draws = Draws(entry("element"), 0, 7)
    assert (draws.factors(np.arange(9), 0, 3) == draws.factors(np.arange(9), 77, 5)).all()
