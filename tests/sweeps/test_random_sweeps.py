"""Random sweeps and searches have the kept points, views and refusals."""

from __future__ import annotations

import pytest
from random_shown import IN_TURN, check


def test_random_sweeps_have_the_kept_results() -> None:
    pytest.importorskip("optuna")
    check("commands", "sweeps", 2)
    check("commands", "searches", 1)


@IN_TURN
def test_many_random_sweeps_have_the_kept_results(day: int) -> None:
    pytest.importorskip("optuna")
    check("commands", "sweeps", day=day)
    check("commands", "searches", day=day)
