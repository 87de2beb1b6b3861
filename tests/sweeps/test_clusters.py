"""A sweep on a Dask cluster gives the same bytes, also if workers end or join."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_sweeps import TEXT, table_of, write

from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.sweeps import cluster
from et_sim.sweeps.evaluate import PointTask
from et_sim.sweeps.state import plan_sweep
from et_sim.sweeps.sweep import carry_out
from et_sim.tables.sweep_tables import JOURNAL
from et_sim.version import __version__

REPOSITORY = Path(__file__).resolve().parents[2]
pytest.importorskip("distributed")


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def test_one_dask_worker_and_this_process_give_the_same_bytes(tmp_path: Path) -> None:
    from distributed import LocalCluster

    plan = plan_sweep(write(tmp_path))
    options: dict[str, Any] = {"dashboard_address": None, "processes": False}
    with LocalCluster(n_workers=1, threads_per_worker=2, **options) as local:
        report = carry_out(plan, tmp_path / "dask", dask=local.scheduler_address)
    carry_out(plan, tmp_path / "here", workers=1)
    assert report.complete == len(plan.points)
    assert table_of(tmp_path / "dask") == table_of(tmp_path / "here")


@pytest.mark.deep
def test_a_sweep_that_ends_early_leaves_no_task_on_the_cluster(tmp_path: Path) -> None:
    from distributed import LocalCluster

    class Stop:
        def begin(self, _what: str, _total: int) -> None: ...
        def expect(self, _total: int, _text: str) -> None: ...
        def add(self, _done: int, _failed: int) -> None:
            raise KeyboardInterrupt

    text = TEXT.replace("values: [25, 50, 100]", "range: {from: 25.0, to: 100.0, count: 60}")
    plan = plan_sweep(write(tmp_path, text))
    options: dict[str, Any] = {"dashboard_address": None, "processes": False}
    with LocalCluster(n_workers=1, threads_per_worker=1, **options) as local:
        with pytest.raises(KeyboardInterrupt):
            carry_out(plan, tmp_path / "out", dask=local.scheduler_address, watch=Stop())
        for _ in range(200):
            if not local.scheduler.tasks:
                break
            time.sleep(0.05)
        assert not local.scheduler.tasks
    assert 0 < (tmp_path / "out" / JOURNAL).read_bytes().count(b"\n") < 180


class _Workers:
    """A client whose workers reported these programs."""

    def __init__(self, *reported: Any) -> None:
        self._reported = reported

    def wait_for_workers(self, *_: Any, **__: Any) -> None:
        if not self._reported:
            raise TimeoutError

    def run(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {f"tcp://{number}": result for number, result in enumerate(self._reported)}


@pytest.mark.parametrize(
    ("workers", "sentence"),
    [
        ([], "the cluster has no workers"),
        ([cluster.about_program(), ("9.9", "x")], "worker tcp://1 runs et-sim 9.9, and this is et-sim"),
        ([(__version__, "x")], "with other sources, and this is"),
        ([ModuleNotFoundError("No module named 'et_sim'")], "cannot run et-sim: No module named 'et_sim'"),
    ],
)
def test_a_cluster_that_would_compute_something_else_is_refused(workers: list[Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        cluster._check_versions(_Workers(*workers))


def test_a_worker_that_joins_with_another_version_is_refused(tmp_path: Path) -> None:
    plan = plan_sweep(write(tmp_path))
    assert cluster.work(plan.space, [], "another") == (
        f"a worker runs another et-sim than this one: install {__version__} everywhere, and sweep again"
    )


@pytest.mark.parametrize("where", ["nowhere", "tcp://127.0.0.1:1", "rings.yml"])
def test_a_scheduler_that_is_not_there_is_one_sentence(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.2)
    plan = plan_sweep(write(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refusal:
        carry_out(plan, tmp_path / "out", dask=where)
    assert "\n" not in str(refusal.value)
    assert where in str(refusal.value)


@pytest.mark.parametrize("command", ["sweep", "search"])
@pytest.mark.parametrize("where", ["nowhere", "tcp://127.0.0.1:1"])
def test_a_scheduler_that_is_not_there_is_refused_before_points_are_planned(
    command: str,
    where: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def planned(*_: Any, **__: Any) -> Any:
        raise AssertionError("points were planned")

    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.2)
    monkeypatch.setattr("et_sim.sweeps.state.plan_sweep", planned)
    out = tmp_path / "out"
    assert main([command, str(write(tmp_path)), "--dask", where, "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("et-sim: error: ")
    assert where in err
    assert "planned" not in err
    assert not out.exists()


def test_few_tasks_are_spread_over_all_threads() -> None:
    def sizes(count: int, wanted: int) -> list[int]:
        tasks = [PointTask(str(number), ()) for number in range(count)]
        return [len(batch) for batch in cluster._batches(tasks, wanted)]

    assert sizes(8, 4) == [2] * 4
    assert sizes(3, 16) == [1] * 3
    assert sizes(1000, 4) == [cluster.AT_ONCE] * 125


def test_a_worker_that_is_being_lost_is_no_other_version() -> None:
    cluster._check_versions(_Workers(cluster.about_program(), ConnectionResetError("reset by peer")))


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[Path, list[subprocess.Popen[bytes]]]]:
    """Yield a scheduler's file, and the processes: the scheduler and two workers."""
    file = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    options: dict[str, Any] = {"env": environment, "cwd": tmp_path, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen([*dask, "scheduler", *common, "--port", "0"], **options)]
    while not file.exists():
        time.sleep(0.05)
    worker = [*dask, "worker", *common, "--no-nanny", "--nthreads", "1"]
    processes += [subprocess.Popen(worker, **options) for _ in range(2)]
    yield file, processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.deep
