"""Progress on stderr: nothing for short work, a line with an estimate for long work."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from et_sim import TraceBuilder, Workload
from et_sim.basics.terminal import Estimate
from et_sim.cli import progress
from et_sim.cli.progress import Progress
from et_sim.engine import driver
from et_sim.execution import execute
from et_sim.run.options import RunOptions
from et_sim.run.simulation import announced
from et_sim.serving.serve import Reached


def wait_for(capsys: pytest.CaptureFixture[str], text: str) -> str:
    """Return stderr once it contains `text`."""
    seen = ""
    for _ in range(6000):
        seen += capsys.readouterr().err
        if text in seen:
            return seen
        time.sleep(0.01)
    raise AssertionError(f"{text!r} never appeared in {seen!r}")


@pytest.mark.usefixtures("warm_engine")
def test_short_work_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
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
    now = [5.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with Progress() as shown:
        shown.stage("planning")
        wait_for(capsys, "· planning\n")
        shown.stage("simulating")
        shown.report(1000, 1, 100, 0, 0)
        now[0] += 0.1
        shown.report(1500, 10, 100, 0, 0)
        line = wait_for(capsys, "left")
    assert "simulating 10% · simulated 1.5 µs · 10 of 100 messages · 0 of 0 nodes, about 1 s left" in line


@pytest.mark.parametrize(
    ("counts", "percent"), [((0, 0, 0, 0), "0%"), ((1, 1, 0, 0), "100%"), ((2, 3, 1, 3), "50%")]
)
def test_messages_and_nodes_are_shares_of_all_of_both(
    counts: tuple[int, int, int, int], percent: str
) -> None:
    shown = Progress()
    shown.report(0, *counts)
    assert f" {percent} · simulated 0 ns" in shown._status(1.0).plain


def test_serving_is_estimated_by_output_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = Progress()
    shown.stage("serving")
    for seconds, share in ((0.0, 0.0), (2.0, 0.25)):
        now[0] = seconds
        shown.serving(Reached(1500, 0, 8, share, 3))
    line = shown._status(2.0).plain
    assert "25% · simulated 1.5 µs · 0 of 8 requests · 3 distinct passes, about 6 s left" in line


@pytest.mark.deep
@pytest.mark.usefixtures("warm_engine")
@pytest.mark.parametrize(
    "keys", [{"protocol": {"preset": "roce"}}, {"credits": {"flit": 64, "packet": 1000}}]
)
def test_a_run_of_packets_counts_them(keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[tuple[Any, ...]] = []
    shown = Progress()
    monkeypatch.setattr(shown, "report", lambda *how_far: results.append(how_far))
    monkeypatch.setattr(driver, "FEWEST_EVENTS", 1)
    monkeypatch.setattr(driver, "SECONDS_BETWEEN_REPORTS", 0)
    builders = [TraceBuilder(), TraceBuilder()]
    builders[0].send(1, 200_000)
    builders[1].receive(0, 200_000)
    network = {"graph": {"generator": "star", "npus": 2, "bandwidth": "1Gbps", "latency": "1us"}, **keys}
    workload = Workload.of([builder.build() for builder in builders])
    execute(workload, RunOptions(system={}, network=network, model="packet"), watch=shown)
    assert {(expected, what) for _, _, expected, _, _, what in results} == {(200, "packets")}
    sent = [count for _, count, *_ in results]
    assert sent == sorted(sent)
    assert 0 < sent[len(sent) // 2] < 200


@pytest.mark.parametrize(
    ("packets", "sentence"),
    [
        (1_000_000, "simulating about 1,000,000 packets"),
        (
            60_000_000,
            "simulating about 60,000,000 packets ("
            "2 min at half a million in a second, less if they repeat themselves)",
        ),
        (
            9_000_000_000,
            "simulating about 9,000,000,000 packets ("
            "5.0 hours at half a million in a second, less if they repeat themselves; "
            "--network-model flow takes less)",
        ),
    ],
)
def test_the_time_of_packets_is_estimated_before(packets: int, sentence: str) -> None:
    assert announced(packets) == sentence


def test_a_run_that_waits_for_machine_code_shows_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as shown:
        shown.waiting("the engine", 0.0, 0.0)
        assert capsys.readouterr().err.startswith("et-sim: compiling the engine, once for this version")
        shown.waiting("the engine", 0.2, 0.1)
        assert capsys.readouterr().err == ""
        shown.waiting("the engine", 0.25, 6.0)
        assert capsys.readouterr().err.endswith(": 6 s, 25%, about 18 s left\n")
        shown.compiled()


def test_an_interpreted_run_states_no_time_left_until_its_machine_code_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check that the estimate begins with the machine code, which changes the pace."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = Progress()

    def line_at(seconds: float, done: int) -> str:
        now[0] = seconds
        shown.report(1500, done, 100, 0, 0)
        return shown._status(seconds).plain

    for seconds, done in ((10.0, 10), (20.0, 20)):
        shown.compiling("the engine")
        assert line_at(seconds, done).endswith("0 of 0 nodes · interpreted until it is compiled")
    assert line_at(24.0, 60).endswith("60 of 100 messages · 0 of 0 nodes, about 4 s left")


def test_background_compilation_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress() as shown:
        shown.compiling("the trace decoder")
        shown.compiling("the engine")
    assert capsys.readouterr().err.count("\n") == 1


def test_after_the_first_second_the_estimate_of_a_steady_run_holds() -> None:
    """Check a start of any length, and shares that are reported at uneven intervals."""
    begin, seconds = 17.0, 20.0  # machine code was waited for, before
    estimate = Estimate()
    results = [begin + at for at in (0.3, 0.6, 1.2, 2.4, 4.8, 9.6, 9.9, 17.0)]
    for now in results:
        estimate.add((now - begin) / seconds, now)
        left = estimate.left(now)
        assert left == (None if now < results[2] else pytest.approx(begin + seconds - now))


def test_too_little_is_no_pace_unless_it_took_long() -> None:
    for share, now, is_added in ((0.02, 1.0, False), (0.03, 1.0, True), (0.001, 3.0, True)):
        estimate = Estimate()
        estimate.add(0.0, 0.0)
        estimate.add(share, now)
        assert (estimate.left(now) is not None) == is_added


def test_between_reports_the_estimate_counts_down_and_ends() -> None:
    estimate = Estimate()
    estimate.add(0.0, 0.0)
    estimate.add(0.5, 4.0)
    assert [estimate.left(now) for now in (4.0, 5.0, 8.0, 8.1)] == [4.0, 3.0, 0.0, None]


def test_a_task_that_turns_out_smaller_is_estimated_by_the_same_pace() -> None:
    estimate = Estimate()
    for done in range(1, 5):
        estimate.add(done / 100, 10.0 * done)
    assert estimate.left(40.0) == pytest.approx(960.0)
    estimate.scale(100 / 12)
    assert estimate.left(40.0) is None
    estimate.add(5 / 12, 50.0)
    assert estimate.left(50.0) == pytest.approx(70.0)


def test_a_restarted_run_is_estimated_again() -> None:
    """Check a run that restarts, as when folded ranks turn out to differ and all are simulated."""
    estimate = Estimate()
    for share, now in ((0.0, 0.0), (0.9, 9.0), (0.1, 10.0)):
        estimate.add(share, now)
    assert estimate.left(10.0) is None
    estimate.add(0.2, 20.0)
    assert estimate.left(20.0) == pytest.approx(80.0)
