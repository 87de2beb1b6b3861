"""One figure is fitted to one time: the job takes as long as measured, and other jobs judge the figure."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import et_sim
from et_sim.basics.errors import InputError
from et_sim.calibrate import step as steps
from et_sim.calibrate.step import (
    DEVICE_RATE,
    HOST_TIME,
    MEMORY_RATE,
    POWER_RATE,
    SOFTWARE_FACTOR,
    find,
    with_figure,
)
from et_sim.calibrate.step_pair import ENOUGH, _slowdown
from et_sim.cli import main
from et_sim.execution import execute
from et_sim.machine import Machine
from et_sim.run.options import RunOptions
from et_sim.trace import TraceBuilder, Workload, write_workload

MACHINE = "h100-dgx:2"


@pytest.fixture
def job(tmp_path: Path) -> str:
    """Return a job of two ranks, each a chain of forty equal products."""
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
    assert "is no test of the machine" in json.loads(file.read_text())["sources"]["host-time"]


def test_the_software_factor_multiplies_kernels(
    job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = et_sim.simulate(job, machine=MACHINE).makespan_ns
    file = tmp_path / "m.json"
    words = ("--measured", f"{1.5 * before}ns", "--software-factor", "-o", str(file), "--json")
    assert calibrate(job, *words) == 0
    assert json.loads(capsys.readouterr().out)["software-factor"] == pytest.approx(1.5, rel=0.001)
    assert et_sim.simulate(job, machine=f"{file}:2").makespan_ns == pytest.approx(1.5 * before, rel=0.001)


def _write(path: Path, shapes: tuple[str, ...], ranks: int = 2) -> str:
    build, last = TraceBuilder(), list[int]()
    for shape in shapes * 10:
        last = [build.compute("kernel", layer_shape=shape, dtype="bf16", after=last)]
    write_workload(Workload.of([build.build()] * ranks), path)
    return str(path)


PRODUCTS = ("gemm 4096 4096 4096", "gemm 8192 1024 4096")
MIXED = ("gemm 2048 2048 2048", "elementwise 67108864 2", "softmax 8192 8192")


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "value"), [(HOST_TIME, 300_000.0), (MEMORY_RATE, 0.6), (DEVICE_RATE, 0.7), (POWER_RATE, 0.6)]
)
def test_several_jobs_give_the_figure_that_predicts_the_other_one(
    name: str, value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, other = _write(tmp_path / "mixed", MIXED), _write(tmp_path / "products", PRODUCTS)
    true = [
        execute(
            job, RunOptions(machine=MACHINE), change=lambda machine: with_figure(machine, name, value)
        ).makespan_ns
        for job in (first, other)
    ]
    file = tmp_path / "m.json"
    words = ("--measured", f"{true[0]}ns", "--other", f"{other}={true[1]}ns", "-o", str(file), "--json")
    assert calibrate(first, *words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document[name] == pytest.approx(value, rel=0.005)
    [judged] = document["others"]
    assert judged["simulated_ns"][name] == pytest.approx(true[1], rel=0.005)
    assert abs(judged["simulated_ns"]["software-factor"] / true[1] - 1) > 0.05
    assert et_sim.simulate(other, machine=f"{file}:2").makespan_ns == judged["simulated_ns"][name]
    assert calibrate(first, *words[:4]) == 0
    assert f"{name} predicts the other jobs best, and is taken" in capsys.readouterr().out


def test_a_chosen_figure_is_judged_by_other_jobs(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = et_sim.simulate(job, machine=MACHINE).makespan_ns
    words = ("--measured", f"{2 * before}ns", "--software-factor", "--other", f"{job}={before}ns")
    assert calibrate(job, *words) == 0
    out = capsys.readouterr().out
    assert "software-factor " in out
    assert "(+100.0 %)" in out
    assert "predicts the other jobs best" not in out


def test_the_limit_of_power_of_a_step_is_found_and_predicts_another_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [_write(tmp_path / "products", PRODUCTS), _write(tmp_path / "mixed", MIXED)]
    free, capped = (
        [execute(job, RunOptions(machine=MACHINE, power=power)).makespan_ns for job in jobs]
        for power in (None, "420W")
    )
    assert all(1.02 * one < other for one, other in zip(free, capped, strict=True))
    file = tmp_path / "m.json"
    words = ("--power-rate", "--measured", f"{capped[0]}ns", "-o", str(file), "--json")
    assert calibrate(jobs[0], *words) == 0
    assert json.loads(capsys.readouterr().out)[POWER_RATE] == pytest.approx(420 / 700, rel=0.005)
    assert json.loads(file.read_text())["device"]["compute"]["power-cap"].startswith("4")
    assert et_sim.simulate(jobs[1], machine=f"{file}:2").makespan_ns == pytest.approx(capped[1], rel=0.002)


def test_a_power_cap_has_no_effect_on_a_device_without_a_power_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = _write(tmp_path / "job", PRODUCTS, 8)
    words = ("--measured", "1s", "--machine", "gaudi2-node:8", "--power-rate")
    assert main(["calibrate", "step", job, *words]) == 2
    assert "power-rate changes nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--measured", "1us", "--other", "job"), "is no job and its time (write --other JOB=1.42s)"),
        (("--measured", "1us", "--other", "job=0s"), "has no time (give more than 0)"),
        (("--measured", "1us", "--other", "job=soon"), "cannot be understood"),
        (("--measured", "1us", "--device-rate"), "device-rate does not explain it"),
        (("--measured", "1us"), "a host's time cannot be negative"),
        (("--measured", "1us", "--software-factor"), "software-factor does not explain it"),
        (("--measured", "1 fortnight"), "cannot be understood"),
        (("--measured", "0s"), "--measured is 0s (give more than 0)"),
        (("--measured", "1000s"), "check that job and machine"),
    ],
)
def test_times_that_no_figure_explains_are_refused(
    job: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calibrate(job, *words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.deep
def test_software_and_power_follow_from_two_jobs_and_predict_a_third(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large, small = "gemm 8192 8192 8192", "elementwise 200000000"
    jobs = [
        _write(tmp_path / name, shapes)
        for name, shapes in (("light", (small,)), ("heavy", (large,)), ("mixed", (large, small)))
    ]

    def measured(machine: Machine) -> Machine:
        return with_figure(with_figure(machine, POWER_RATE, 0.8), SOFTWARE_FACTOR, 1.25)

    options = RunOptions(machine=MACHINE)
    times = [execute(job, options, change=measured).makespan_ns for job in jobs]
    words = [f"--other={job}={time}ns" for job, time in zip(jobs[1:], times[1:], strict=True)]
    file = tmp_path / "m.json"
    asked = ("--software-and-power", *words, "-o", str(file), "--json")
    assert calibrate(jobs[0], "--measured", f"{times[0]}ns", *asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["software-factor"] == pytest.approx(1.25, rel=0.005)
    assert found["power-rate"] == pytest.approx(0.8, rel=0.01)
    assert found["others"][0]["simulated_ns"] == pytest.approx(times[2], rel=0.003)
    assert et_sim.simulate(jobs[2], machine=f"{file}:2").makespan_ns == pytest.approx(times[2], rel=0.003)
    sources = json.loads(file.read_text())["sources"]
    assert sources[SOFTWARE_FACTOR] == sources[POWER_RATE]
    assert all(name in sources[POWER_RATE] for name in ("light", "heavy"))


def test_two_times_that_software_and_power_do_not_explain_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    light, heavy = (
        _write(tmp_path / name, (shape,))
        for name, shape in (("light", "elementwise 2000000"), ("heavy", "gemm 8192 8192 8192"))
    )
    times = [et_sim.simulate(job, machine=MACHINE).makespan_ns for job in (light, heavy)]

    def refusal(machine: str, measured_ns: int, *others: str, job: str = light) -> str:
        words = ("--measured", f"{measured_ns}ns", "--software-and-power", *others, "--machine", machine)
        assert calibrate(job, *words) == 2
        return capsys.readouterr().err

    assert "needs a second job (give its time: --other JOB=1.42s)" in refusal(MACHINE, times[0])
    assert "do not explain both times" in refusal(MACHINE, times[0], f"--other={heavy}={3 * times[1]}ns")
    far = refusal(MACHINE, 20 * times[0], f"--other={heavy}={times[1]}ns")
    assert "light" in far
    assert "are simulated with software-factor from 0.125 to 8 and power-rate 1" in far
    same = refusal(MACHINE, times[1], f"--other={heavy}={times[1]}ns", job=heavy)
    assert "do not separate power from software" in same
    neither = refusal(MACHINE, times[0], f"--other={light}={times[0]}ns")
    assert "power-rate changes neither time" in neither
    on_gaudi = [et_sim.simulate(job, machine="gaudi3-node:2").makespan_ns for job in (light, heavy)]
    without = refusal("gaudi3-node:2", on_gaudi[0], f"--other={heavy}={on_gaudi[1]}ns")
    assert "power-rate changes neither time" in without


def test_jobs_whose_times_no_figure_changes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check a job of one node without time, and one without kernels."""
    kernels, nothing, exchange = _write(tmp_path / "kernels", PRODUCTS), tmp_path / "zero", tmp_path / "sum"
    idle, sums = TraceBuilder(), TraceBuilder()
    idle.compute("nothing", nanos=0)
    sums.collective("all_reduce", 1 << 20)
    for path, build in ((nothing, idle), (exchange, sums)):
        write_workload(Workload.of([build.build()] * 2), path)

    def refusal(job: str | Path, other: str | Path) -> str:
        words = ("--measured=20ms", "--software-and-power", f"--other={other}=20ms", "--machine", MACHINE)
        assert calibrate(str(job), *words) == 2
        return capsys.readouterr().err

    assert "nothing in it takes time" in refusal(kernels, nothing)
    assert "are simulated with software-factor from 0.125 to 8" in refusal(exchange, kernels)


