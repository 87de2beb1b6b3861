"""Recordings of random programs, converted and run on other machines, against the programs played there.

`python tests/truth/errors.py` prints the same by kind of change and by feature, with the worst programs.
"""

from __future__ import annotations

import os
import statistics
from functools import cache

import pytest
from errors import REPLAY, Case, cases, many_cases, percentile

FEW = (2, 5, 7, 9, 20)
MEDIAN, MOST = 0.01, 0.05  # of the errors: the middle one, and the limit of 95 % of them


@cache
def found(seed: int) -> tuple[Case, ...]:
    return tuple(cases(seed))


@pytest.mark.parametrize("seed", FEW)
def test_an_unchanged_machine_takes_as_long_as_was_recorded(seed: int) -> None:
    assert [case.error for case in found(seed) if case.change == REPLAY] == [0]


@pytest.mark.deep
def test_predictions_of_a_few_programs_are_near_the_truth() -> None:
    errors = [case.error for seed in FEW for case in found(seed) if case.change != REPLAY]
    assert statistics.median(errors) <= MEDIAN
    assert percentile(errors, 0.95) <= MOST


@pytest.mark.parametrize(
    "programs",
    [pytest.param(75, marks=pytest.mark.deep), pytest.param(1000, marks=pytest.mark.exhaustive)],
)
def test_predictions_of_many_programs_are_near_the_truth(programs: int) -> None:
    every = many_cases(range(programs), os.cpu_count() or 1)
    errors = [case.error for case in every if case.change != REPLAY]
    assert all(case.error <= 1 for case in every if case.change == REPLAY)
    assert statistics.median(errors) <= MEDIAN
    assert percentile(errors, 0.95) <= MOST
