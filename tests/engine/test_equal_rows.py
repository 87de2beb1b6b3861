"""Rows of record tables are compared as NumPy compares whole records."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from et_sim.plan.records import STEP, equal_rows, filled

ROWS = st.lists(st.tuples(*[st.integers(-1, 1)] * len(STEP.names or ())), max_size=6)


@given(ROWS, ROWS)
def test_rows_are_equal_if_all_their_fields_are(
    before: list[tuple[int, ...]], after: list[tuple[int, ...]]
) -> None:
    rows = min(len(before), len(after))
    first, second = (filled(STEP, given_rows[:rows]) for given_rows in (before, after))
    assert equal_rows(first, second).tolist() == [before[at] == after[at] for at in range(rows)]
    assert np.array_equal(equal_rows(first, second), first == second)
