"""Records of random workloads explain every nanosecond and agree with each other, folded or not."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from causes import check, check_causes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import SHAPES
from test_fold import ALGORITHMS, cooked, recipes, workloads
from traffic_checks import DETAIL, check_traffic, check_unfolded

from et_sim.api import run
from et_sim.run.result import Result
from et_sim.timeline import write_run
from et_sim.trace import Workload
from et_sim.trace.group_rule import GroupRule
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord


def path_of(result: Result) -> CriticalPath:
    """Return the critical path, read from the files of the run."""
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


@pytest.mark.deep
@given(workloads())
@settings(suppress_health_check=list(HealthCheck))
def test_messages_and_links_of_random_workloads_add_up(drawn: tuple[Workload, dict[str, Any]]) -> None:
    workload, machine = drawn
    detail = f"{DETAIL},path" if machine["model"] == "link" else DETAIL
    folded, unfolded = (run(workload, **machine, fold=fold, detail=detail) for fold in (True, False))
    for result in (folded, unfolded):
        check_traffic(result)
    check_unfolded(folded, unfolded)
    assert folded.finish_ns.tolist() == unfolded.finish_ns.tolist()


@st.composite
def machines_1(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a network of one to three levels and a system, with the keys of 1.0."""
    npus = draw(
        st.lists(st.sampled_from((2, 3, 4)), min_size=1, max_size=3).filter(lambda n: np.prod(n) <= 16)
    )
    levels = len(npus)
    network = {
        "dimensions-count": levels,
        "topologies-per-dim": [draw(st.sampled_from(SHAPES)) for _ in npus],
        "units-count": npus,
        "links-count": [2 * (size - 1) for size in npus],
        "link-latency": [draw(st.sampled_from((0, 10, 500)))] * levels,
        "link-bandwidth": [50] * levels,
        "nic-latency": [draw(st.sampled_from((0, 7)))] * levels,
        "router-latency": [draw(st.sampled_from((0, 9)))] * levels,
        "hbm-latency": [100] * levels,
        "hbm-bandwidth": [draw(st.sampled_from((20, 500)))] * levels,
        "hbm-scale": [draw(st.sampled_from((0, 1.5)))] * levels,
    }
    system: dict[str, Any] = {
        "profile": "astra-1.0",
        "scheduling-policy": draw(st.sampled_from(("LIFO", "FIFO"))),
        "endpoint-delay": draw(st.sampled_from((0, 10, 500))),
        "preferred-dataset-splits": draw(st.sampled_from((1, 2, 5))),
        "active-chunks-per-dimension": draw(st.sampled_from((1, 2))),
        "num-queues-per-dim": draw(st.sampled_from((1, 2))),
        "collective-optimization": draw(st.sampled_from(("baseline", "localBWAware"))),
        "boost-mode": draw(st.booleans()),
        "rendezvous-protocol": draw(st.booleans()),
        "inter-dimension-scheduling": draw(st.sampled_from(("ascending", "roundRobin", "offlineGreedy"))),
        "intra-dimension-scheduling": draw(st.sampled_from(("FIFO", "RG", "lessRemainingPhaseFirst"))),
        "all-to-all-implementation": ["ring"] * levels,
    }
    algorithm = draw(st.sampled_from([name for name in ALGORITHMS if not name.startswith("one")]))
    for kind in ("all-reduce", "all-gather", "reduce-scatter"):
        system[f"{kind}-implementation"] = [algorithm] * levels
    return {"network": network, "system": system}


@st.composite
def workloads_1(draw: st.DrawFn) -> tuple[Workload, dict[str, Any]]:
    """Draw a workload of one template, whose collectives start together, or of several, and a machine."""
    machine = draw(machines_1())
    npus = machine["network"]["units-count"]
    ranks = int(np.prod(npus))
    rules = {"rows": GroupRule(npus[0], 1), "columns": GroupRule(npus[-1], ranks // npus[-1])}
    recipe = draw(recipes(ranks, list(rules) if draw(st.booleans()) else []))
    paces = draw(st.integers(1, 2))
    of_rank = np.array(draw(st.lists(st.integers(0, paces - 1), min_size=ranks, max_size=ranks)))
    return cooked(recipe, paces, of_rank, rules), machine


@pytest.mark.deep
@given(workloads_1())
@settings(suppress_health_check=list(HealthCheck))
def test_causes_and_changes_on_machines_of_1_0(drawn: tuple[Workload, dict[str, Any]]) -> None:
    workload, machine = drawn
    plain = run(workload, **machine)
    for fold in (False, True):
        result = run(workload, **machine, fold=fold, detail="path")
        assert (result.is_complete, result.makespan_ns) == (plain.is_complete, plain.makespan_ns)
        check(result)
        if result.is_complete:  # ranks that take each other's chunks last in, first out may wait in a circle
            check_causes(path_of(result), result)
