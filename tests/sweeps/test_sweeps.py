"""Sweeps: every point once, the same bytes from any process, and no finished point lost when killed."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from machines import RING_4
from small_sweeps import AXES, SYSTEM, TEXT, WORKLOAD, spec, table_of, write

import et_sim
from et_sim.basics.errors import EtSimError, UsageError
from et_sim.cli import main
from et_sim.goodput.goodput import goodput
from et_sim.machine.presets import preset
from et_sim.recipes.recipe import make
from et_sim.run.workers import ENDED
from et_sim.sweeps import evaluate, journal, sweep
from et_sim.sweeps.evaluate import Done, Evaluator, Finished, InProcess, OtherProcesses, PointTask
from et_sim.sweeps.journal import Journal
from et_sim.sweeps.state import SweepPlan, parse_keep, plan_sweep
from et_sim.sweeps.sweep import carry_out
from et_sim.tables.sweep_tables import JOURNAL
from et_sim.views.run.directory import open_run

REPOSITORY = Path(__file__).resolve().parents[2]
PROGRAM = "import sys; from et_sim.cli import main; sys.exit(main(sys.argv[1:]))"
POINTS = 9


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")


def _lines(folder: Path) -> int:
    path = folder / JOURNAL
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a sweep that one process ran without interruption."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ET_SIM_COMPILE", "never")
        carry_out(plan_sweep(write(folder)), folder / "out", workers=1)
    return folder / "out"


def test_every_row_has_the_figures_of_a_run(undisturbed: Path) -> None:
    table = pa.ipc.open_file(undisturbed / "sweep.arrow").read_all().to_pylist()
    assert [row["point"] for row in table] == list(range(POINTS))
    for row in table:
        network = dict(RING_4, bandwidth=[row["bandwidth"]])
        system = dict(SYSTEM, **{"preferred-dataset-splits": row["splits"]})
        workload = et_sim.recipes.recipe.make(WORKLOAD, Path())  # type: ignore[attr-defined]
        run = et_sim.simulate(workload, system=system, network=network)
        assert row["makespan_ns"] == run.makespan_ns
        assert row["exposed_comm_ns"] == run.exposed_comm_ns.max()
        assert (row["status"], row["ranks"], row["error"]) == ("complete", 4, None)
        assert (row["bottleneck"], row["bottleneck_share"]) == ("communication", 1.0)


def test_worker_processes_give_the_same_bytes(undisturbed: Path, tmp_path: Path) -> None:
    report = carry_out(plan_sweep(write(tmp_path)), tmp_path / "out", workers=2)
    assert (report.points, report.known, report.complete) == (POINTS, 0, POINTS)
    assert table_of(tmp_path / "out") == table_of(undisturbed)


class _Other:
    """A runner of tasks in another order, in groups."""

    def __init__(self, space: Any, seed: int, until: int = POINTS) -> None:
        self._space, self._seed, self._until = space, seed, until

    def close(self) -> None: ...

    def run(self, tasks: Sequence[PointTask]) -> Iterator[Sequence[Done]]:
        order = random.Random(self._seed).sample(list(tasks), len(tasks))
        evaluator = Evaluator(self._space)
        done = [evaluate.attempt(evaluator, task) for task in order[: self._until]]
        yield done[:3]
        yield done[3:]
        if self._until < len(tasks):
            raise KeyboardInterrupt


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_evaluation_changes_no_byte(
    seed: int, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_local", lambda space, *_: _Other(space, seed))
    carry_out(plan_sweep(write(tmp_path)), tmp_path / "out")
    assert table_of(tmp_path / "out") == table_of(undisturbed)


def test_an_interrupted_sweep_leaves_a_table_and_goes_on(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, out = plan_sweep(write(tmp_path)), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "_local", lambda space, *_: _Other(space, 1, until=5))
        with pytest.raises(KeyboardInterrupt):
            carry_out(plan, out)
    assert len(pa.ipc.open_file(out / "sweep.arrow").read_all()) == 5
    report = carry_out(plan, out, workers=1)
    assert report.known == 5
    assert table_of(out) == table_of(undisturbed)


class _Never:
    def close(self) -> None: ...
    def run(self, _tasks: Sequence[PointTask]) -> Iterator[Sequence[Done]]:
        raise AssertionError("something was evaluated twice")


def test_finished_points_are_not_evaluated_again(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_local", lambda *_: _Never())
    report = carry_out(plan_sweep(write(tmp_path)), undisturbed)
    assert report.known == POINTS


def test_more_values_evaluate_only_the_new_points(tmp_path: Path) -> None:
    path, out = write(tmp_path), tmp_path / "out"
    carry_out(plan_sweep(path), out, workers=1)
    path.write_text(TEXT.replace("[1, 2, 4]", "[1, 2, 4, 8]"), encoding="utf-8")
    assert carry_out(plan_sweep(path), out, workers=1).known == POINTS
    assert _lines(out) == 12


@pytest.mark.parametrize("torn", [1, 40, 10**6])
def test_a_torn_line_is_cut_off_and_its_point_evaluated_again(
    torn: int, undisturbed: Path, tmp_path: Path
) -> None:
    plan, out = plan_sweep(write(tmp_path)), tmp_path / "out"
    out.mkdir()
    whole = (undisturbed / JOURNAL).read_bytes()
    (out / JOURNAL).write_bytes(whole[: max(len(whole) - torn, 5)])
    carry_out(plan, out, workers=1)
    assert table_of(out) == table_of(undisturbed)
    assert _lines(out) == POINTS


@pytest.mark.parametrize("figure", [{"makespan_ns": "fast"}, {"warnings": 5}, {"error": ["x"]}])
def test_rows_whose_figures_are_of_another_kind_are_evaluated_again(
    figure: dict[str, Any], undisturbed: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    lines = [json.loads(line) for line in (undisturbed / JOURNAL).read_text().splitlines()]
    spoilt = [json.dumps({**line, "row": line["row"] | figure}) for line in lines]
    (tmp_path / "out" / JOURNAL).write_text("\n".join([*spoilt, ""]))
    assert carry_out(plan_sweep(write(tmp_path)), tmp_path / "out", workers=1).known == 0
    assert table_of(tmp_path / "out") == table_of(undisturbed)


@pytest.mark.parametrize("damage", [b"\n", b"[]\n", b'{"digest": 1}\n', b"\xff\xfe\n", b"[" * 5000 + b"\n"])
def test_a_damaged_line_is_no_result(damage: bytes, undisturbed: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / JOURNAL).write_bytes(damage + (undisturbed / JOURNAL).read_bytes())
    carry_out(plan_sweep(write(tmp_path)), tmp_path / "out", workers=1)
    assert table_of(tmp_path / "out") == table_of(undisturbed)


def _start(path: Path, out: Path, workers: int = 2) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "sweep", str(path), "--out", str(out), "--workers", str(workers)],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=_ctrl_c_interrupts,
    )


def _ctrl_c_interrupts() -> None:
    """Handle SIGINT, which a shell sets to be ignored in background processes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.deep
