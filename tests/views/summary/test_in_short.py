"""The sentence on top of a run says what the tables say, and what else could save is a true bound."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from runs_to_show import SYSTEM, pipeline, side_by_side
from training_jobs import transformer

import et_sim
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.summary.in_short import NETWORK, in_short, small_path
from et_sim.views.summary.inspect import summary_text
from et_sim.views.text import share

pytestmark = pytest.mark.usefixtures("warm_engine")


def _ring(bandwidth: str, latency: int) -> dict[str, object]:
    return {"topology": ["Ring"], "npus_count": [8], "bandwidth": [bandwidth], "latency": [latency]}


def test_of_a_recorded_path_the_sentence_says_whose_it_is_and_what_it_is_mostly(tmp_path: Path) -> None:
    run = open_run(pipeline(tmp_path / "run", detail="path"))
    path = CriticalPath(PathRecord(run))
    on: dict[int, int] = {}
    for actor, spent in zip(path.chain.actor.tolist(), path.spent_ns.tolist(), strict=True):
        on[actor] = on.get(actor, 0) + spent
    most = max(on, key=lambda actor: on[actor])
    ranks = run.actors()["ranks"].to_pylist()[most]
    causes, whole = path.by_cause(), path.makespan_ns
    said = in_short(run, small_path(run))
    assert f"{ranks} " in said
    assert f"on {share(on[most], whole)} of the critical path" in said
    assert f"which is {share(max(causes.values()), whole)} " in said
    assert said in " ".join(summary_text(run.path, width=500).split())


def test_no_faster_network_saves_more_than_the_sentence_says(tmp_path: Path) -> None:
    workload = transformer(tensor=2, pipeline=2, data=2)
    slow = et_sim.simulate(workload, system=SYSTEM, network=_ring("50GB/s", 500), detail="path")
    write_run(slow, tmp_path / "run")
    path = small_path(open_run(tmp_path / "run"))
    assert path is not None
    causes = path.by_cause()
    fast = et_sim.simulate(workload, system=SYSTEM, network=_ring("1000000GB/s", 0))
    assert slow.makespan_ns - fast.makespan_ns <= sum(causes.get(name, 0) for name in NETWORK)


def test_without_a_path_the_sentence_is_of_the_average_rank(tmp_path: Path) -> None:
    run = open_run(side_by_side(tmp_path / "run"))
    assert small_path(run) is None
    computing = sum(entry["compute_ns"] * 2 for entry in run.summary["per_rank"])  # one line of two ranks
    whole = 2 * run.summary["makespan_ns"]
    said = in_short(run, None)
    assert said.startswith(("compute is ", "exposed communication is "))
    if said.startswith("compute"):
        assert f"{share(computing, whole)} of the average rank's time" in said


def test_of_a_run_that_did_not_complete_there_is_no_such_sentence(tmp_path: Path) -> None:
    run = open_run(side_by_side(tmp_path / "run"))
    stuck = dataclasses.replace(run, summary={**run.summary, "status": "stalled"})
    assert in_short(stuck, None) == ""
