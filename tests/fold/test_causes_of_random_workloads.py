"""The record of causes explains every nanosecond of random workloads."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from causes import check, check_causes
from hypothesis import HealthCheck, given, settings
from test_fold import workloads

from et_sim.api import run
from et_sim.run.result import Result
from et_sim.timeline import write_run
from et_sim.trace import Workload
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord


def path_of(result: Result) -> CriticalPath:
    """By way of its files."""
    with tempfile.TemporaryDirectory() as folder:
        write_run(result, Path(folder) / "run")
        return CriticalPath(PathRecord(open_run(Path(folder) / "run")))


@given(workloads())
@settings(suppress_health_check=list(HealthCheck))
def test_all_times_of_random_workloads_follow_from_the_record(drawn: tuple[Workload, dict[str, Any]]) -> None:
    workload, machine = drawn
    makespans = set()
    for fold in (True, False):
        result = run(workload, **machine, fold=fold, detail="path")
        check(result)
        if result.is_complete:
            check_causes(path_of(result), result)
        makespans.add(result.makespan_ns)
    assert len(makespans) == 1
