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


@pytest.mark.usefixtures("warm_engine")
def test_layer_files_need_no_compiled_decoder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from et_sim import compiled
    from et_sim.trace.wire_nodes import decode_records

    is_cached = compiled.is_cached
    monkeypatch.setattr(
        compiled,
        "is_cached",
        lambda function, **more: function is not decode_records and is_cached(function, **more),
    )
    with Progress():
        assert "compiling the engine" in capsys.readouterr().err
    with Progress(reads_traces=False):
        assert "compiling the engine" not in capsys.readouterr().err
