"""`inspect RUN critical-path --verify` simulates the predictions of the critical path."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from machines import FIFO_RING, RING_4, algorithms

import et_sim
from et_sim.cli import main
from et_sim.machine.presets import preset
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.critical.sensitivity import Sensitivities
from et_sim.views.critical.verification import FARTHEST, Simulated, verification_lines, verify

pytestmark = pytest.mark.usefixtures("warm_engine")


def _workload() -> et_sim.Workload:
    traces = []
    for rank in range(4):
        build = et_sim.TraceBuilder()
        work = build.compute("work", micros=5 + rank)
        build.collective("all_reduce", 1 << 18, after=[work])
        traces.append(build.build())
    return et_sim.Workload.of(traces)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a recorded run of files."""
    et_sim.write_workload(_workload(), tmp_path / "job")
    for name, content in (("system.json", FIFO_RING), ("network.yml", RING_4)):
        (tmp_path / name).write_text(json.dumps(content))
    machine = [f"--system={tmp_path / 'system.json'}", f"--network={tmp_path / 'network.yml'}"]
    assert main(["run", str(tmp_path / "job"), *machine, "--detail=path", f"--out={tmp_path / 'run'}"]) == 0
    return tmp_path / "run"


def _verified(run: Path, capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    capsys.readouterr()
    assert main(["inspect", str(run), "critical-path", "--verify", "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.deep
def test_every_figure_of_the_machine_is_simulated_at_both_ends_of_its_range(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = _verified(run, capsys)
    changed = {(change["parameter"], change["multiple"] > 1) for change in result}
    names = ("bandwidth of dimension 0", "latency of dimension 0", "local memory bandwidth", "endpoint delay")
    assert changed == {(name, is_more) for name in names for is_more in (True, False)}
    assert all(change["as_predicted"] for change in result)
    assert len({change["simulated_ns"] for change in result}) == len(result)
    assert len(_verified(run, capsys, "--top", "1")) == 2
    assert main(["inspect", str(run), "critical-path", "--verify"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "8 simulations, none not as predicted"
    assert max(len(line) for line in lines) <= 80


def test_the_ten_figures_that_change_the_makespan_most_are_simulated(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Sensitivities(CriticalPath(PathRecord(open_run(run))))
    many = found.all() * 4
    monkeypatch.setattr(Sensitivities, "all", lambda _: many)

    def simulated(top: int | None) -> list[str]:
        asked: list[str] = []

        def simulate(changes: Sequence[tuple[str, float]]) -> list[Simulated]:
            asked.extend(name for name, _ in changes)
            return [Simulated(1) for _ in changes]

        verify(found, lambda _, factor: factor, simulate, top)
        return asked

    assert len(simulated(None)) == 20
    assert simulated(None) == simulated(10) == [each.parameter for each in many[:10] for _ in range(2)]


def test_gains_of_ranks_that_share_links_alike_are_as_predicted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    builders = [et_sim.TraceBuilder() for _ in range(8)]
    for build in builders:
        build.collective("all_to_all", 1 << 22)
    et_sim.write_workload(et_sim.Workload.of([build.build() for build in builders]), tmp_path / "job")
    system = tmp_path / "system.json"
    system.write_text(
        json.dumps(preset("a100-dgx-80gb:8").system | {"library": "none", **algorithms("direct")})
    )
    where = ["--machine=a100-dgx-80gb:8", f"--system={system}", "--detail=path", f"--out={tmp_path / 'run'}"]
    assert main(["run", str(tmp_path / "job"), *where]) == 0
    result = _verified(tmp_path / "run", capsys)
    assert result
    assert all(change["as_predicted"] for change in result)


def test_inputs_that_changed_or_moved_are_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = run.parent / "network.yml"
    network.write_text(json.dumps(RING_4 | {"bandwidth": [60]}))
    assert main(["inspect", str(run), "critical-path", "--verify"]) == 2
    assert "network.yml has changed since the run, so it cannot be simulated again" in capsys.readouterr().err
    network.unlink()
    assert main(["inspect", str(run), "critical-path", "--verify"]) == 2
    err = capsys.readouterr().err
    assert "its inputs cannot be read where they were" in err
    assert "network.yml" in err


def test_a_directory_that_moved_with_its_inputs_can_be_verified(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = run.parent.rename(run.parent.with_name("moved"))
    assert all(change["as_predicted"] for change in _verified(moved / "run", capsys, "--top", "1"))


def test_a_run_that_was_not_made_from_files_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(et_sim.simulate(_workload(), system=FIFO_RING, network=RING_4, detail="path"), tmp_path / "run")
    assert main(["inspect", str(tmp_path / "run"), "critical-path", "--verify"]) == 2
    assert "was not simulated from files" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "run"), "ranks", "--verify"]) == 2
    assert "--verify belongs to the view critical-path" in capsys.readouterr().err


def test_wrong_predictions_are_reported_with_their_reason(run: Path) -> None:
    result = Sensitivities(CriticalPath(PathRecord(open_run(run))))

    def scale(figure: str, multiple: float) -> float | None:
        assert 1 / FARTHEST <= multiple <= FARTHEST
        return multiple if figure == "endpoint delay" else None

    several = verify(result, scale, lambda changes: [Simulated(1)] * len(changes))
    assert [change.is_as_predicted for change in several] == [False, False]
    lines = verification_lines(several)
    assert lines[1].split()[-2].startswith("-")
    assert lines[-1] == "2 simulations, 2 not as predicted: usually because the order of service changed"
    assert "nothing was simulated" in verification_lines([])[0]