def test_a_killed_sweep_goes_on_where_it_was(undisturbed: Path, tmp_path: Path) -> None:
    path, out = write(tmp_path), tmp_path / "out"
    process = _start(path, out, workers=1)
    while _lines(out) < 3 and process.poll() is None:
        time.sleep(0.002)
    process.kill()
    process.communicate()
    before = _lines(out)
    assert before >= 3
    assert carry_out(plan_sweep(path), out, workers=1).known == before
    assert table_of(out) == table_of(undisturbed)


@pytest.mark.deep
def test_a_sweep_killed_again_and_again_ends_like_one_that_was_left_alone(tmp_path: Path) -> None:
    text = TEXT.replace("values: [25, 50, 100]", "range: {from: 25.0, to: 100.0, count: 80}")
    path, moments = write(tmp_path, text), random.Random(5)
    for _ in range(6):
        until = _lines(tmp_path / "killed") + moments.randrange(12)
        process = _start(path, tmp_path / "killed")
        while _lines(tmp_path / "killed") < until and process.poll() is None:
            time.sleep(0.002)
        time.sleep(moments.uniform(0.0, 0.1))
        process.kill()
        process.communicate()
    for name in ("killed", "alone"):
        carry_out(plan_sweep(path), tmp_path / name, workers=2)
    assert table_of(tmp_path / "killed") == table_of(tmp_path / "alone")
    assert _lines(tmp_path / "killed") == 240


