"""Output whose reader has gone: the exit status is the same as with a reader."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from machines import RING_2

import et_sim
from et_sim.cli import main
from et_sim.trace import write_workload


class Gone(io.StringIO):
    """A pipe without a reader."""

    def write(self, _: str) -> int:
        raise BrokenPipeError


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    (tmp_path / "system.json").write_text("{}")
    (tmp_path / "network.json").write_text(json.dumps(RING_2))
    waiting, kernel = et_sim.TraceBuilder(), et_sim.TraceBuilder()
    waiting.receive(1, 64, tag=1)
    kernel.compute("kernel", nanos=1000)
    write_workload(et_sim.Workload.of([waiting.build(), kernel.build()]), tmp_path / "stuck")
    write_workload(et_sim.Workload.of([kernel.build(), kernel.build()]), tmp_path / "well")
    return tmp_path


def status_unread(monkeypatch: pytest.MonkeyPatch, arguments: list[str], *, also_stderr: bool = False) -> int:
    """Return the exit status of a command whose output is not read."""
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", Gone())
        patch.setattr("sys.stderr", Gone() if also_stderr else io.StringIO())
        return main(arguments)


MACHINE = ["--system", "system.json", "--network", "network.json"]


@pytest.mark.parametrize("also_stderr", [False, True])
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_stalled_run_is_status_1(
    files: Path, monkeypatch: pytest.MonkeyPatch, form: list[str], also_stderr: bool
) -> None:
    command = ["run", "stuck", *MACHINE, *form]
    assert status_unread(monkeypatch, command, also_stderr=also_stderr) == 1
    assert (files / "stuck.run" / "summary.json").exists()


@pytest.mark.usefixtures("files")
def test_a_run_that_completes_is_status_0(monkeypatch: pytest.MonkeyPatch) -> None:
    assert status_unread(monkeypatch, ["run", "well", *MACHINE]) == 0


@pytest.mark.usefixtures("files")
def test_a_workload_with_mistakes_is_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    assert status_unread(monkeypatch, ["check", "stuck", *MACHINE]) == 2


@pytest.mark.deep
@pytest.mark.usefixtures("files")
def test_a_plan_that_does_not_fit_is_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["plan", "llm", "--model", "gpt3-175b", "--machine", "h100-dgx:8", "--dp", "8"]
    assert status_unread(monkeypatch, command) == 1
