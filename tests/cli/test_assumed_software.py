"""A job with assumed software names it when made and when run, with the command for another one."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from et_sim.cli import main
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
