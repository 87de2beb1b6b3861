"""Variation fitted to recordings: what was drawn is found again, and steps that were left out are near it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from et_sim.basics.errors import EtSimError
from et_sim.calibrate.variation_families import chosen, distance, empirical, log_normal, mixture, quantiles_of
from et_sim.calibrate.variation_fit import Comparison, FittedWork, compared, entry_of, fit_all, scores_of
from et_sim.calibrate.variation_sharing import with_sharing
from et_sim.calibrate.variation_steps import StepTimes, step_times
from et_sim.calibrate.varied_times import Recorded, Series, read_recorded
from et_sim.cli import main
from et_sim.machine.readers import read_system_alone
from et_sim.machine.variation import VariedKind
from et_sim.trace import TraceBuilder
from et_sim.trace.encode import encode_several
from et_sim.trace.recorded_steps.table import BACKWARD, FORWARD

TABLE = Path(__file__).parents[1] / "converters" / "data" / "stragglers" / "ST.parquet"


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the test in a folder of its own."""
    monkeypatch.chdir(tmp_path)


def recorded(times: Any, *, steps: Any = None, name: str = "gemm") -> Recorded:
    series = (Series(VariedKind.KERNEL, name, times),)
    return Recorded("made", tuple(steps or range(len(times))), series, None, ())


def levels_of(times: Any) -> dict[str, dict[str, Any]]:
    (work,) = fit_all(recorded(times), range(len(times)), "operation")
    return {level.level: dict(level.entry) for level in work.levels}


def test_levels_that_were_drawn_are_found_with_their_spreads() -> None:
    draw = np.random.default_rng(3)
    of_rank = draw.normal(0, 0.05, (1, 30, 1))
    of_step = draw.normal(0, 0.03, (40, 30, 1))
    times = 1e6 * np.exp(of_rank + of_step + draw.normal(0, 0.02, (40, 30, 20)))
    found = levels_of(times)
    assert list(found) == ["element", "step", "event"]
    assert np.std(np.log(found["element"]["factors"])) == pytest.approx(np.std(of_rank), rel=0.1)
    assert found["step"]["family"] == found["event"]["family"] == "log-normal"
    assert found["step"]["spread"] == pytest.approx(0.03, rel=0.1)
    assert found["event"]["spread"] == pytest.approx(0.02, rel=0.05)
    assert "correlation" not in found["step"]
    assert "correlation" not in found["event"]


def test_levels_that_were_not_drawn_are_not_found() -> None:
    times = 1e6 * np.exp(np.random.default_rng(5).normal(0, 0.02, (40, 16, 25)))
    assert list(levels_of(times)) == ["event"]
    assert levels_of(np.full((6, 2, 3), 5e5)) == {}


@pytest.mark.parametrize("correlation", [-0.4, 0.3, 0.6])
def test_the_correlation_of_events_that_follow_each_other_is_found(correlation: float) -> None:
    draw = np.random.default_rng(7)
    scores = draw.standard_normal((30, 8, 60))
    for number in range(1, 60):
        fresh = np.sqrt(1 - correlation**2) * scores[:, :, number]
        scores[:, :, number] = correlation * scores[:, :, number - 1] + fresh
    found = levels_of(1e6 * np.exp(0.02 * scores))
    assert found["event"]["correlation"] == pytest.approx(correlation, abs=0.06)


def test_last_digits_of_logarithms_do_not_order_equal_times() -> None:
    logs = np.log(np.array([[1.25, 3.0, 1.25], [3.0, 1.25, 1.5]]))
    for digits in (logs, np.nextafter(logs, [np.inf, -np.inf, -np.inf]), np.nextafter(logs, -np.inf)):
        np.testing.assert_array_equal(scores_of(digits), scores_of(np.round(logs, 3)))


def test_steps_are_correlated_only_where_they_follow_each_other() -> None:
    draw = np.random.default_rng(9)
    scores = draw.standard_normal((80, 10, 1))
    for step in range(1, 80):
        scores[step] = 0.6 * scores[step - 1] + 0.8 * scores[step]
    times = 1e6 * np.exp(0.03 * scores + 0.001 * draw.standard_normal((80, 10, 20)))
    assert levels_of(times)["step"]["correlation"] == pytest.approx(0.6, abs=0.08)
    apart = recorded(times, steps=[5 * step for step in range(80)])
    (work,) = fit_all(apart, range(80), "operation")
    assert all("correlation" not in level.entry for level in work.levels if level.level == "step")


