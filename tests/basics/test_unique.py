"""Values found by sorting are those of NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from et_sim.basics.unique import unique, unique_rows

TYPES = st.sampled_from(["u1", "i4", "i8", "bool", "U3"])


@given(arrays.arrays(TYPES, arrays.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=9)))
def test_values_are_those_of_numpy(values: Any) -> None:
    result = unique(values)
    assert result.dtype == values.dtype
    assert result.tolist() == np.unique(values).tolist()


@given(arrays.arrays(np.int64, st.tuples(st.integers(0, 9), st.integers(1, 3)), elements=st.integers(-2, 2)))
def test_combinations_are_those_of_numpy(rows: Any) -> None:
    assert unique_rows(*rows.T).tolist() == np.unique(rows, axis=0).tolist()
