"""The deep suites of successive days together run every case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from in_turn import of_other_days

CASES = 9


class Case:
    """A case of a test, with marks."""

    path, name, originalname = Path("test_rule.py"), "test_rule[case]", "test_rule"

    def __init__(self, *marks: pytest.MarkDecorator) -> None:
        self._marks = {mark.name: mark.mark for mark in marks}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self._marks.get(name)


@pytest.mark.parametrize("days", [2, 3])
def test_each_deep_case_runs_on_one_of_several_days_and_others_on_all(days: int) -> None:
    deep = [Case(pytest.mark.in_turn(days=days)) for _ in range(CASES)]
    others = [Case(pytest.mark.in_turn(days=days)), Case(pytest.mark.deep), Case()]
    items: Any = [*deep, *others]
    left_out = [of_other_days(items, {id(others[0])}, seed) for seed in range(20261129, 20261129 + days)]
    assert [sum(id(case) not in of_day for of_day in left_out) for case in deep] == [1] * CASES
    assert not [case for case in others for of_day in left_out if id(case) in of_day]


def test_cases_of_a_day_run_together() -> None:
    cases: Any = [Case(pytest.mark.in_turn(days=2, day=1)) for _ in range(CASES)]
    assert of_other_days(cases, set(), 20261129) == set()
    assert of_other_days(cases, set(), 20261130) == {id(case) for case in cases}
