"""A description of a state is written into a snapshot, or compared with it, value by value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from et_sim.engine.containers import NONE
from et_sim.engine.repeats.description import put


def _searching(*picture: int, compares: bool) -> Any:
    """Return tables of a search with this snapshot."""
    return SimpleNamespace(repeats=[SimpleNamespace(entries=0, compares=compares)], picture=list(picture))


def test_values_are_written_one_after_the_other() -> None:
    tables = _searching(0, 0, 0, 0, compares=False)
    assert (put(tables, 1, 7, 8), tables.picture) == (3, [0, 7, 8, 0])


@pytest.mark.parametrize(("second", "then"), [(8, 2), (9, NONE)], ids=["equal", "different"])
def test_a_comparison_ends_at_the_first_difference(second: int, then: int) -> None:
    tables = _searching(7, second, compares=True)
    assert (put(tables, 0, 7, 8), tables.picture, tables.repeats[0].entries) == (then, [7, second], 1)


def test_a_description_that_does_not_fit_has_no_end() -> None:
    tables = _searching(0, 0, compares=False)
    assert (put(tables, 1, 7, 8), put(tables, NONE, 7)) == (NONE, NONE)