@pytest.mark.deep
def test_samples_of_points_are_those_of_their_runs(tmp_path: Path) -> None:
    varied = {**SYSTEM, "variation": [{"kind": "kernel", "level": "event", "family": "gamma", "spread": 0.5}]}
    base = {"workload": {**WORKLOAD, "compute-us": 50}, "system": varied, "network": RING_4}
    swept = {"base": {**base, "samples": 10, "seed": 3}, "axes": {"bandwidth": AXES["bandwidth"]}}
    report = et_sim.sweep(swept, tmp_path / "out", workers=1)
    workload = make(base["workload"], tmp_path)
    for row in report.table.to_pylist():
        network = {**RING_4, "bandwidth": [row["bandwidth"]]}
        run = et_sim.simulate(workload, system=varied, network=network, samples=10, seed=3)
        assert run.samples is not None
        step = run.samples.summary()["step"]
        assert row["makespan_ns"] == run.makespan_ns
        for name in ("mean", "p50", "p99"):
            assert row[f"{name}_ns"] == step[name]["value_ns"]
        assert row["p50_ns"] < row["p99_ns"]
    without = {"base": {**base, "seed": 3}, "axes": swept["axes"]}
    with pytest.raises(EtSimError, match='"seed" has no effect without "samples"'):
        et_sim.sweep(without, tmp_path / "other")


SMALL_LLM = {
    "make": "llm",
    "model": "llama3-8b",
    "layers": 1,
    "sequence": 256,
    "plan": {"tp": 8, "dp": 1, "global-batch": 4},
}
LONG: dict[str, Any] = {
    "failures": {"parts": [{"name": "gpu", "per-1000-node-days": 500, "repair": "6h"}]},
    "checkpoints": {"storage": "1GB/s"},
    "tokens": 1e9,
}


@pytest.mark.deep
def test_months_of_points_are_those_of_their_jobs(tmp_path: Path) -> None:
    base = {"workload": SMALL_LLM, "goodput": {"job": LONG, "days": 20, "runs": 10, "seed": 2}}
    axes = {"machine": ["h100-dgx:8", "a100-dgx-80gb:8"]}
    result = et_sim.sweep({"base": base, "axes": axes}, tmp_path / "out", workers=1)
    for row in result.table.to_pylist():
        assert row["status"] == "complete", row["error"]
        job = {**LONG, "workload": SMALL_LLM, "machine": row["machine"]}
        months = goodput(job, days=20, runs=10, seed=2).summary()
        assert months["step"]["seconds"] == row["makespan_ns"] / 1e9
        assert row["goodput"] == months["goodput"]["mean"] < 1
        assert row["kept_tokens"] == months["tokens"]["mean"]
        assert row["finish_days"] == months["finish_days"]["mean"]
        assert row["price_per_million_kept_tokens"] == months["costs"]["price_per_million_tokens"]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({**LONG, "step": "3s"}, 'the job has "step"'),
        ({**LONG, "spare": {}}, '"spare"'),
        ("none.yml", "there is no such file"),
    ],
)
def test_a_job_that_points_cannot_have_is_refused(job: Any, words: str, tmp_path: Path) -> None:
    base = {"workload": SMALL_LLM, "machine": "h100-dgx:8", "goodput": {"job": job}}
    axes = {"model": ["flow", "link"]}
    with pytest.raises(EtSimError, match=re.escape(words)):
        et_sim.sweep({"base": base, "axes": axes}, tmp_path / "out", workers=1)