def test_the_family_of_steps_that_were_left_out_is_chosen() -> None:
    draw = np.random.default_rng(11)
    plain = draw.normal(0, 0.1, (2, 3000))
    assert chosen(*plain) == "log-normal"
    late = draw.normal(0, 0.01, (2, 3000)) + 0.9 * (draw.random((2, 3000)) < 0.2)
    assert chosen(*late) == "mixture"
    three = draw.normal(0, 0.01, (2, 3000)) + draw.integers(0, 3, (2, 3000))
    assert chosen(*three) == "empirical"


@pytest.mark.parametrize("fit", [log_normal, mixture, empirical])
def test_quantiles_of_a_fit_are_those_of_its_values(fit: Any) -> None:
    logs = np.random.default_rng(13).normal(0.2, 0.1, 4000)
    assert distance(quantiles_of(fit(logs)), logs) < 0.03
    assert np.exp(quantiles_of(fit(logs))).mean() == pytest.approx(np.exp(logs).mean(), rel=0.01)


def test_the_distance_is_that_of_kolmogorov_and_smirnov() -> None:
    from scipy.stats import ks_2samp

    draw = np.random.default_rng(15)
    for _ in range(20):
        a, b = draw.integers(0, 9, draw.integers(1, 30)), draw.integers(2, 12, draw.integers(1, 30))
        assert distance(a, b) == pytest.approx(ks_2samp(a, b).statistic)


def fitted_job() -> tuple[list[FittedWork], list[Comparison]]:
    found = read_recorded([str(TABLE)])
    steps = range(len(found.steps))
    works = with_sharing(fit_all(found, steps[::2], "operation"))
    return works, compared(works, steps[::2], steps[1::2])


@pytest.mark.deep
def test_steps_of_a_real_job_are_in_the_band_of_samples_fitted_to_its_other_steps() -> None:
    """Check that the half that is not fitted is as near as chance allows, and not near without variation."""
    found = read_recorded([str(TABLE)])
    assert found.table is not None
    steps = range(len(found.steps))
    works = with_sharing(fit_all(found, steps[::2], "operation"))
    typical = [structs.replace(work, levels=()) for work in works]
    varied, constant = (
        step_times(found.table, fitted, steps[::2], steps[1::2]) for fitted in (works, typical)
    )
    assert len(varied.recorded) == 16
    assert varied.ks <= varied.band == pytest.approx(1.36 / 4)
    assert constant.ks > 2 * constant.band


def test_times_of_a_real_job_are_near_the_fit_to_its_other_steps() -> None:
    """Check that passes vary together: on all ranks by step, and on all stages by micro-batch."""
    works, comparisons = fitted_job()
    judged = {found.operation: found.ks for found in comparisons if found.events >= 500}
    assert set(judged) == {"forward-compute", "backward-compute"}
    assert max(judged.values()) <= 0.15
    passes = [level.entry for work in works for level in work.levels if work.name in judged]
    assert {(entry["level"], entry["shared"], entry["cause"]) for entry in passes} == {
        ("step", "machine", "passes, by step"),
        ("event", "node", "passes, by event"),
    }


def test_a_shared_time_and_that_of_each_rank_are_found_apart() -> None:
    draw = np.random.default_rng(17)
    shared, own = draw.normal(0, 0.2, (60, 1, 1)), draw.normal(0, 0.05, (60, 24, 1))
    (work,) = with_sharing(fit_all(recorded(1e6 * np.exp(shared + own)), range(60), "operation"))
    of_all, of_rank = work.levels
    assert (of_all.entry["level"], of_all.entry["shared"]) == ("event", "machine")
    assert (of_rank.entry["level"], of_rank.entry.get("shared")) == ("event", None)
    assert of_all.spread == pytest.approx(np.std(shared), rel=0.02)
    assert of_rank.spread == pytest.approx(np.std(own), rel=0.05)


@pytest.mark.parametrize("is_common", [False, True])
def test_passes_have_one_cause_where_their_times_are_correlated(is_common: bool) -> None:
    draw = np.random.default_rng(23)
    first, second = draw.normal(0, 0.1, (2, 60, 24, 1))
    passes = [
        structs.replace(work, name=name)
        for name, logs in ((FORWARD, first), (BACKWARD, first if is_common else second))
        for work in fit_all(recorded(1e6 * np.exp(logs)), range(60), "operation")
    ]
    entries = [level.entry for work in with_sharing(passes) for level in work.levels]
    assert any("cause" in entry for entry in entries) is is_common


