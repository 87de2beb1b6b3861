"""Results from a long record are kept for the next call, and used only for the same run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from machines import RING_2
from runs_to_show import run_written

import et_sim
from et_sim.views import open_run
from et_sim.views.critical import record
from et_sim.views.critical.events import RecordedEvents
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.sensitivity import MOST_CHANGES, MakespanChange, Sensitivities
from et_sim.views.critical.text import critical_path_data, critical_path_text
from et_sim.views.report.page import report

pytestmark = pytest.mark.usefixtures("warm_engine")


@pytest.fixture(autouse=True)
def _every_record_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LONG_BYTES", 0)


def _simulate(folder: Path, micros: int = 30, **more: Any) -> Path:
    builders = [et_sim.TraceBuilder() for _ in range(2)]
    for number, build in enumerate(builders):
        work = build.compute("work", micros=micros + 7 * number)
        build.collective("all_reduce", 1 << 16, after=[work])
    workload = et_sim.Workload.of([build.build() for build in builders])
    return run_written(folder / "run", workload, RING_2, detail="path", **more)


def _answers(run: Path) -> tuple[str, dict[str, Any]]:
    return critical_path_text(run, width=100), critical_path_data(run)


@pytest.mark.parametrize("model", ["analytical", "flow"])
def test_the_next_call_returns_the_same_without_reading_the_record(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _simulate(tmp_path, model=model)
    first = _answers(run)
    monkeypatch.delattr(RecordedEvents, "blocks")
    assert _answers(run) == first
    if model == "analytical":
        sensitivities = Sensitivities(CriticalPath(PathRecord(open_run(run))))
        assert (
            sensitivities.changes()
            == [MakespanChange.of(sensitivity) for sensitivity in sensitivities.all()][:MOST_CHANGES]
        )


def test_results_kept_by_a_page_serve_the_next_page_until_more_are_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _simulate(tmp_path)
    every = critical_path_data(run)
    content = (run / "path.kept").read_bytes()
    (run / "path.kept").unlink()
    page = report(open_run(run))
    with monkeypatch.context() as patch:
        patch.delattr(RecordedEvents, "blocks")
        assert report(open_run(run)) == page
    assert (run / "path.kept").read_bytes() != content
    assert critical_path_data(run) == every
    assert (run / "path.kept").read_bytes() == content


def test_kept_results_have_the_same_bytes_every_time(tmp_path: Path) -> None:
    run = _simulate(tmp_path)
    _answers(run)
    content = (run / "path.kept").read_bytes()
    (run / "path.kept").unlink()
    critical_path_data(run)
    assert (run / "path.kept").read_bytes() == content
    assert sorted(path.suffix for path in run.iterdir() if path.name.startswith(("path", "."))) == [
        ".arrow",
        ".kept",
    ]


@pytest.mark.parametrize("at", [0, 20, 200, 400, -40, -1])
def test_damaged_results_are_recalculated(at: int, tmp_path: Path) -> None:
    run = _simulate(tmp_path)
    first = _answers(run)
    content = bytearray((run / "path.kept").read_bytes())
    sound = bytes(content)
    content[at] ^= 16
    (run / "path.kept").write_bytes(content)
    assert _answers(run) == first
    assert (run / "path.kept").read_bytes() == sound
    (run / "path.kept").write_bytes(sound[: len(sound) // 2])
    assert _answers(run) == first


def test_results_of_another_run_are_not_used(tmp_path: Path) -> None:
    for name, micros in (("one", 30), ("other", 40)):
        _answers(_simulate(tmp_path / name, micros))
    expected = _answers(tmp_path / "other" / "run")
    (tmp_path / "one" / "run" / "path.kept").replace(tmp_path / "other" / "run" / "path.kept")
    assert _answers(tmp_path / "other" / "run") == expected


def test_a_new_run_removes_the_kept_results_of_the_old_one(tmp_path: Path) -> None:
    _answers(_simulate(tmp_path))
    assert not (_simulate(tmp_path, 40) / "path.kept").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_nothing_is_kept_where_nothing_can_be_written(tmp_path: Path) -> None:
    run = _simulate(tmp_path)
    run.chmod(0o500)
    try:
        _answers(run)
        assert not (run / "path.kept").exists()
    finally:
        run.chmod(0o700)


def test_a_file_that_cannot_be_made_is_no_fault(tmp_path: Path) -> None:
    run = _simulate(tmp_path)
    first = _answers(run)
    (run / "path.kept").unlink()
    (run / "path.kept").mkdir()
    assert _answers(run) == first
    (run / "path.kept").rmdir()


def test_a_short_record_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    run = _simulate(tmp_path)
    _answers(run)
    assert not (run / "path.kept").exists()
