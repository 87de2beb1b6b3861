"""Random sweeps and searches have the kept points, views and refusals."""

from __future__ import annotations

import pytest
from random_shown import check


def test_random_sweeps_have_the_kept_results() -> None:
    pytest.importorskip("optuna")
    check("commands", "sweeps", 2)
    check("commands", "searches", 1)


@pytest.mark.deep
def test_many_random_sweeps_have_the_kept_results() -> None:
    pytest.importorskip("optuna")
    check("commands", "sweeps")
    check("commands", "searches")
