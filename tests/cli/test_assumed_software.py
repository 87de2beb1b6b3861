"""A job with assumed software names it when made and when run, with the command for another one."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from et_sim.cli import assumed_software, main
from et_sim.machine.presets import preset
from et_sim.trace import read_workload

JOB = ["make", "llm", "--model", "gpt2", "--layers", "4", "--sequence", "128", "--micro-batches", "2"]
ASSUMED = (
    "assumes megatron-core: fused kernels, gradients overlapped; steps of other software take other times"
)


def lines_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "more",
    [
        ("--dp", "8", "--machine", "h100-dgx:8", "--unfused-attention", "--bucket", "1000"),
        ("--pp", "2", "--stage-layers", "3,1", "--dp", "2", "--ranks", "4", "--zero", "1"),
    ],
)
def test_a_made_job_shows_the_command_for_another_software(
    more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = str(tmp_path / "a job")
    *_, assumed, other = lines_of(capsys, *JOB, *more, "-o", prefix)
    assert assumed == ASSUMED
    name, _, command = other.partition(": ")
    assert name == "as torchtitan"
    program, *arguments = shlex.split(command)
    assert program == "et-sim"
    expected = [*JOB, *more, "--software", "torchtitan", "-o", f"{prefix}-torchtitan"]
    assert sorted(arguments) == sorted(expected)
    lines = lines_of(capsys, *arguments)
    assert not any("assumes" in line for line in lines)
    made = read_workload(f"{prefix}-torchtitan.workload.json")
    assert made.ranks == read_workload(f"{prefix}.workload.json").ranks
    assert made.software is not None
    assert made.software.name == "torchtitan"


def test_a_plan_that_the_other_software_does_not_support_has_no_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = ("--recompute", "full", "--recompute-layers", "uniform:2")  # not with shared weights
    lines = lines_of(capsys, *JOB, "--dp", "2", *runs, "-o", str(tmp_path / "job"))
    assert lines[-1] == f"{ASSUMED}: --software names another"


def test_a_run_states_that_its_software_is_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for software in ([], ["--software", "megatron-core"]):
        lines_of(capsys, *JOB, "--dp", "8", *software, "-o", str(tmp_path / "job"))
        run = [
            "run",
            f"{tmp_path}/job.workload.json",
            "--machine",
            "h100-dgx:8",
            "--out",
            str(tmp_path / "o"),
        ]
        text = " ".join(" ".join(lines_of(capsys, *run)).split())
        assert ("(not stated: et-sim make --software names another)" in text) == (not software)


CHANGED = "the manifest, its traces or the model's file were changed after they were made"
DATA_PARALLEL = ("--dp", "8", "--batch", "2")
MACHINE = "h100-dgx:8"


def summary_of(tmp_path: Path, job: str, capsys: pytest.CaptureFixture[str], machine: str = MACHINE) -> Any:
    """Return the summary of a run."""
    run = ("run", str(tmp_path / f"{job}.workload.json"), "--machine", machine, "--out", str(tmp_path / job))
    return json.loads("\n".join(lines_of(capsys, *run, "--json")))


def assumes(tmp_path: Path, job: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the line of a run that names its software, as one line."""
    text = " ".join(" ".join(lines_of(capsys, "inspect", str(tmp_path / job), "summary")).split())
    return text.partition(" assumes ")[2].partition(" includes ")[0]


def make(tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str, job: str = "job") -> list[str]:
    """Make a job; return the printed lines."""
    return lines_of(capsys, *JOB, *more, "-o", str(tmp_path / job))


