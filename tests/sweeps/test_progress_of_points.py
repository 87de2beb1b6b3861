"""Progress of sweeps: points that are done, and the part of the one that runs in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_sweeps import write

from et_sim.sweeps.state import NoSweepWatcher, SweepProgress, plan_sweep
from et_sim.sweeps.sweep import carry_out


class _Seen(NoSweepWatcher):
    """A watcher that records the stages of every point."""

    def __init__(self) -> None:
        self.points: list[set[str]] = []
        self._stages: set[str] = set()

    def stage(self, name: str) -> None:
        self._stages.add(name)

    def add(self, done: int, failed: int) -> None:  # noqa: ARG002
        self.points.append(self._stages)
        self._stages = set()


def test_one_worker_reports_the_progress_within_each_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    watch = _Seen()
    report = carry_out(plan_sweep(write(tmp_path)), tmp_path / "out", workers=1, watch=watch)
    assert len(watch.points) == report.points == 9
    stages = {"reading machine and traces", "planning", "simulating"}
    assert all(seen == stages for seen in watch.points)


def test_a_point_that_runs_counts_with_its_part_until_it_is_done() -> None:
    progress = SweepProgress()
    progress.begin("sweeping", 4)
    progress.add(1, 0)
    assert progress._status(0.0).share == 0.25
    progress.stage("simulating")
    progress.report(2_000_000, 30, 60, 20, 40, "messages")
    status = progress._status(0.0)
    assert status.share == 0.25 + 0.5 / 4
    assert "1 of 4 points, now 50% of the next: simulated 2" in status.plain
    progress.report(3_000_000, 90, 60, 40, 40, "messages")  # messages that were not expected
    assert progress._status(0.0).share == 0.5
    progress.add(1, 1)
    status = progress._status(0.0)
    assert status.share == 0.5
    assert "2 of 4 points, 1 of them not complete" in status.plain
    assert "of the next" not in status.plain
