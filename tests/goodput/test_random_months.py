"""Random long jobs have the results that are kept."""

from __future__ import annotations

import pytest
from random_shown import SERVICES_OF_A_KIND, WIDTH, files_and_pages, kept, line
from test_random_tables import IS_CHANGED, REMEDY

FEW = SERVICES_OF_A_KIND if IS_CHANGED else 3


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    monkeypatch.setenv("COLUMNS", f"{WIDTH}")


def check(seed: int) -> None:
    assert line("months", seed, files_and_pages).split() == kept("services")["months", seed].split(), REMEDY


def test_random_months_have_the_kept_results() -> None:
    for seed in range(FEW):
        check(seed)


@pytest.mark.deep
def test_many_random_months_have_the_kept_results() -> None:
    for seed in range(SERVICES_OF_A_KIND):
        check(seed)
