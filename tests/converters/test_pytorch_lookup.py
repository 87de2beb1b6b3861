"""Columns that are looked up equal copied columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converters.pytorch.columns import NONE
from converters.pytorch.converting import give_back_freed_arrays
from converters.pytorch.rank import Lookup, taken


def numbers(values: list[int]) -> Any:
    return np.array(values, np.int32)


@given(
    first=st.lists(st.integers(NONE, 3), min_size=5, max_size=5),
    second=st.lists(st.integers(NONE, 2), min_size=5, max_size=5),
    further=st.lists(st.integers(0, 99), min_size=50, max_size=50),
)
def test_entries_are_those_of_the_last_part_that_has_any(
    first: list[int], second: list[int], further: list[int]
) -> None:
    lookup = Lookup(
        numbers(first), (numbers(first), numbers([10, 11, 12, 13])), (numbers(second), numbers([20, 21, 22]))
    )
    expected = [
        20 + late if late != NONE else 10 + early if early != NONE else NONE
        for early, late in zip(first, second, strict=True)
    ]
    assert len(lookup) == 5
    assert lookup[:].tolist() == expected
    assert lookup[1:3].tolist() == expected[1:3]
    assert lookup[numbers([4, 0])].tolist() == [expected[4], expected[0]]
    assert int(lookup[2]) == expected[2]
    onward = [further[entry] if entry != NONE else NONE for entry in expected]
    assert lookup.then(numbers(further))[:].tolist() == onward
    assert taken(numbers(further), lookup[:]).tolist() == onward


def test_without_values_there_is_nothing() -> None:
    nothing = numbers([])
    index = numbers([NONE, NONE])
    assert Lookup(index)[:].tolist() == [NONE, NONE]
    assert Lookup(index, (index, nothing))[:].tolist() == [NONE, NONE]
    assert Lookup(index, (numbers([0, 1]), numbers([5, 6]))).then(nothing)[:].tolist() == [NONE, NONE]
    assert taken(nothing, nothing).tolist() == []


def test_without_glibc_the_threshold_is_not_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    give_back_freed_arrays()
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    give_back_freed_arrays()
