"""One figure from one time: the simulated job takes as long as was measured, and the machine says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import et_sim
from et_sim.cli import main
from et_sim.trace import TraceBuilder, Workload, write_workload

MACHINE = "h100-dgx:2"


@pytest.fixture
def job(tmp_path: Path) -> str:
    """Two ranks, each a chain of forty equal products."""
    build, last = TraceBuilder(), list[int]()
    for _ in range(40):
        last = [build.compute("product", layer_shape="gemm 1024 1024 1024", dtype="bf16", after=last)]
    write_workload(Workload.of([build.build()] * 2), tmp_path / "job")
    return str(tmp_path / "job")


def calibrate(job: str, *words: str) -> int:
    return main(["calibrate", "step", job, "--machine", MACHINE, *words])


@pytest.mark.deep
def test_the_host_time_is_the_time_of_a_kernel_where_the_host_is_the_slower(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.json"
    assert calibrate(job, "--measured", "800us", "-o", str(file), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["host-time"] == pytest.approx(20_000, rel=0.05)  # 800 us by 40 launches
    result = et_sim.simulate(job, machine=f"{file}:2")
    assert result.makespan_ns == document["simulated_ns"] == pytest.approx(800_000, rel=0.001)
    assert "says nothing of how far off" in json.loads(file.read_text())["sources"]["host-time"]


def test_the_software_factor_multiplies_kernels(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = et_sim.simulate(job, machine=MACHINE).makespan_ns
    file = tmp_path / "m.json"
    words = ("--measured", f"{1.5 * before}ns", "--software-factor", "-o", str(file), "--json")
    assert calibrate(job, *words) == 0
    assert json.loads(capsys.readouterr().out)["software-factor"] == pytest.approx(1.5, rel=0.001)
    assert et_sim.simulate(job, machine=f"{file}:2").makespan_ns == pytest.approx(1.5 * before, rel=0.001)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--measured", "1us"), "a host's time cannot be less than nothing"),
        (("--measured", "1us", "--software-factor"), "kernels do not explain it"),
        (("--measured", "1h"), "cannot be understood"),
        (("--measured", "0s"), "--measured is 0s (give more than 0)"),
        (("--measured", "1000s"), "something else is missing"),
    ],
)
def test_times_that_no_figure_explains_are_refused(
    job: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate(job, *words) == 2
    assert message in capsys.readouterr().err
