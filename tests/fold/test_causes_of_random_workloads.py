"""The record of causes explains every nanosecond of random workloads, and foretells what changes do."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))

from causes import check, check_causes
from test_fold import workloads
from test_sensitivities import changes

from et_sim.api import run
from et_sim.timeline import Result, write_run
from et_sim.trace import Workload
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.sensitivity import Sensitivities, parameters


def path_of(result: Result) -> CriticalPath:
    """By way of its files."""
    with tempfile.TemporaryDirectory() as folder:
        write_run(result, Path(folder) / "run")
        return CriticalPath(PathRecord(open_run(Path(folder) / "run")))


def asks_in_trees(result: Result) -> bool:
    """Whether trees run with rendezvous: in which order their requests come is not foreseen."""
    plan = result.outcome.plan
    return plan.rendezvous and bool((plan.programs["tree_first"] >= 0).any())


@given(workloads())
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
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


@given(workloads())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_changes_of_random_workloads_are_foretold(drawn: tuple[Workload, dict[str, Any]]) -> None:
    workload, machine = drawn
    result = run(workload, **machine, detail="path")
    if not result.is_complete or asks_in_trees(result):
        return
    found = Sensitivities(path_of(result))
    by_name = {parameter.name: parameter for parameter in parameters(found.path)}
    for one in found.all():
        for side in (one.better, one.worse):
            for changed, multiple in changes({"groups": {"some": []}, **machine}, one.parameter, side):
                del changed["groups"]
                factor = 1 / multiple if one.is_rate else multiple
                foretold = result.makespan_ns + side.slope_ns * (factor - 1)
                # What the path is rounded by, and as much again: another one within rounding may take over.
                allowed = 1 + 2 * found.rounding_ns(by_name[one.parameter], factor)
                assert abs(run(workload, **changed).makespan_ns - foretold) <= allowed
