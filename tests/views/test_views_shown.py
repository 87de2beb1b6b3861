"""Every view of a few runs is as the files in `shown` have it."""

from __future__ import annotations

from pathlib import Path

import pytest
from views_shown import RUNS, SHOWN, WIDTH, text_of, text_of_commands

REMEDY = "if the change is meant, renew the files: python tests/views/views_shown.py"


@pytest.fixture(autouse=True)
def _as_wide_as_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", f"{WIDTH}")


@pytest.mark.parametrize(
    "runs", [("pipeline",), tuple(run for run in RUNS if run != "pipeline")], ids=["pipeline", "others"]
)
def test_views_of_runs_are_as_shown(runs: tuple[str, ...], tmp_path: Path) -> None:
    for run in runs:
        assert text_of(run, tmp_path) == (SHOWN / f"{run}.txt").read_text(encoding="utf-8"), REMEDY


def test_commands_print_and_draw_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert text_of_commands(tmp_path) == (SHOWN / "commands.txt").read_text(encoding="utf-8"), REMEDY
