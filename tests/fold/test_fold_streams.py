"""Random runs on machines with streams, on which communication slows computation: folded as unfolded."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from random_cases import Case, actors_of, outcome, random_case

A_FEW = 40
WORKS = ("kernels", "host", "sends", "collectives")


def with_streams(seed: int) -> Case:
    """Return the random case of a seed with a few streams, and factors for overlapping nodes."""
    case, draw = random_case(seed), Random(7 * seed + 1)
    given: dict[str, Any] = {}
    streams = [
        {
            "name": f"stream {number}",
            "takes": draw.sample(WORKS, draw.randint(1, 3)),
            "at-a-time": draw.choice((1, 1, 2, 3)),
        }
        for number in range(draw.choice((0, 1, 1, 2, 3)))
    ]
    if streams:
        given["streams"] = streams
    if draw.random() < 0.7 or not streams:
        given["overlap"] = {"kernels": draw.choice((1.2, 1.5, 3, 1.001))}
    return Case(case.workload, case.machine | {"system": case.machine["system"] | given})


@pytest.mark.deep
def test_random_cases_with_streams_fold_exactly() -> None:
    folded = 0
    for seed in range(A_FEW):
        case = with_streams(seed)
        result = outcome(case, fold=True)
        assert result == outcome(case, fold=False), seed
        folded += not isinstance(result, str) and actors_of(case) < case.workload.ranks
    assert folded >= A_FEW // 5


@pytest.mark.seeds(deep=100, exhaustive=10_000, at_a_time=100)
def test_many_random_cases_with_streams_fold_exactly(seeds: range) -> None:
    for seed in seeds:
        assert outcome(with_streams(seed), fold=True) == outcome(with_streams(seed), fold=False), seed


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(25))
def test_random_cases_with_streams_are_the_same_compiled_and_interpreted(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = outcome(with_streams(seed), fold=True)
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    assert outcome(with_streams(seed), fold=True) == compiled
