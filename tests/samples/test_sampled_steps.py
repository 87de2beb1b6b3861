"""Samples agree with closed forms: barriers, pipelines, and steps without variation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from machines import ring
from sampled_cases import VARIED, finish, independent, pipeline, sampled

RANKS, STEPS, MICROS = 16, 150, 1_000_000


def slowest(entry: dict[str, object], steps: int = STEPS) -> np.ndarray:
    """Return the time of the slowest of equal kernels, over that without variation, of each step."""
    plan = sampled(independent(RANKS, MICROS), ring(RANKS), {**VARIED, **entry})
    return np.array([max(finish(plan, step)) for step in range(steps)]) / MICROS


def test_the_slowest_of_exponential_times_is_a_harmonic_number() -> None:
    times = slowest({"family": "gamma", "spread": 1.0})
    mean = sum(1 / number for number in range(1, RANKS + 1))
    deviation = math.sqrt(sum(1 / number**2 for number in range(1, RANKS + 1)))
    assert abs(times.mean() - mean) < 3 * deviation / math.sqrt(STEPS)
    _below(times, lambda t: (1 - np.exp(-t)) ** RANKS)


def test_the_slowest_of_uniform_times_is_near_the_end_of_the_range() -> None:
    low, high, count = 0.5, 1.5, 1000
    factors = [low + (high - low) * (number + 0.5) / count for number in range(count)]
    plan = sampled(
        independent(RANKS, MICROS),
        ring(RANKS),
        {"kind": "kernel", "level": "event", "family": "empirical", "factors": factors},
    )
    times = np.array([max(finish(plan, step)) for step in range(STEPS)]) / MICROS
    mean = low + (high - low) * RANKS / (RANKS + 1)
    deviation = (high - low) * math.sqrt(RANKS / (RANKS + 2)) / (RANKS + 1)
    assert abs(times.mean() - mean) < 3 * deviation / math.sqrt(STEPS) + (high - low) / count
    _below(times, lambda t: ((t - low) / (high - low)) ** RANKS)


def _below(times: np.ndarray, probability: object) -> None:
    """Check F(t)^n by the 95 % limit of the Kolmogorov-Smirnov test."""
    ordered = np.sort(times)
    expected = probability(ordered)  # type: ignore[operator]
    steps = np.arange(len(ordered) + 1) / len(ordered)
    distance = max(np.abs(expected - steps[1:]).max(), np.abs(expected - steps[:-1]).max())
    assert distance < 1.36 / math.sqrt(len(ordered))


@pytest.mark.parametrize("level", ["element", "step"])
def test_a_pipeline_takes_all_stages_and_the_slowest_for_each_further_micro_batch(level: str) -> None:
    nanos, micro_batches = [30_000, 50_000, 40_000, 45_000], 7
    entry = {**VARIED, "level": level, "spread": 0.3}
    plan = sampled(pipeline(nanos, micro_batches), ring(len(nanos), latency=0.0), entry)
    message = finish(sampled(pipeline([1000, 1000], 1), ring(2, latency=0.0), entry), None)[1] - 2000
    for step in (None, 0, 1, 2, 3):
        plan.outcome(step)
        first = plan.plan.actors["pace_first"]
        of_node = [int(plan.plan.paces[begin + 1]) for begin in first]
        of_node[0] = int(plan.plan.paces[first[0]])
        total = sum(of_node) + (micro_batches - 1) * max(of_node) + (len(nanos) - 1) * message
        assert max(finish(plan, step)) == total


@pytest.mark.parametrize("entry", [{"spread": 0.0}, {"level": "step", "family": "gamma", "spread": 0.0}])
def test_without_a_spread_all_samples_are_the_step_without_variation(entry: dict[str, object]) -> None:
    plan = sampled(pipeline([3000, 5000, 4000], 5), ring(3), {**VARIED, **entry})
    nominal = finish(plan, None)
    assert all(finish(plan, step) == nominal for step in range(4))


def test_a_sample_without_all_entries_is_the_step_without_variation() -> None:
    plan = sampled(pipeline([3000, 5000, 4000], 5), ring(3), VARIED, {**VARIED, "level": "element"})
    assert finish(plan, 3, (0, 1)) == finish(plan, None)
    assert len({tuple(finish(plan, 3, without)) for without in ((), (0,), (1,), (0, 1))}) == 4