@pytest.mark.deep
def test_points_have_slow_nodes_fewer_replicas_and_copies_in_memory(tmp_path: Path) -> None:
    hot = {"name": "thermal", "per-1000-node-days": 50, "effect": "slows", "detection": "1h"}
    checkpoints = {"how": "asynchronous", "memory": {"interval": "1min"}}
    job = {**LONG, "elastic": 1, "failures": {"parts": [hot]}, "checkpoints": checkpoints}
    workload = {**SMALL_LLM, "plan": {**SMALL_LLM["plan"], "dp": 2}}
    base = {"workload": workload, "machine": "h100-dgx:16", "goodput": {"job": job, "days": 5, "runs": 4}}
    axes = {"profile": ["corrected", "reference"]}
    rows = et_sim.sweep({"base": base, "axes": axes}, tmp_path / "out", workers=1).table.to_pylist()
    months = goodput({**job, "workload": workload, "machine": "h100-dgx:16"}, days=5, runs=4).summary()
    assert months["step"]["slow_node_seconds"] > months["step"]["seconds"]
    assert rows[0]["error"] is None
    assert rows[0]["goodput"] == months["goodput"]["mean"]
    assert rows[0]["kept_tokens"] == months["tokens"]["mean"]
    assert rows[1]["error"] is None
    assert rows[1]["goodput"] != rows[0]["goodput"]


@pytest.mark.deep
def test_states_of_points_are_those_of_runs_on_their_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    hot = {"name": "thermal", "per-1000-node-days": 50, "effect": "slows", "detection": "1h"}
    cable = {"name": "cable", "per-1000-node-days": 50, "effect": "halves-link", "detection": "1h"}
    checkpoints = {
        "how": "asynchronous",
        "bytes": "160GB",
        "storage": "200GB/s",
        "memory": {"interval": "1min"},
    }
    job = {**LONG, "failures": {"parts": [hot, cable]}, "checkpoints": checkpoints}
    workload = {**SMALL_LLM, "plan": {**SMALL_LLM["plan"], "dp": 2}}
    base = {"workload": workload, "machine": "h100-dgx:16", "goodput": {"job": job, "days": 5, "runs": 4}}
    known = preset("h100-dgx:16")
    bandwidths = [[*known.network["bandwidth"][:-1], figure] for figure in ("50GB/s", "10GB/s")]
    axes = {"bandwidth": {"field": "network.bandwidth", "values": bandwidths}}
    rows = et_sim.sweep({"base": base, "axes": axes}, "out", workers=1).table.to_pylist()
    assert rows[0]["goodput"] > rows[1]["goodput"]
    options = "--layers 1 --sequence 256 --tp 8 --dp 2 --global-batch 4 --machine h100-dgx:16"
    assert main(["make", "llm", "--model", "llama3-8b", *options.split(), "-o", "job"]) == 0
    for number, (row, bandwidth) in enumerate(zip(rows, bandwidths, strict=True)):
        assert row["error"] is None
        Path("network.yml").write_text(
            json.dumps({**known.network, "bandwidth": bandwidth}), encoding="utf-8"
        )
        run = ["run", "job.workload.json", "--machine", "h100-dgx:16", "--network", "network.yml"]
        assert main([*run, "--out", f"{number}.run"]) == 0
        months = goodput({**job, "run": str(tmp_path / f"{number}.run")}, days=5, runs=4).summary()
        assert row["goodput"] == months["goodput"]["mean"]
        assert row["kept_tokens"] == months["tokens"]["mean"]


