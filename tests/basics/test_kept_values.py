"""Values that runs share are made once for the same arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.kept import MOST_KEPT, Kept


def counted() -> tuple[list[tuple[Any, ...]], Any]:
    """Return the calls of a function so far, and the function."""
    calls: list[tuple[Any, ...]] = []

    def make(_: object, *given: Any) -> int:
        calls.append(given)
        return len(calls)

    return calls, make


def test_a_value_is_made_once_for_the_same_objects_whatever_the_subject() -> None:
    kept, (calls, make) = Kept(), counted()
    array = np.zeros(3)
    assert [kept.of(make, subject, array, 7) for subject in ("one", "two")] == [1, 1]
    assert len(calls) == 1


def test_equal_objects_are_others_and_equal_numbers_are_not() -> None:
    kept, (calls, make) = Kept(), counted()
    first, second = np.zeros(3), np.zeros(3)
    large = 10**30
    values = [kept.of(make, "", array, int(str(large))) for array in (first, second, first)]
    assert values == [1, 2, 1]
    assert kept.of(make, "", first, large + 1) == 3
    assert len(calls) == 3


def test_an_object_whose_value_is_kept_stays_alive_so_that_no_other_gets_its_identity() -> None:
    kept, (calls, make) = Kept(), counted()
    values = [kept.of(make, "", np.full(3, number)) for number in range(MOST_KEPT)]
    assert values == list(range(1, MOST_KEPT + 1))
    assert [given[0][0] for given in calls] == list(range(MOST_KEPT))


def test_no_more_values_are_kept_than_the_limit() -> None:
    kept, (calls, make) = Kept(), counted()
    for number in range(MOST_KEPT + 1):
        kept.of(make, "", number)
    assert kept.of(make, "", 0) == MOST_KEPT + 2
    assert kept.of(make, "", MOST_KEPT) == MOST_KEPT + 1
    assert len(calls) == MOST_KEPT + 2