@pytest.mark.parametrize(
    "plan",
    [
        (*DATA_PARALLEL, "--zero", "3"),
        ("--pp", "2", "--stage-layers", "3,1", "--tp", "2", "--dp", "2", "--zero", "1"),
        ("--global-batch", "16", "--dp", "8", "--recompute", "selective"),
    ],
)
def test_the_time_in_other_software_is_that_of_the_job_made_for_it(
    plan: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "--global-batch" in plan:
        lines_of(capsys, *JOB[:-2], *plan, "-o", str(tmp_path / "job"))
        lines_of(capsys, *JOB[:-2], *plan, "--software", "torchtitan", "-o", str(tmp_path / "titan"))
    else:
        make(tmp_path, capsys, *plan)
        make(tmp_path, capsys, *plan, "--software", "torchtitan", job="titan")
    both, titan = summary_of(tmp_path, "job", capsys), summary_of(tmp_path, "titan", capsys)
    assert both["other_software"] == {
        "name": "torchtitan",
        "status": "complete",
        "makespan_ns": titan["makespan_ns"],
    }
    assert both["makespan_ns"] != titan["makespan_ns"]
    assert "other_software" not in titan
    assert "; as torchtitan " in assumes(tmp_path, "job", capsys)


@pytest.mark.parametrize("more", [(), ("--sequence", "128", "--layers", "1")])
def test_a_model_file_is_found_from_the_folder_of_the_manifest(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 65_536,  # a recipe of so many has to state its sequence
        "rms_norm_eps": 1e-5,
    }
    for folder in ("models", "jobs", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "models" / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    made = ("make", "llm", "--model", "models/config.json", "--dp", "8", "--micro-batches", "1", *more)
    lines_of(capsys, *made, "-o", "jobs/job")
    lines_of(capsys, *made, "--software", "torchtitan", "-o", "jobs/titan")
    monkeypatch.chdir(tmp_path / "elsewhere")
    titan = summary_of(tmp_path / "jobs", "titan", capsys)
    other = summary_of(tmp_path / "jobs", "job", capsys)["other_software"]
    assert other["makespan_ns"] == titan["makespan_ns"]
    (tmp_path / "models" / "config.json").unlink()
    other = summary_of(tmp_path / "jobs", "job", capsys)["other_software"]
    assert (other["status"], other["makespan_ns"], other["reason"]) == ("not simulated", None, CHANGED)
    config["hidden_size"] = 512
    (tmp_path / "models" / "config.json").write_text(json.dumps(config))
    other = summary_of(tmp_path / "jobs", "job", capsys)["other_software"]
    assert (other["status"], other["reason"]) == ("not simulated", CHANGED)


def test_on_tpus_the_other_software_is_maxtext(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = "tpu-v5e-pod:8"
    lines = make(tmp_path, capsys, *DATA_PARALLEL, "--machine", machine)
    assert lines[-1].startswith("as maxtext: et-sim make llm ")
    make(tmp_path, capsys, *DATA_PARALLEL, "--machine", machine, "--software", "maxtext", job="jax")
    other = summary_of(tmp_path, "job", capsys, machine)["other_software"]
    assert other["name"] == "maxtext"
    assert other["makespan_ns"] == summary_of(tmp_path, "jax", capsys, machine)["makespan_ns"]


def test_a_plan_that_the_other_software_does_not_support_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, capsys, "--dp", "8", "--recompute", "full", "--recompute-layers", "uniform:2")
    other = summary_of(tmp_path, "job", capsys)["other_software"]
    assert other["status"] == "refused"
    assert f"; as torchtitan refused ({other['reason']}" in assumes(tmp_path, "job", capsys)
    assert "zero" in other["reason"]


@pytest.mark.parametrize("changed", ["manifest", "template", "recipe", "plan of the recipe"])
def test_a_job_that_was_changed_after_it_was_made_is_not_compared(
    changed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, capsys, *DATA_PARALLEL)
    manifest = tmp_path / "job.workload.json"
    if changed == "manifest":
        content = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**content, "step": {**content["step"], "tokens": 1}}))
    elif "recipe" in changed:
        content = json.loads(manifest.read_text())
        recipe = {} if changed == "recipe" else {**content["made"]["recipe"], "plan": {"dp": 4}}
        manifest.write_text(json.dumps({**content, "made": {**content["made"], "recipe": recipe}}))
    else:
        make(tmp_path, capsys, "--dp", "8", "--batch", "1", job="smaller")
        (tmp_path / "smaller.template0.et").replace(tmp_path / "job.template0.et")
    other = summary_of(tmp_path, "job", capsys)["other_software"]
    assert other == {
        "name": "torchtitan",
        "status": "not simulated",
        "makespan_ns": None,
        "reason": CHANGED,
    }
    assert f"; as torchtitan not simulated ({CHANGED}) (not stated" in assumes(tmp_path, "job", capsys)


def test_the_size_of_a_run_decides_whether_other_software_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, capsys, *DATA_PARALLEL)
    for most, reason in ((100, "more than 100 nodes and messages"), (10**6, None)):
        monkeypatch.setattr(assumed_software, "MOST_NODES", most)
        other = summary_of(tmp_path, "job", capsys)["other_software"]
        assert other.get("reason") == reason
        assert (other["status"] == "complete") == (reason is None)


def test_other_software_that_needs_more_memory_than_there_is_has_no_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Show it where weights are shared: torchtitan exchanges gradients in fp32, which need more memory."""
    plan = (*DATA_PARALLEL, "--zero", "3")
    make(tmp_path, capsys, *plan)
    make(tmp_path, capsys, *plan, "--software", "torchtitan", job="titan")
    fits, full = (
        max(entry["peak_memory_bytes"] for entry in summary_of(tmp_path, job, capsys)["per_rank"])
        for job in ("job", "titan")
    )
    assert fits < full
    system = tmp_path / "system.json"
    memory = {"local-mem-capacity": f"{(fits + full) // 2} B", "local-mem-reserved": 0}
    system.write_text(json.dumps(preset(MACHINE).system | memory))
    run = ("run", str(tmp_path / "job.workload.json"), "--machine", MACHINE, "--system", str(system))
    summary = json.loads("\n".join(lines_of(capsys, *run, "--out", str(tmp_path / "job"), "--json")))
    assert summary["status"] == "complete"
    assert summary["other_software"]["status"] == "out of memory"
    assert "; as torchtitan out of memory (not stated" in assumes(tmp_path, "job", capsys)


def test_the_time_in_other_software_is_no_input_that_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compare runs with and without it."""
    make(tmp_path, capsys, *DATA_PARALLEL)
    content = json.loads((tmp_path / "job.workload.json").read_text())
    del content["made"]
    (tmp_path / "other.workload.json").write_text(json.dumps(content))
    for job, has_other in (("job", True), ("other", False)):
        run = ("run", str(tmp_path / f"{job}.workload.json"), "--machine", MACHINE, "--json")
        summary = json.loads("\n".join(lines_of(capsys, *run, "--out", str(tmp_path / job))))
        assert ("other_software" in summary) == has_other
    compared = ("compare", str(tmp_path / "job"), str(tmp_path / "other"), "--json")
    inputs = json.loads("\n".join(lines_of(capsys, *compared)))["inputs"]
    assert not any("other_software" in line for line in inputs)
