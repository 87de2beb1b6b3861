"""The record of causes explains every nanosecond of every golden case, whatever runs in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import Case
from causes import check, check_causes
from test_reference_2x import CASES

from et_sim.api import run
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_times_follow_from_the_record(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.write_programs(tmp_path)
    monkeypatch.chdir(tmp_path)
    for fold in (True, False):
        result = run(case.workload(), **case.machine, model=case.model, fold=fold, detail="path")
        check(result)
        write_run(result, tmp_path / "run")
        check_causes(CriticalPath(PathRecord(open_run(tmp_path / "run"))), result)
        if not result.outcome.plan.is_folded:
            break  # nothing could be folded
