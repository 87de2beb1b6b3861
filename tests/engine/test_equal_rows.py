"""Record tables begin at cache lines, and their rows are compared as NumPy compares whole records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.unique import equal_rows
from et_sim.plan.records import LINE_BYTES, MAPPED_BYTES, STEP, filled, table

ROWS = st.lists(st.tuples(*[st.integers(-1, 1)] * len(STEP.names or ())), max_size=6)


@given(ROWS, ROWS)
def test_rows_are_equal_if_all_their_fields_are(
    before: list[tuple[int, ...]], after: list[tuple[int, ...]]
) -> None:
    rows = min(len(before), len(after))
    first, second = (filled(STEP, given_rows[:rows]) for given_rows in (before, after))
    assert equal_rows(first, second).tolist() == [before[at] == after[at] for at in range(rows)]
    assert np.array_equal(equal_rows(first, second), first == second)


@pytest.mark.parametrize("rows", [1, 5, MAPPED_BYTES])
def test_a_new_table_has_its_rows_all_zero_from_a_cache_line_on(rows: int) -> None:
    made = table(np.dtype([("a", "i8"), ("b", "u1")]), rows)
    assert made.shape == (rows,)
    assert made.ctypes.data % LINE_BYTES == 0
    assert not made["a"].any()
    made["b"] = 1
    assert int(made["b"].sum()) == rows


def test_a_table_of_fewer_than_no_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        table(np.dtype([("a", "i8")]), -1)