def test_work_beside_passes_is_divided_as_work_without_passes_is() -> None:
    draw = np.random.default_rng(17)
    shared, own = draw.normal(0, 0.2, (60, 1, 1)), draw.normal(0, 0.05, (60, 24, 1))
    alone = fit_all(recorded(1e6 * np.exp(shared + own), name="optimizer"), range(60), "operation")
    passes = [
        structs.replace(work, name=name)
        for name in (FORWARD, BACKWARD)
        for work in fit_all(recorded(1e6 * np.exp(draw.normal(0, 0.1, (60, 24, 1)))), range(60), "operation")
    ]
    [*_, beside] = with_sharing([*passes, *alone])
    assert [level.entry for level in beside.levels] == [
        level.entry for level in with_sharing(alone)[0].levels
    ]
    assert len(beside.levels) == 2


def test_a_time_that_all_ranks_share_has_no_part_of_a_rank() -> None:
    shared = np.random.default_rng(19).normal(0, 0.2, (60, 1, 1))
    times = 1e6 * np.exp(np.broadcast_to(shared, (60, 24, 1)))
    (work,) = with_sharing(fit_all(recorded(times), range(60), "operation"))
    assert [level.entry["shared"] for level in work.levels] == ["machine"]


@pytest.mark.usefixtures("in_a_folder")
def test_the_command_writes_what_the_system_file_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "variation", str(TABLE), "--no-steps", "-o", "varied.json"]) == 0
    printed = capsys.readouterr().out
    assert "32 steps: fitted to 16, the others left out" in printed
    assert "left out: gc: takes no time" in printed
    entries = [structs.replace(entry, place="") for entry in read_system_alone("varied.json").variation]
    content = json.loads(Path("varied.json").read_text())
    assert entries == [entry_of(entry) for entry in content["variation"]]
    assert {entry.kind for entry in entries} == {VariedKind.KERNEL}
    assert main(["calibrate", "variation", str(TABLE), "--by", "kind", "--json"]) == 0
    by_kind = json.loads(capsys.readouterr().out)["variation"]
    assert {entry["kind"] for entry in by_kind} == {"kernel", "collective"}
    assert not any("operations" in entry for entry in by_kind)


def test_the_band_of_steps_is_that_of_95_in_100_cases() -> None:
    assert StepTimes((1, 2, 3, 4), (1, 2, 3, 4)).band == pytest.approx(0.68)
    assert StepTimes((1, 2), (3, 4)).ks == 1


def write_step(prefix: str, factor: float) -> None:
    """Write a step of two ranks; the second one has two kernels more."""
    traces = []
    for rank in range(2):
        build = TraceBuilder()
        for number in range(20):
            build.compute("gemm", nanos=round(1000 * factor) + number)
        build.collective("all_reduce", 8, nanos=300)
        for _ in range(2 * rank):
            build.compute("norm", nanos=40)
        traces.append(build.build())
    for rank, content in enumerate(encode_several(traces)):
        Path(f"{prefix}.{rank}.et").write_bytes(content)


@pytest.mark.usefixtures("in_a_folder")
def test_traces_of_one_step_each_and_runs_are_recordings() -> None:
    factors = (1.0, 1.1, 0.95, 1.2, 1.05, 0.9)
    for step, factor in enumerate(factors):
        write_step(f"step{step}", factor)
    found = read_recorded([f"step{step}" for step in range(6)])
    shapes = {(series.kind, series.operation): series.times.shape for series in found.series}
    assert shapes == {
        (VariedKind.KERNEL, "gemm"): (6, 2, 20),
        (VariedKind.KERNEL, "norm"): (6, 1, 2),
        (VariedKind.COLLECTIVE, "all_reduce"): (6, 2, 1),
    }
    assert found.series[1].times[:, 0, 0].tolist() == [1000 * factor for factor in factors]
    Path("net.yml").write_text(
        "topology: [Switch]\nnpus_count: [2]\nbandwidth: [50]\nlatency: [10]\n", encoding="utf-8"
    )
    Path("system.json").write_text('{"all-reduce-implementation": ["ring"]}')
    for step in range(4):
        machine = ["--network", "net.yml", "--system", "system.json", "--out", f"run{step}"]
        assert main(["run", f"step{step}", *machine]) == 0
    runs = read_recorded([f"run{step}" for step in range(4)])
    gemm = next(series for series in runs.series if series.operation == "gemm")
    assert gemm.times.tolist() == found.series[1].times[:4].tolist()
    assert main(["calibrate", "variation", *(f"run{step}" for step in range(4)), "-o", "varied.json"]) == 0
    assert {entry.kind for entry in read_system_alone("varied.json").variation} == {VariedKind.KERNEL}