def test_points_on_machines_without_a_name_have_no_fewer_replicas(tmp_path: Path) -> None:
    known = preset("h100-dgx:8")
    machine = {"system": known.system, "network": known.network, "model": "flow"}
    base = {"workload": SMALL_LLM, **machine, "goodput": {"job": {**LONG, "elastic": 1}}}
    axes = {"profile": ["corrected"]}
    (row,) = et_sim.sweep({"base": base, "axes": axes}, tmp_path / "out", workers=1).table.to_pylist()
    assert 'key "elastic" has fewer replicas, whose steps are simulated of recipes' in row["error"]


def test_a_point_without_tokens_has_no_goodput(tmp_path: Path) -> None:
    described = spec()
    described["base"]["goodput"] = {"job": LONG}
    rows = et_sim.sweep(described, tmp_path / "out", workers=1).table.to_pylist()
    assert {row["status"] for row in rows} == {"refused"}
    assert "the workload has no tokens" in rows[0]["error"]


def test_a_sweep_without_its_table_is_not_an_invalid_run(undisturbed: Path, tmp_path: Path) -> None:
    shutil.copy(undisturbed / JOURNAL, tmp_path)
    with pytest.raises(UsageError, match="repeat the same et-sim sweep command"):
        open_run(tmp_path)


def test_ctrl_c_prints_the_command_to_continue(tmp_path: Path) -> None:
    text = TEXT.replace("values: [25, 50, 100]", "range: {from: 25.0, to: 100.0, count: 800}")
    path, out = write(tmp_path, text), tmp_path / "out"
    process = _start(path, out, workers=1)
    while _lines(out) < 1 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output = process.communicate()[1].decode()
    assert process.returncode == 130
    assert f"what is finished is in {out}, and the same command goes on from there" in output
    assert "Traceback" not in output
    assert len(pa.ipc.open_file(out / "sweep.arrow").read_all()) == _lines(out)


def test_failing_points_are_rows_with_their_reasons(tmp_path: Path) -> None:
    axes = {
        "bandwidth": {"field": "network.bandwidth[0]", "values": [50, -1, "fast"]},
        "members": {"field": "workload.ranks", "values": [4, 5]},
        "name": {"field": "profile", "values": ["corrected", 7]},
    }
    try:
        carry_out(plan_sweep(spec(axes=axes)), tmp_path / "out", workers=1)
    except EtSimError:
        pytest.fail("one refused point stopped the others")
    rows = pa.ipc.open_file(tmp_path / "out" / "sweep.arrow").read_all().to_pylist()
    assert [row["status"] for row in rows] == ["complete", *["refused"] * 11]
    assert all(row["error"] and row["makespan_ns"] is None for row in rows[1:])
    assert "bandwidth" in rows[4]["error"]


def test_a_stall_is_a_row(tmp_path: Path) -> None:
    builders = [et_sim.TraceBuilder(), et_sim.TraceBuilder()]
    builders[0].receive(1, 1024)
    builders[1].compute("kernel", micros=5)
    et_sim.write_workload(et_sim.Workload.of([builder.build() for builder in builders]), tmp_path / "stuck")
    base = {"workload": str(tmp_path / "stuck"), "system": SYSTEM, "network": dict(RING_4, npus_count=[2])}
    report = carry_out(plan_sweep(spec(base=base, axes={"network.latency[0]": [1, 2]})), tmp_path / "out")
    assert set(report.table["status"].to_pylist()) == {"stalled"}
    assert report.complete == 0
    assert all(report.table["error"].to_pylist())


class _Broken(InProcess):
    def run(self, tasks: Sequence[PointTask]) -> Iterator[Sequence[Done]]:
        yield [evaluate.Lost(tasks[0].digest, "for a reason of the machine")]
        yield from super().run(tasks[1:])


