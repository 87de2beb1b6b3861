"""Logs of MLPerf Training are measured steps, with an interval over runs; what they do not state is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from et_sim.cli import main
from et_sim.validation.mlperf import StepOptions, _System, read_mlperf, read_run
from et_sim.validation.predictions import predictions
from et_sim.validation.row import TrainingStep

LOGS = Path(__file__).parent / "data" / "mlperf"
SUBMISSIONS = Path(__file__).parent / "data" / "mlperf_v51"
THEIA = SUBMISSIONS / "NVIDIA" / "results" / "theia_ngpu72_ngc25.09_nemo"
KNOWN = StepOptions(plan="tp1 pp1 dp8 zero1", precision="fp8")
T_OF_ONE = 12.706204736  # Student's t of 95 %, one degree of freedom


def test_the_step_of_a_run_is_that_of_its_blocks_after_the_first() -> None:
    times = [
        (1759967227206, 1759967719197),
        (1759967731490, 1759968223496),
        (1759968235790, 1759968727990),
        (1759968740311, 1759969232405),
        (1759969244715, 1759969736794),
    ]
    seconds = sum(end - begin for begin, end in times) / 1000 / (5 * 12288 / 32)
    run = read_run(LOGS / "result_0.txt")
    assert run.step_s == pytest.approx(seconds, rel=1e-12)
    assert run.step_s == pytest.approx(32 / 24.976, rel=5e-4)  # the throughput that the log states


def test_blocks_that_count_steps_have_the_samples_of_these() -> None:
    run = read_run(THEIA / "llama31_8b" / "result_0.txt")
    assert run.step_s == pytest.approx((1759904426404 - 1759904375810) / 1000 / (5130 - 4788))
    assert run.step_s == pytest.approx(0.14793395046798283, rel=1e-4)  # the step time that the log states
    assert run.counts["gradient_accumulation_steps"] == 1  # written as 1.0


@pytest.mark.parametrize("metadata", ['"samples_count": 12312', '"samples_count": 12312, "step": null'])
def test_blocks_without_steps_may_state_their_own_samples(metadata: str, tmp_path: Path) -> None:
    text = (THEIA / "llama31_8b" / "result_1.txt").read_text()
    path = tmp_path / "result_1.txt"
    for step in (4788, 5130):
        text = text.replace(f'"samples_count": 12312, "step": {step}', metadata)
    path.write_text(text)
    assert read_run(path).step_s == pytest.approx(50.570 / 342)


def test_a_block_that_each_process_begins_counts_once(tmp_path: Path) -> None:
    lines = (LOGS / "result_0.txt").read_text().splitlines()
    path = tmp_path / "result_0.txt"
    path.write_text("\n".join(line for line in lines for _ in range(2 if "block_start" in line else 1)))
    assert read_run(path).step_s == read_run(LOGS / "result_0.txt").step_s


def test_the_description_of_a_system_states_hardware_and_ranks() -> None:
    (row,) = read_mlperf(THEIA, StepOptions(plan="tp1 pp1 cp2 zero1", precision="fp8"))
    assert row.hardware == "NVIDIA Blackwell Ultra GPU (GB300)"  # the log has 18xNVIDIA GB200
    assert isinstance(row.job, TrainingStep)
    assert (row.job.plan.data, row.job.plan.context, row.job.software) == (36, 2, "megatron-bridge")
    assert row.remarks == ()


def test_hardware_that_a_log_leaves_open_is_that_of_the_description(tmp_path: Path) -> None:
    shutil.copytree(SUBMISSIONS / "University-of-Florida", tmp_path / "u")
    (row,) = read_mlperf(tmp_path / "u", StepOptions(plan="tp1 pp1 zero1", precision="fp8"))
    assert row.hardware == "NVIDIA Blackwell GPU (B200-SXM-180GB)"
    (system,) = (tmp_path / "u" / "systems").iterdir()
    system.unlink()
    (row,) = read_mlperf(tmp_path / "u", StepOptions(plan="tp1 pp1 zero1", precision="fp8"))
    assert row.hardware == "1xSUBMISSION_PLATFORM_PLACEHOLDER"
    assert "the plan 'tp1 pp1 zero1' has no dp, and no description states accelerators: add dp" in row.why
    system.write_text("{")
    (row,) = read_mlperf(tmp_path / "u", KNOWN)
    assert row.job is None
    assert "hpg.dgxb200x8.n1.json cannot be read" in row.why


def test_the_first_block_counts_where_it_is_the_only_one(tmp_path: Path) -> None:
    lines = (LOGS / "result_0.txt").read_text().splitlines()
    stop = next(at for at, line in enumerate(lines) if "block_stop" in line)
    path = tmp_path / "short.txt"
    path.write_text("\n".join(["0: NCCL INFO", *(f"0: {line}" for line in lines[: stop + 1])]))
    assert read_run(path).step_s == pytest.approx((1759967214432 - 1759966714694) / 1000 / (12288 / 32))


def test_runs_of_a_folder_are_one_row_with_an_interval() -> None:
    steps = [read_run(LOGS / f"result_{at}.txt").step_s * 1e6 for at in (0, 1)]
    (row,) = read_mlperf(LOGS, KNOWN)
    mean, half = sum(steps) / 2, T_OF_ONE * abs(steps[0] - steps[1]) / 2
    assert row.measured_us == pytest.approx(mean)
    assert row.interval_us == pytest.approx((mean - half, mean + half))
    assert isinstance(row.job, TrainingStep)
    assert (row.job.model.name, row.job.model.sequence) == ("llama3-8b", 8192)
    assert (row.job.plan.data, row.job.plan.batch, row.job.plan.micro_batches) == (8, 2, 2)
    assert row.hardware == "MI350X"


def test_a_single_run_has_no_interval() -> None:
    (row,) = read_mlperf(LOGS / "result_0.txt", KNOWN)
    assert row.interval_us is None


def test_systems_are_rows_of_their_own(tmp_path: Path) -> None:
    for name, batch in (("a", 32), ("b", 64)):
        (tmp_path / name).mkdir()
        text = (LOGS / "result_0.txt").read_text().replace('"value": 32', f'"value": {batch}')
        (tmp_path / name / "result_0.txt").write_text(text)
    first, second = read_mlperf(tmp_path, KNOWN)
    assert first.measured_us is not None
    assert second.measured_us == pytest.approx(2 * first.measured_us)


def test_what_no_log_states_is_named_with_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(LOGS)]) == 1
    printed = capsys.readouterr().out
    assert "1.282 s a step (1.275 s to 1.289 s); the log does not state the plan (--plan" in printed
    assert "(--precision bf16)" in printed
    assert "--model" not in printed


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("llama31_8b", "retinanet", "the model (--model NAME)"),
        ('"gradient_accumulation_steps"', '"other"', "gradient_accumulation_steps (another log)"),
        ("samples_count", "epoch_num", "no block of steps states its samples"),
        ('"value": 2,', '"value": 2.5,', "gradient_accumulation_steps (another log)"),
        ('"value": 2,', '"value": 3,', "a batch of 32 is not a multiple of 3 micro-batches x dp8"),
    ],
)
def test_logs_that_give_no_step_are_refused_for_a_reason(
    old: str, new: str, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "result_0.txt"
    path.write_text((LOGS / "result_0.txt").read_text().replace(old, new))
    (row,) = read_mlperf(path, KNOWN)
    assert row.job is None
    assert expected in row.why


def test_options_of_logs_are_refused_for_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kernels.csv"
    path.write_text("table,shape,us\na,gemm 1 1 1,5\n")
    assert main(["validate", str(path), "--plan", "dp8"]) == 2
    assert "--plan describes logs of MLPerf Training" in capsys.readouterr().err


@pytest.mark.deep
@pytest.mark.parametrize(
    ("folder", "plan", "precision", "percent"),
    [
        ("NVIDIA/results/tyche_ngpu72_ngc25.09_nemo", "tp1 pp1 cp2 zero1", "fp8", -1),
        ("NVIDIA/results/theia_ngpu72_ngc25.09_nemo", "tp1 pp1 cp2 zero1", "fp8", 7),
        ("NVIDIA/results/theia_ngpu512_ngc25.09_nemo", "tp2 pp8x8 cp2 zero1", "nvfp4", -7),
        ("University-of-Florida", "tp1 pp1 zero1", "fp8", 16),
        ("AMD", "tp1 pp1 zero1", "fp8", -14),
        ("../mlperf", "tp1 pp1 dp8 zero1", "fp8", -17),
    ],
)
def test_published_runs_are_as_far_off_as_the_page_states(
    folder: str, plan: str, precision: str, percent: int
) -> None:
    (row,) = read_mlperf(SUBMISSIONS / folder, StepOptions(plan=plan, precision=precision))
    (prediction,) = predictions([row])
    assert prediction.ratio is not None
    assert round(100 * (prediction.ratio - 1)) == percent
    table = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text()
    assert any(
        f"`{plan.replace(' dp8', '')}`" in line and f" {percent:+} %" in line for line in table.splitlines()
    )


@pytest.mark.deep
def test_a_row_of_runs_is_predicted_on_its_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(LOGS, tmp_path / "logs")
    line = ["validate", str(tmp_path / "logs"), "--plan", KNOWN.plan, "--precision", "fp8", "--json"]
    assert main(line) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["machine"] == "mi350x-node"
    assert row["predicted_us"] > 0
    assert row["measured_low_us"] < row["measured_us"] < row["measured_high_us"]


def test_a_plan_of_other_ranks_than_the_description_states_is_refused() -> None:
    (row,) = read_mlperf(THEIA, StepOptions(plan="tp1 pp1 dp4", precision="fp8"))
    assert row.job is None
    assert "the plan 'tp1 pp1 dp4' has 4 ranks, and the system's description states 72 acc" in row.why
    (row,) = read_mlperf(THEIA, StepOptions(plan="tp1 pp1 cp2 dp36", precision="fp8"))
    assert row.job is not None


@pytest.mark.parametrize("plan", ["tp1 dp8 tp2", "dp8 none full", "pp2x2 pp1 dp8"])
def test_a_plan_that_states_an_axis_twice_is_refused(plan: str) -> None:
    (row,) = read_mlperf(LOGS, StepOptions(plan=plan, precision="fp8"))
    assert row.job is None
    assert f"the plan '{plan}' has a second value of " in row.why


def test_accelerators_are_those_of_all_nodes_if_both_numbers_are_stated() -> None:
    given = ({"accelerators_per_node": "8", "number_of_nodes": 4}, {"accelerators_per_node": 8})
    given += ({"number_of_nodes": 4}, {"accelerators_per_node": "8 x", "number_of_nodes": 4})
    assert [_System(**keys).accelerators for keys in given] == [32, 0, 0, 0]