@pytest.mark.usefixtures("in_a_folder")
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["nothing"], "there is no nothing.0.et, no run and no table of steps"),
        (["cut.parquet"], "cut.parquet: is no sound table of steps"),
        (["step0", "step1", "step2"], "3 steps are too few for variation by step"),
        (["few.parquet"], "3 steps are too few for variation by step"),
        ([str(TABLE), "step0"], "has several steps, and there is another recording"),
        (["step0", "step1", "step2", "other"], "no operation is in all steps"),
    ],
)
def test_recordings_without_steps_to_compare_are_refused(names: list[str], message: str) -> None:
    for step in range(3):
        write_step(f"step{step}", 1)
    build = TraceBuilder()
    build.compute("else", nanos=5)
    Path("other.0.et").write_bytes(next(iter(encode_several([build.build()]))))
    table = pq.read_table(TABLE)
    pq.write_table(table.filter(np.isin(table["step"].to_numpy(), [23, 25, 33])), "few.parquet")
    Path("cut.parquet").write_bytes(TABLE.read_bytes()[:5000])
    with pytest.raises(EtSimError) as refusal:
        read_recorded(names)
    assert message in str(refusal.value)


def records(folder: Path, spread: float, late_us: float = 0.0) -> Path:
    """Write records of NCCL's Inspector: 600 operations of two sizes, whose times are log-normal."""
    draw = np.random.default_rng(11)
    took = {size: us * np.exp(draw.normal(0, spread, 300)) for size, us in ((1 << 20, 60), (1 << 24, 400))}
    folder.mkdir()
    for rank in range(2):
        lines = []
        for size, of_size in took.items():
            for at, us in enumerate(of_size.tolist()):
                head = {"id": "0x1", "rank": rank, "n_ranks": 2, "nnodes": 1}
                version = {"inspector_output_format_version": "v4.0", "hostname": "h", "pid": rank}
                done = {"coll": "AllReduce", "coll_sn": size + at, "coll_msg_size_bytes": size}
                done["coll_exec_time_us"] = us + late_us * rank
                lines.append(json.dumps({"header": head, "metadata": version, "coll_perf": done}))
        (folder / f"h-pid{rank}.log").write_text("\n".join(lines))
    return folder


def test_records_of_collectives_give_their_variation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, output = records(tmp_path / "inspector", 0.08), tmp_path / "varied.json"
    line = ["calibrate", "variation", str(folder), "--by", "kind", "-o", str(output), "--json"]
    assert main(line) == 0
    found = json.loads(capsys.readouterr().out)
    (entry,) = json.loads(output.read_text())["variation"]
    assert (entry["kind"], entry["level"], entry["family"]) == ("collective", "event", "log-normal")
    assert entry["spread"] == pytest.approx(0.08, rel=0.15)
    (left_out,) = found["left_out"]
    assert left_out["ks"] < 0.12
    assert read_system_alone(output).variation


def test_records_need_operations_without_waits_and_all_kinds_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = records(tmp_path / "inspector", 0.08)
    assert main(["calibrate", "variation", str(folder)]) == 2
    assert "fit all collectives together: --by kind" in capsys.readouterr().err
    late = records(tmp_path / "late", 0.08, late_us=300.0)
    assert main(["calibrate", "variation", str(late), "--by", "kind"]) == 2
    assert "0 operations to which all ranks came together, of 10 at least" in capsys.readouterr().err


@pytest.mark.parametrize("beside", ["step0", "nothing-here"])
def test_records_are_not_mixed_with_other_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_step("step0", 1)
    with pytest.raises(EtSimError) as refusal:
        read_recorded([str(records(tmp_path / "inspector", 0.08)), beside])
    assert f"{beside} has no records of NCCL's Inspector" in str(refusal.value)