def test_a_point_that_the_machine_lost_is_a_row_and_tried_again(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, out = plan_sweep(write(tmp_path)), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "_local", lambda space, *_: _Broken(space))
        table = carry_out(plan, out).table
    assert table["status"].to_pylist() == ["failed", *["complete"] * 8]
    assert table["error"][0].as_py() == "for a reason of the machine"
    carry_out(plan, out, workers=1)
    assert table_of(out) == table_of(undisturbed)


@pytest.mark.deep
def test_a_worker_that_dies_is_replaced_and_its_point_given_up_after_two_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_sweep(write(tmp_path))
    deadly = plan.points[4].digest
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "from et_sim.sweeps.evaluate import Evaluator\n"
        "row = Evaluator.row\n"
        f"dies = lambda task: os._exit(9) if task.digest == {deadly!r} else task\n"
        "Evaluator.row = lambda self, task: row(self, dies(task))\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    done = [point for some in OtherProcesses.of(plan.space, 1).run(_tasks(plan)) for point in some]
    assert sorted(finished.digest for finished in done) == sorted(point.digest for point in plan.points)
    assert [point for point in done if not isinstance(point, Finished)] == [evaluate.Lost(deadly, ENDED)]


def _tasks(plan: SweepPlan) -> list[PointTask]:
    return [PointTask(point.digest, point.values) for point in plan.points]


def test_two_sweeps_do_not_write_to_one_directory(tmp_path: Path) -> None:
    with Journal(tmp_path / "out"), pytest.raises(UsageError) as refusal:
        carry_out(plan_sweep(write(tmp_path)), tmp_path / "out")
    assert f"another sweep is writing to this directory (process {os.getpid()})" in str(refusal.value)


