"""Warnings of the points of a sweep, as the command prints them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from et_sim.cli.sweep import _report


def printed(warnings: list[str], capsys: pytest.CaptureFixture[str], known: int = 0) -> list[str]:
    report: Any = SimpleNamespace(points=3, known=known, table=pa.table({"warnings": warnings}))
    _report(report, Path("folder"))
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(("several", "others"), [(5, []), (6, ["and 1 other"]), (1005, ["and 1,000 others"])])
def test_five_warnings_are_printed_the_most_frequent_first(
    several: int, others: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rare = "; ".join(f"w{number}" for number in range(several))
    lines = printed([rare, "w3", ""], capsys)
    assert lines[0] == "et-sim: warning: w3 (at 2 of 3 points)"
    assert lines[1:5] == [f"et-sim: warning: w{number} (at 1 of 3 points)" for number in (0, 1, 2, 4)]
    assert lines[5:] == [f"et-sim: warning: {text}: column warnings of the table" for text in others]


@pytest.mark.parametrize(
    ("known", "words"), [(1, "1 of them was"), (2, "2 of them were"), (3, "all points were")]
)
def test_points_that_were_evaluated_before_are_counted(
    known: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = f"et-sim: 3 points; {words} evaluated before, in folder"
    assert printed(["", "", ""], capsys, known) == [expected]
    assert printed(["", "", ""], capsys) == []