def test_a_worker_killed_in_the_middle_changes_no_byte(
    scheduler: tuple[Path, list[subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    file, processes = scheduler
    text = TEXT.replace("values: [25, 50, 100]", "range: {from: 25.0, to: 100.0, count: 60}")
    plan = plan_sweep(write(tmp_path, text))

    class Killer:
        done = 0

        def begin(self, _what: str, _total: int) -> None: ...
        def expect(self, _total: int, _text: str) -> None: ...
        def add(self, done: int, _failed: int) -> None:
            self.done += done
            if self.done >= 40:
                processes[-1].kill()

    report = carry_out(plan, tmp_path / "dask", dask=str(file), watch=Killer())
    assert processes[-1].wait() != 0
    assert (report.complete, len(plan.points)) == (180, 180)
    carry_out(plan, tmp_path / "one", workers=1)
    carry_out(plan, tmp_path / "two", workers=2)
    assert table_of(tmp_path / "dask") == table_of(tmp_path / "one") == table_of(tmp_path / "two")
    assert (tmp_path / "dask" / JOURNAL).read_bytes().count(b"\n") == 180


@pytest.mark.deep
@pytest.mark.in_turn(days=2)
@pytest.mark.parametrize("goal", ["minimise: [price]", "minimise: [makespan_ns, peak_memory_bytes]"])
def test_a_search_on_two_dask_workers_gives_the_same_bytes_when_one_is_killed(
    goal: str, scheduler: tuple[Path, list[subprocess.Popen[bytes]]], tmp_path: Path
) -> None:
    file, processes = scheduler
    (tmp_path / "model.json").write_text(
        '{"model_type": "gpt2", "n_embd": 64, "n_head": 8, "n_layer": 4, "vocab_size": 256,'
        ' "n_positions": 32}'
    )
    text = f"""\
base:
  workload: {{make: llm, model: {tmp_path}/model.json, plan: {{}}}}
  machine: h100-dgx:8
axes:
  tp: {{field: workload.plan.tp, values: [1, 2, 4, 8]}}
  pp: {{field: workload.plan.pp, values: [1, 2, 4]}}
  dp: {{field: workload.plan.dp, values: [1, 2, 4, 8]}}
constraints: [tp * pp * dp == 8]
search: {{{goal}, at-once: 2, ladder: [analytical, link], keep: 3}}
"""
    (tmp_path / "plans.yml").write_text(text)
    planned = plan_sweep(tmp_path / "plans.yml", searches=True)

    class Killer:
        done = 0

        def begin(self, _what: str, _total: int) -> None: ...
        def expect(self, _total: int, _text: str) -> None: ...
        def add(self, done: int, _failed: int) -> None:
            self.done += done
            if self.done >= len(planned.points) + 2:  # bounds are the first to be counted
                processes[-1].kill()

    report = carry_out(planned, tmp_path / "dask", dask=str(file), watch=Killer())
    assert processes[-1].wait() != 0
    carry_out(planned, tmp_path / "one", workers=1)
    assert report.search.front
    for name in (".", "rung-1"):
        assert table_of(tmp_path / "dask" / name) == table_of(tmp_path / "one" / name)
