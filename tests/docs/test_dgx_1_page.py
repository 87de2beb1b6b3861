"""The table of docs/dgx-1.md is what the simulation says today, and near what was measured."""

from __future__ import annotations

import pytest
from dgx_1_page import PAGE, SMALLEST_OF_LARGE, errors, page

WITHIN = 0.065  # of the link model, where the library runs what is simulated


@pytest.mark.deep
def test_the_table_is_todays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    assert page() == PAGE.read_text(encoding="utf-8"), "run: python tests/docs/dgx_1_page.py"


@pytest.mark.deep
def test_large_all_reduces_take_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    large = [found for (size, _), found in errors().items() if size >= SMALLEST_OF_LARGE]
    assert len(large) == 14
    assert all(abs(simulated["link"] / measured - 1) < WITHIN for measured, simulated in large)