def test_a_time_within_the_tolerance_is_explained_without_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Constant:
        runs = 1

        def __init__(self, *_: object) -> None:
            self.ns = 9_995

        def __call__(self, _: float) -> int:
            return self.ns

    monkeypatch.setattr(steps, "Simulated", Constant)
    for figure, without in ((HOST_TIME, 0.0), (SOFTWARE_FACTOR, 1.0)):
        found = find(figure, "job", RunOptions(), 10_000)
        assert (found.value, found.after_ns) == (without, 9_995)
        with pytest.raises(InputError):
            find(figure, "job", RunOptions(), 10_001)


class KnownJobs(NamedTuple):
    """Two jobs, whose times follow a power of the limit of power."""

    slope: float
    begin: float  # logarithm of the time at the machine's limit by the measured one
    jobs: tuple[str, str] = ("job", "other")

    def off(self, slower_power: float) -> float:
        return self.begin + self.slope * math.log(slower_power)

    def ends(self, slower_power: float, software: float) -> tuple[float, float]:
        return software, math.exp(self.off(slower_power))


@pytest.mark.parametrize("slope", [0.5, -0.5])
@pytest.mark.parametrize("begin", [0.2, -0.2, 0.34, -0.34, 0.0])
def test_the_limit_of_power_at_which_two_times_agree_is_found(slope: float, begin: float) -> None:
    jobs: Any = KnownJobs(slope, begin)
    assert _slowdown(jobs) == pytest.approx(math.exp(-begin / slope), rel=2 * ENOUGH / abs(slope))


@pytest.mark.parametrize(("slope", "begin"), [(0.5, 0.4), (-0.5, 0.4), (0.5, -0.4)])
def test_times_that_half_or_twice_the_power_does_not_explain_are_refused(slope: float, begin: float) -> None:
    jobs: Any = KnownJobs(slope, begin)
    with pytest.raises(InputError, match="do not explain both times: with those of a half, 1 and 2"):
        _slowdown(jobs)


def test_times_that_power_does_not_separate_are_refused() -> None:
    alike: Any = KnownJobs(0.001, 0.1)
    without: Any = KnownJobs(0, 0.1)
    with pytest.raises(InputError, match="change both times alike"):
        _slowdown(alike)
    with pytest.raises(InputError, match="changes neither time"):
        _slowdown(without)
