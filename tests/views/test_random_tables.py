"""Every table of random runs is as kept: networks, protocols, failures, programs, memories and plans."""

from __future__ import annotations

import os

import pytest
from random_runs import RANDOM
from random_shown import RUNS_OF_TABLES, kept, line, tables

REMEDY = "if the change is meant, renew the files: python tests/views/random_shown.py"
IS_CHANGED = "ET_SIM_TESTS_ONE_IN" in os.environ  # rules are, one at a time, and all cases are tried
FEW = RUNS_OF_TABLES if IS_CHANGED else 1


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def test_tables_of_random_runs_are_as_kept() -> None:
    for seed in range(FEW):
        for kind in RANDOM:
            assert line(kind, seed, tables).split() == kept("tables")[kind, seed].split(), REMEDY


@pytest.mark.deep
@pytest.mark.parametrize("kind", RANDOM)
def test_tables_of_many_random_runs_are_as_kept(kind: str) -> None:
    for seed in range(RUNS_OF_TABLES):
        assert line(kind, seed, tables).split() == kept("tables")[kind, seed].split(), REMEDY
