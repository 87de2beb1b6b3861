"""Every view of random runs is as kept, of the whole run and of a part."""

from __future__ import annotations

import pytest
from random_runs import RANDOM
from random_shown import RUNS_OF_VIEWS, WIDTH, everything, kept, line
from test_random_tables import IS_CHANGED, REMEDY

FEW = RUNS_OF_VIEWS if IS_CHANGED else 1
KINDS = [*RANDOM] if IS_CHANGED else ["late", "incasts"]


@pytest.fixture(autouse=True)
def _as_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    monkeypatch.setenv("COLUMNS", f"{WIDTH}")


def test_views_of_random_runs_are_as_kept() -> None:
    for seed in range(FEW):
        for kind in KINDS:
            assert line(kind, seed, everything).split() == kept("views")[kind, seed].split(), REMEDY


@pytest.mark.deep
@pytest.mark.parametrize("kind", RANDOM)
def test_views_of_more_random_runs_are_as_kept(kind: str) -> None:
    for seed in range(RUNS_OF_VIEWS):
        assert line(kind, seed, everything).split() == kept("views")[kind, seed].split(), REMEDY
