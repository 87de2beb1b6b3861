"""Points: grids have every combination, samples repeat with their seed, strata have one point each."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.errors import InputError
from et_sim.sweeps.axes import METHODS, SCALES, Range, SweepAxis, admitted, grid, sample
from et_sim.sweeps.expressions import parse_condition
from et_sim.sweeps.fields import InputField

FIELD = InputField("model", ())


def _axis(name: str, *values: object) -> SweepAxis:
    return SweepAxis(name, FIELD, values)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_grid_has_every_combination_and_the_last_axis_changes_fastest(counts: list[int]) -> None:
    axes = [_axis(str(number), *range(count)) for number, count in enumerate(counts)]
    assert list(grid(axes, [])) == list(product(*(range(count) for count in counts)))


def test_zipped_axes_advance_together_wherever_they_stand() -> None:
    axes = [_axis("a", 1, 2), _axis("b", "x", "y"), _axis("c", 10, 20)]
    assert list(grid(axes, [("c", "a")])) == [(1, "x", 10), (1, "y", 10), (2, "x", 20), (2, "y", 20)]


def test_zipped_axes_have_as_many_values_each() -> None:
    with pytest.raises(InputError, match="a has 2, b has 3"):
        list(grid([_axis("a", 1, 2), _axis("b", 1, 2, 3)], [("a", "b")]))


def test_a_grid_too_large_to_list_is_refused_at_once() -> None:
    axes = [_axis(str(number), *range(1000)) for number in range(5)]
    with pytest.raises(InputError, match="1,000,000,000,000,000 combinations"):
        list(grid(axes, []))


@pytest.mark.parametrize(
    ("range_", "values"),
    [
        (Range(1, 64, 7, "logarithmic"), (1, 2, 4, 8, 16, 32, 64)),
        (Range(1, 4, 4, "linear"), (1, 2, 3, 4)),
        (Range(1, 3, 9, "linear"), (1, 2, 3)),
        (Range(0.0, 1.0, 3, "linear"), (0.0, 0.5, 1.0)),
        (Range(5, 5, 1, "linear"), (5,)),
    ],
)
def test_ranges(range_: Range, values: tuple[float, ...]) -> None:
    assert range_.values() == values


@given(st.sampled_from(METHODS), st.integers(1, 40), st.integers(0, 5), st.booleans())
def test_samples_stay_in_their_ranges_and_repeat(
    method: str, points: int, seed: int, logarithmic: bool
) -> None:
    axes = [
        SweepAxis("r", FIELD, range=Range(0.5, 200.0, None, SCALES[logarithmic])),
        SweepAxis("n", FIELD, range=Range(1, 9, None, SCALES[logarithmic])),
        _axis("l", "a", "b", "c"),
    ]
    result = list(sample(axes, method, points, seed))
    assert result == list(sample(axes, method, points, seed))
    assert len(result) == points
    assert all(0.5 <= r <= 200 and n in range(1, 10) and word in "abc" for r, n, word in result)


@given(st.integers(1, 60), st.integers(0, 5))
def test_a_latin_hypercube_has_one_point_in_each_part_of_each_axis(points: int, seed: int) -> None:
    axes = [SweepAxis(name, FIELD, range=Range(0.0, 1.0, None, "linear")) for name in "ab"]
    for column in zip(*sample(axes, "latin-hypercube", points, seed), strict=True):
        assert sorted(math.floor(value * points) for value in column) == list(range(points))


def test_a_latin_hypercube_shares_a_list_evenly() -> None:
    result = sample([_axis("l", "a", "b", "c")], "latin-hypercube", 12, 3)
    assert set(Counter(result).values()) == {4}


def test_points_meet_all_constraints_and_come_once() -> None:
    axes = [_axis("a", 1, 2, 2), _axis("b", 1, 2)]
    conditions = [parse_condition("a * b == 2", ("a", "b"))]
    assert admitted(grid(axes, []), axes, conditions) == [(1, 2), (2, 1)]
