"""Values found by sorting are those of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from et_sim.basics.unique import are_paired, groups_of, groups_of_rows, sorted_groups, unique, unique_rows

TYPES = st.sampled_from(["u1", "i4", "i8", "bool", "U3"])


@given(arrays.arrays(TYPES, arrays.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=9)))
def test_values_match_numpy(values: Any) -> None:
    result = unique(values)
    assert result.dtype == values.dtype
    assert result.tolist() == np.unique(values).tolist()


@given(arrays.arrays(np.int64, st.tuples(st.integers(0, 9), st.integers(1, 3)), elements=st.integers(-2, 2)))
def test_combinations_match_numpy(rows: Any) -> None:
    assert unique_rows(*rows.T).tolist() == np.unique(rows, axis=0).tolist()


SMALL, LARGE = st.integers(-1, 1), st.integers(-(2**63), 2**63 - 1)
ROWS = arrays.arrays(
    np.int64, st.tuples(st.integers(0, 9), st.integers(1, 3)), elements=st.one_of(SMALL, SMALL, LARGE)
)


@given(ROWS, st.randoms(use_true_random=False), st.booleans())
def test_rows_are_paired_if_the_others_are_a_permutation_of_them(rows: Any, random: Any, twice: bool) -> None:
    others = [*rows.tolist()] if twice else []
    random.shuffle(others)
    mixed = [*((True, *row) for row in rows.tolist()), *((False, *row) for row in others)]
    random.shuffle(mixed)
    columns = np.array(mixed, object).reshape(len(mixed), rows.shape[1] + 1)
    is_first, *of_row = columns[:, 0].astype(bool), *columns[:, 1:].astype(np.int64).T
    assert are_paired(is_first, *of_row) == (twice or not len(rows))


@given(ROWS)
def test_groups_match_numpy(rows: Any) -> None:
    groups = groups_of(*rows.T)
    different, first, of_row = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    assert rows[groups.first].tolist() == different.tolist()
    assert groups.first.tolist() == first.tolist()
    assert groups.of_row.tolist() == of_row.reshape(-1).tolist()


@given(ROWS)
def test_an_order_keeps_rows_that_are_alike_as_they_come(rows: Any) -> None:
    order, begin = sorted_groups(*rows.T)
    assert order.tolist() == np.lexsort(rows.T[::-1]).tolist()
    assert rows[order[begin]].tolist() == np.unique(rows, axis=0).tolist()


@given(arrays.arrays(np.uint64, st.tuples(st.integers(0, 9), st.just(2))))
def test_groups_of_unsigned_numbers_match_numpy(rows: Any) -> None:
    different, first = np.unique(rows, axis=0, return_index=True)
    assert groups_of(*rows.T).first.tolist() == first.tolist()
    assert unique_rows(*rows.T).tolist() == different.tolist()


@given(arrays.arrays(np.int64, st.tuples(st.integers(1, 4), st.integers(0, 9)), elements=SMALL))
def test_groups_of_the_rows_of_a_matrix_match_numpy(rows: Any) -> None:
    groups = groups_of_rows(rows)
    same = (rows[:, None] == rows[None]).all(axis=2)
    assert (groups.of_row[:, None] == groups.of_row[None]).tolist() == same.tolist()
    assert [tuple(row) for row in rows[groups.first].tolist()] == sorted({*map(tuple, rows.tolist())})


def test_many_columns_of_a_large_range_are_grouped() -> None:
    rows = np.random.default_rng(0).integers(0, 1 << 20, (500, 40))
    rows[100:200] = rows[:100]
    groups = groups_of(*rows.T)
    assert groups.first.tolist() == np.unique(rows, axis=0, return_index=True)[1].tolist()
    assert len(groups) == 400
