"""Progress on stderr: nothing for short work, a line with an estimate for long work."""

from __future__ import annotations

import time

import pytest

from et_sim.cli import progress
from et_sim.cli.progress import Progress


def wait_for(capsys: pytest.CaptureFixture[str], text: str) -> str:
    """What stderr says once it says `text`."""
    seen = ""
    for _ in range(500):
        seen += capsys.readouterr().err
        if text in seen:
            return seen
        time.sleep(0.01)
    raise AssertionError(f"{text!r} never appeared in {seen!r}")


@pytest.mark.usefixtures("warm_engine")
def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as shown:
        shown.stage("planning")
        shown.report(1, 1, 2, 1, 2)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("warm_engine")
def test_long_work_names_its_stage_and_estimates_the_rest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SILENT_SECONDS", 0.01)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.01)
    with Progress() as shown:
        shown.stage("planning")
        wait_for(capsys, "· planning\n")
        shown.stage("simulating")
        shown.report(1500, 30, 100, 0, 0)
        line = wait_for(capsys, "left")
    assert "simulating 30% · simulated 1.5 µs · 30 of 100 messages · 0 of 0 nodes, about" in line


def test_a_run_that_waits_for_machine_code_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as shown:
        shown.waiting("the engine", 0.0, 0.0)
        assert capsys.readouterr().err.startswith("et-sim: compiling the engine, once for this version")
        shown.waiting("the engine", 0.2, 0.1)
        assert capsys.readouterr().err == ""
        shown.waiting("the engine", 0.25, 6.0)
        assert capsys.readouterr().err.endswith(": 25%, about 18 s left\n")
        shown.compiled()


def test_what_is_compiled_in_the_background_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as shown:
        shown.compiling("the trace decoder")
        shown.compiling("the engine")
    assert capsys.readouterr().err.count("\n") == 1
