"""Sums and maxima of rows by group, against sums of fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from et_sim.views.run.rows import exact_total_by, most_by, total_by

GROUPS = 4


@given(st.lists(st.tuples(st.integers(0, GROUPS - 1), st.integers(-(2**40), 2**40)), max_size=20))
def test_the_largest_of_each_group_is_that_of_its_rows_and_an_empty_group_has_the_least(
    rows: list[tuple[int, int]],
) -> None:
    groups, values = np.array([group for group, _ in rows], int), np.array([value for _, value in rows], int)
    for least in (0, -(2**41)):
        expected = [max([least, *(value for of, value in rows if of == group)]) for group in range(GROUPS)]
        assert most_by(groups, GROUPS, values, least).tolist() == expected
    assert most_by(groups, GROUPS, values).tolist() == most_by(groups, GROUPS, values, 0).tolist()
    sums = [sum(value for of, value in rows if of == group) for group in range(GROUPS)]
    assert total_by(groups, GROUPS, values).tolist() == sums


@given(st.lists(st.tuples(st.integers(0, GROUPS - 1), st.floats(-1e300, 1e300)), max_size=20))
def test_sums_of_figures_are_those_of_fractions(rows: list[tuple[int, float]]) -> None:
    groups, values = np.array([group for group, _ in rows], int), np.array([value for _, value in rows])
    expected = [
        sum((Fraction(value) for of, value in rows if of == group), Fraction()) for group in range(GROUPS)
    ]
    assert exact_total_by(groups, GROUPS, values) == expected


def test_a_sum_with_infinity_is_infinite_in_its_group_alone() -> None:
    values = np.array([1.0, np.inf, 2.0])
    assert exact_total_by(np.array([0, 1, 2]), 3, values) == [1, np.inf, 2]
