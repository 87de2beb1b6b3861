"""The record of causes explains every nanosecond of every run of ASTRA-sim 1.0, folded and unfolded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from causes import check, check_causes
from test_reference_1x import RUNS, simulate

from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord


@pytest.mark.parametrize("case", RUNS, ids=[case["id"] for case in RUNS])
def test_all_times_of_1_0_follow_from_the_record(case: dict[str, Any], tmp_path: Path) -> None:
    found = []
    for fold in (True, False):
        result = simulate(case, tmp_path, fold=fold, detail="path")
        assert result.makespan_ns == case["expected"]["finish_ns"]
        check(result)
        write_run(result, tmp_path / "run")
        path = CriticalPath(PathRecord(open_run(tmp_path / "run")))
        check_causes(path, result)
        found.append(path.by_operation())
        if not result.outcome.plan.is_folded:
            break  # nothing could be folded
    assert found[0] == found[-1]
