"""The sentence at the top of a run has the figures of the tables."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from machines import FIFO_RING, ring
from msgspec import structs
from runs_to_show import pipeline, side_by_side
from training_jobs import transformer

import et_sim
from et_sim.cli import main
from et_sim.timeline import write_run
from et_sim.trace import write_manifest
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.summary.in_short import in_short, small_path
from et_sim.views.summary.path_in_short import Lever, _longest_on, best_lever
from et_sim.views.text import share
from et_sim.views.view import view_text

pytestmark = pytest.mark.usefixtures("warm_engine")


def _lever(path: CriticalPath) -> Lever:
    lever = best_lever(path)
    assert lever is not None
    return lever


def test_the_sentence_on_a_recorded_path_names_its_rank_and_main_cause(tmp_path: Path) -> None:
    run = open_run(pipeline(tmp_path / "run", detail="path"))
    path = CriticalPath(PathRecord(run))
    on: dict[int, int] = {}
    for actor, spent in zip(path.chain.actor.tolist(), path.spent_ns.tolist(), strict=True):
        on[actor] = on.get(actor, 0) + spent
    most = max(on, key=lambda actor: on[actor])
    ranks = run.actors()["ranks"].to_pylist()[most]
    causes, whole = path.by_cause(), path.makespan_ns
    sentence = in_short(run, small_path(run))
    assert f"{ranks} " in sentence
    assert f"on {share(on[most], whole)} of the critical path" in sentence
    assert f"which is {share(max(causes.values()), whole)} " in sentence
    assert sentence in " ".join(view_text("summary", run.path, width=500).split())


FIGURES = {"kernels": "time of all kernels=0.5", "twice the bandwidth": "bandwidth of dimension 0=2"}


@pytest.mark.parametrize(("bandwidth", "begins"), [("500GB/s", "kernels"), ("1GB/s", "twice the bandwidth")])
def test_the_best_lever_saves_its_estimate_when_it_is_simulated(
    bandwidth: str, begins: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, *_ = write_manifest(transformer(tensor=2, pipeline=2, data=2), tmp_path / "job.workload.json")
    files = {"system": tmp_path / "system.json", "network": tmp_path / "network.json"}
    shared_for_free = FIFO_RING | {"corrections": {"port-bandwidth": False}}  # messages share links for free
    files["system"].write_text(json.dumps(shared_for_free))
    files["network"].write_text(json.dumps(ring(8, bandwidth, 500)))
    write_run(et_sim.simulate(job, **files, detail="path"), tmp_path / "run")
    run = open_run(tmp_path / "run")
    path = small_path(run)
    assert path is not None
    best = _lever(path)
    assert best.text.startswith(begins)
    saved = {}
    for lever, figure in FIGURES.items():
        assert main(["inspect", str(run.path), "critical-path", "--vary", figure, "--json"]) == 0
        [varied] = json.loads(capsys.readouterr().out)
        saved[lever] = -varied["change_ns"]
    assert 0 < saved[begins] == max(saved.values())
    assert saved[begins] == pytest.approx(best.saved_ns, abs=len(path.spent_ns))


def test_the_lever_where_a_rank_is_slow_at_computing_is_faster_kernels(tmp_path: Path) -> None:
    build = [et_sim.TraceBuilder() for _ in range(4)]
    for rank, builder in enumerate(build):
        builder.compute("layer", nanos=900_000 if rank == 2 else 300_000)
        builder.collective("all_reduce", 1 << 16)
    network = {**ring(8, "50GB/s", 500), "npus_count": [4]}
    run = et_sim.simulate(
        et_sim.Workload.of([builder.build() for builder in build]),
        system=FIFO_RING,
        network=network,
        detail="path",
    )
    write_run(run, tmp_path / "run")
    sentence = in_short(open_run(tmp_path / "run"), small_path(open_run(tmp_path / "run")))
    saved = share(450_000, run.makespan_ns)
    assert f"best lever: kernels twice as fast, estimated to save {saved}" in sentence


def test_without_a_path_the_sentence_is_of_the_average_rank(tmp_path: Path) -> None:
    run = open_run(side_by_side(tmp_path / "run"))
    assert small_path(run) is None
    computing = sum(entry["compute_ns"] * 2 for entry in run.summary["per_rank"])  # one line of two ranks
    whole = 2 * run.summary["makespan_ns"]
    sentence = in_short(run, None)
    assert sentence.startswith(("compute is ", "exposed communication is "))
    assert "lever" not in sentence  # the lever does not follow from a part of the time
    if sentence.startswith("compute"):
        assert f"{share(computing, whole)} of the average rank's time" in sentence


def test_a_run_that_did_not_complete_has_no_such_sentence(tmp_path: Path) -> None:
    run = open_run(side_by_side(tmp_path / "run"))
    stuck = structs.replace(run, summary={**run.summary, "status": "stalled"})
    assert in_short(stuck, None) == ""


def test_the_actor_with_the_most_time_of_a_path_may_be_the_first() -> None:
    chain = SimpleNamespace(actor=np.array([0, 1, -1, 0]))  # no actor: before all of them begin
    path = cast(Any, SimpleNamespace(chain=chain, spent_ns=np.array([5, 6, 100, 4])))
    assert _longest_on(path) == (0, 9)
