"""A run with changes is the same with its variations in sequence and side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from machines import FIFO_RING, RING_4

import et_sim
from et_sim.cli import main
from et_sim.machine import read_machine
from et_sim.machine.scaling import figures
from et_sim.run import workers
from et_sim.run.options import RunOptions
from et_sim.run.variation import Variations
from et_sim.run.workers import WorkerPool
from et_sim.validation.predictions import predictions
from et_sim.validation.rows import read_rows, shipped

pytestmark = pytest.mark.usefixtures("warm_engine")

SYSTEM = FIFO_RING | {"profile": "corrected", "endpoint-delay": 10}


def _workload(micros: int) -> et_sim.Workload:
    traces = []
    for rank in range(4):
        build = et_sim.TraceBuilder()
        build.collective("all_reduce", 1 << 18, after=[build.compute("work", micros=micros + rank)])
        traces.append(build.build())
    return et_sim.Workload.of(traces)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with two workloads and a machine."""
    monkeypatch.chdir(tmp_path)
    et_sim.write_workload(_workload(5), "job")
    et_sim.write_workload(_workload(9), "more")
    Path("system.json").write_text(json.dumps(SYSTEM))
    Path("network.yml").write_text(json.dumps(RING_4))
    return tmp_path


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that collects the number of tasks of each pool, on a machine of two processors."""
    pools, run = list[int](), WorkerPool.run
    monkeypatch.setattr(workers, "WORTH_SECONDS", 1e9)
    monkeypatch.setattr(workers, "processors", lambda: 2)

    def note(pool: WorkerPool, tasks: Any, do: Any = None) -> Any:
        pools.append(len(tasks))
        return run(pool, tasks, do)

    monkeypatch.setattr(WorkerPool, "run", note)
    return pools


def test_figures_changed_side_by_side_are_the_same_bytes(
    beside: list[int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = ["--system=system.json", "--network=network.yml", "--detail=path"]
    assert main(["run", "job", *machine, "--out=run"]) == 0
    for option in ("--vary", "--verify"):
        printed = []
        for worth in (1e9, 0.0):
            monkeypatch.setattr(workers, "WORTH_SECONDS", worth)
            capsys.readouterr()
            assert main(["inspect", "run", "critical-path", option, "--json"]) == 0
            printed.append(capsys.readouterr().out)
        assert printed[0] == printed[1]
        assert len(beside) == 1
        assert len(json.loads(printed[0])) == beside.pop() > 4


def test_a_figure_that_is_changed_is_that_of_the_machine(folder: Path) -> None:
    system, network = str(folder / "system.json"), str(folder / "network.yml")
    variations = Variations("job", RunOptions(system=system, network=network))
    [ending] = variations.with_figures([("bandwidth of dimension 0", 0.5)], print)
    slower = et_sim.simulate(
        "job", system=system, network=RING_4 | {"bandwidth": [RING_4["bandwidth"][0] / 2]}
    )
    assert ending.makespan_ns == slower.makespan_ns
    assert "bandwidth of dimension 0" in figures(read_machine(system=system, network=network))


def test_a_workload_is_read_once(folder: Path) -> None:
    variations = Variations("job", RunOptions(system="system.json", network="network.yml"))
    first = variations.task()
    for rank in range(4):
        (folder / f"job.{rank}.et").unlink()
    assert variations.task(profile="reference").workload.templates == first.workload.templates


@pytest.mark.deep
def test_jobs_by_themselves_take_as_long_side_by_side(
    beside: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [
        {"name": name, "workload": name, "npus": npus} for name, npus in (("job", "0-3"), ("more", "4-7"))
    ]
    Path("jobs.json").write_text(json.dumps({"jobs": jobs}))
    network = RING_4 | {"npus_count": [8]}
    alone = []
    for worth in (1e9, 0.0):
        monkeypatch.setattr(workers, "WORTH_SECONDS", worth)
        result = et_sim.simulate("jobs.json", system="system.json", network=network, isolated=True)
        alone.append([job["alone_ns"] for job in result.jobs.values()])
    assert alone[0] == alone[1]
    assert beside == [2]


@pytest.mark.deep
def test_measurements_are_predicted_alike_side_by_side(
    beside: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [row for path in shipped() for row in read_rows(path)]
    rows = [row for row in every if row.table == "a100x8_alltoall_superbench"][:4]
    apart = list(predictions(rows))
    assert not beside
    monkeypatch.setattr(workers, "WORTH_SECONDS", 0.0)
    together = list(predictions(rows))
    assert together == apart
    assert beside == [4]