def test_a_full_disk_is_one_sentence_and_loses_nothing(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, out = plan_sweep(write(tmp_path)), tmp_path / "out"

    def fill_up(_: int) -> None:
        if _lines(out) >= 4:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "SECONDS_BETWEEN_SYNCS", 0.0)
        patch.setattr(os, "fsync", fill_up)
        with pytest.raises(UsageError) as refusal:
            carry_out(plan, out, workers=1)
    assert f"{out}: cannot be written: No space left on device (finished points are kept" in str(
        refusal.value
    )
    assert carry_out(plan, out, workers=1).known == 4
    assert table_of(out) == table_of(undisturbed)


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(UsageError, match="does not hold a sweep"):
        carry_out(plan_sweep(write(tmp_path / "..")), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_files_that_change_meanwhile_stop_the_sweep(tmp_path: Path) -> None:
    programs = tmp_path / "all_reduce"
    builder = et_sim.TraceBuilder()
    builder.compute("kernel", micros=5)
    et_sim.write_workload(et_sim.Workload.of([builder.build()] * 4), programs)
    system = dict(SYSTEM, **{"all-reduce-implementation-custom": [str(programs)]})
    plan = plan_sweep(spec(base={"workload": WORKLOAD, "system": system, "network": RING_4}))
    (tmp_path / "all_reduce.0.et").write_bytes(b"")
    with pytest.raises(EtSimError, match="changed after the sweep began"):
        carry_out(plan, tmp_path / "out", workers=1)


def test_whole_runs_are_kept_of_the_best(tmp_path: Path) -> None:
    plan, out = plan_sweep(write(tmp_path)), tmp_path / "out"
    table = carry_out(plan, out, workers=1, keep="best:2").table.sort_by("makespan_ns")
    kept = {path.name for path in (out / "runs").iterdir()}
    assert kept == {digest[:12] for digest in table["digest"].to_pylist()[:2]}
    summaries = [json.loads((out / "runs" / name / "summary.json").read_text()) for name in kept]
    assert {summary["makespan_ns"] for summary in summaries} == set(table["makespan_ns"].to_pylist()[:2])
    assert _lines(out) == POINTS
    carry_out(plan, out, workers=1, keep="0,3")
    assert {plan.points[0].digest[:12], plan.points[3].digest[:12]} | kept == {
        path.name for path in (out / "runs").iterdir()
    }


def test_all_runs_are_kept_while_they_are_simulated(tmp_path: Path, undisturbed: Path) -> None:
    carry_out(plan_sweep(write(tmp_path)), tmp_path / "out", workers=1, keep="all")
    assert len(list((tmp_path / "out" / "runs").iterdir())) == POINTS
    assert table_of(tmp_path / "out") == table_of(undisturbed)


@pytest.mark.parametrize("text", ["best", "best:0", "best:x", "some", "0-9", "", "best:99999999999999"])
def test_invalid_points_to_keep_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--keep"):
        parse_keep(text, POINTS)


@pytest.mark.deep
def test_python_evaluates_when_the_table_is_read(tmp_path: Path, undisturbed: Path) -> None:
    result = et_sim.sweep(write(tmp_path), tmp_path / "out", workers=1, progress=False)
    assert len(result) == POINTS
    assert result.points[1] == {"bandwidth": 25, "splits": 2}
    assert "not evaluated yet" in repr(result)
    assert not (tmp_path / "out").exists()
    assert result.table.equals(pa.ipc.open_file(undisturbed / "sweep.arrow").read_all())
    frame = result.to_pandas()
    assert frame["makespan_ns"].min() == min(result.table["makespan_ns"].to_pylist())
    assert str(frame["peak_memory_bytes"].dtype) == "Int64"  # though memory was not tracked
    of_dict = et_sim.sweep(spec(), workers=1, progress=False).table
    assert of_dict["makespan_ns"].equals(result.table["makespan_ns"])


IN_PLACE = """\
base:
  workload: {make: all_reduce, ranks: 4, bytes: 64KiB}
  system: system.json
  network: NETWORK
  model: MODEL
axes:
  splits: {field: system.preferred-dataset-splits, values: [1, 2]}
"""
WITH_PRESET = (
    "{topology: [Ring], npus_count: [4], bandwidth: [50.0], latency: [500.0], protocol: {preset: tcp}}"
)
WITH_FILE = WITH_PRESET.replace("preset: tcp", "file: inner.txt")
WITH_IMPORT = "{graph: {import: links.txt}}"
LINKS = "5 1 4\n4\n" + "".join(f"{npu} 4 100Gbps 0.001ms 0\n" for npu in range(4))


@pytest.mark.parametrize(("network", "model"), [(WITH_PRESET, "packet"), (WITH_IMPORT, "analytical")])
def test_a_network_in_place_names_files_from_the_folder_of_the_sweep(
    network: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "described"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    path = write(folder, IN_PLACE.replace("NETWORK", network).replace("MODEL", model))
    (folder / "links.txt").write_text(LINKS)
    table = et_sim.sweep(path, tmp_path / "out", workers=1, progress=False).table
    assert table["status"].to_pylist() == ["complete"] * 2, table["error"].to_pylist()


def test_a_protocol_in_place_names_its_file_from_the_folder_of_the_sweep(tmp_path: Path) -> None:
    path = write(tmp_path, IN_PLACE.replace("NETWORK", WITH_FILE).replace("MODEL", "packet"))
    (tmp_path / "inner.txt").write_text("PACKET_PAYLOAD_SIZE 1000\n")
    table = et_sim.sweep(path, tmp_path / "out", workers=1, progress=False).table
    [error] = set(table["error"].to_pylist())
    assert error.startswith(f"{tmp_path / 'inner.txt'}: keys L2_ACK_INTERVAL")


def test_errors_of_an_inline_network_have_a_place(tmp_path: Path) -> None:
    network = WITH_PRESET.replace("preset: tcp", "preset: tpc")
    path = write(tmp_path, IN_PLACE.replace("NETWORK", network).replace("MODEL", "packet"))
    table = et_sim.sweep(path, tmp_path / "out", workers=1, progress=False).table
    [error] = set(table["error"].to_pylist())
    assert error.startswith(f"{path}: network: protocol")
    assert "did you mean 'tcp'?" in error
