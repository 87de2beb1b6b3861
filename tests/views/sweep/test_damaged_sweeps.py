"""A sweep whose table holds impossible values is refused, with the column named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_sweep_pictures import write_sweep

from et_sim.basics.errors import UsageError
from et_sim.views.sweep.directory import open_sweep


@pytest.mark.parametrize(
    ("column", "value", "refusal"),
    [
        ("bottleneck_share", float("nan"), "'bottleneck_share' has values that are no numbers"),
        ("price", float("inf"), "'price' has values that are no numbers"),
        ("bandwidth", float("nan"), "'bandwidth' has values that are no numbers"),
        ("status", None, "'status' has rows without a value"),
        ("makespan_ns", None, "its makespan_ns is not known"),
    ],
)
def test_figures_that_are_none_are_refused(column: str, value: Any, refusal: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"bandwidth": 1.5 + at, "makespan_ns": 100 + at} for at in range(3)]
    assert len(open_sweep(write_sweep(tmp_path / "sound", ["bandwidth"], rows)).table) == 3
    rows[1][column] = value
    with pytest.raises(UsageError, match=refusal):
        open_sweep(write_sweep(tmp_path / "damaged", ["bandwidth"], rows))
