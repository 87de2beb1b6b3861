"""Files of training steps: columns and texts become plans, software and remarks; every line is a row."""

from __future__ import annotations

import argparse
import csv
import io
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from et_sim.basics.declared_options import declare
from et_sim.cli.jobs import read_plan
from et_sim.cli.make import Options
from et_sim.validation.predictions import predictions
from et_sim.validation.recipes import recipe_of
from et_sim.validation.row import Row, TrainingStep
from et_sim.validation.rows import measured_rows, read_rows

MEASURED = Path(__file__).parents[1] / "measurements"
STEPS = MEASURED / "steps_today.csv"
COLUMNS = (
    *("source", "software", "hardware", "model", "machine", "gpus", "plan", "micro_batch", "micro_batches"),
    *("seq", "precision", "measured_s", "note"),
)
LINE = {
    "source": "a page",
    "software": "Megatron-Bridge 25.11",
    "hardware": "16 H100",
    "model": "llama3-8b",
    "machine": "h100-dgx",
    "gpus": "16",
    "plan": "tp2 pp2x2 cp1 dp4 ep1 zero1 none",
    "micro_batch": "1",
    "micro_batches": "4",
    "seq": "4096",
    "precision": "bf16",
    "measured_s": "1.5",
    "note": "",
}


def rows_of(folder: Path, *lines: dict[str, str]) -> list[Row]:
    path = folder / "steps.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows({**LINE, **line} for line in lines)
    return measured_rows(path)


def job_of(row: Row) -> TrainingStep:
    assert isinstance(row.job, TrainingStep), row.why
    return row.job


OF_NOTES = {
    "selective op": ("--recompute", "op"),
    "selective layer: every 2nd layer recomputed, not expressible": (
        *("--recompute", "full", "--recompute-layers", "every:2"),
    ),
}


OF_ROWS = {"products": "fp8", "expert": 32}  # where a recipe depends on them
IN_BATCH = ("data", "batch", "micro_batches")


def test_columns_give_the_plans_of_the_commands_beside_them() -> None:
    lines = list(csv.DictReader(io.StringIO(STEPS.read_text())))
    rows = read_rows(STEPS)
    assert len(rows) == len(lines) == 38
    parser = argparse.ArgumentParser()
    declare(parser, Options)
    for row, line in zip(rows, lines, strict=True):
        job = job_of(row)
        words = [*shlex.split(line["make"])[2:], "--software", job.software, *OF_NOTES.get(line["note"], ())]
        plan = read_plan(Options(vars(parser.parse_args(words))))
        if " zero1 " in line["plan"]:
            plan = replace(plan, zero=1)  # the commands leave out that ranks share optimizer states
        if plan.expert > 1:  # the commands leave out the options of the recipe
            stated = OF_ROWS | {name: getattr(plan, name) for name in IN_BATCH}
            given = recipe_of(job.software, line["software"], line["model"], line["hardware"], stated)
            plan = replace(plan, **given | {"expert": plan.expert}, node_ranks=job.plan.node_ranks)
        plan = replace(
            plan, products=plan.products or "values"
        )  # without the option, a training plan has values
        assert job.plan == plan, line["make"]
        machine = "h100-500w" if "benchmarks/llama3_h100" in line["source"] else line["machine"]
        assert (job.model.sequence, row.machine) == (int(line["seq"]), machine)
        assert row.measured_us == pytest.approx(1e6 * float(line["measured_s"]))
        assert row.number == rows.index(row) + 1


def test_texts_of_all_public_rows_are_understood() -> None:
    rows = read_rows(STEPS)
    lines = csv.DictReader(io.StringIO(STEPS.read_text()))
    [network_note] = {line["note"] for line in lines if line["note"].startswith("network")}
    assert {job_of(row).software for row in rows} == {
        *("torchtitan", "fms-fsdp", "maxtext", "deepspeed-zero3", "megatron-bridge", "nemo-24.12"),
        *("megatron-2021", "megatron-2023"),
    }
    assert {remark for row in rows for remark in row.remarks} == {
        f"note '{network_note}': the network of the machine is taken",
        "ep is 8, but 64 in the published recipe of this batch",
    }
    assert [job_of(row).power for row in rows if job_of(row).power] == ["500W", "500W"]


def test_commands_of_a_file_are_never_used(tmp_path: Path) -> None:
    line = {**LINE, "make": "et-sim make llm --tp 64", "run": f"touch {tmp_path / 'done'}"}
    (tmp_path / "steps.csv").write_text(
        ",".join(line) + "\n" + ",".join(f'"{value}"' for value in line.values()) + "\n"
    )
    (row,) = measured_rows(tmp_path / "steps.csv")
    assert job_of(row).plan.tensor == 2
    assert not (tmp_path / "done").exists()


def test_layers_that_parts_do_not_divide_are_more_in_the_first_parts(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, {"plan": "tp1 pp5 cp1 dp4 ep1 zero1 none", "gpus": "20"})
    assert job_of(row).plan.stage_layers == (7, 7, 6, 6, 6)


def test_a_plan_may_share_experts_among_ranks(tmp_path: Path) -> None:
    plan = "tp2 pp1 cp1 dp8 ep4 etp2 zero1 none"
    (row,) = rows_of(tmp_path, {"model": "mixtral-8x7b", "plan": plan, "gpus": "16"})
    assert (job_of(row).plan.expert, job_of(row).plan.expert_tensor) == (4, 2)


def test_software_that_no_entry_means_takes_the_default_and_is_named(tmp_path: Path) -> None:
    known, other, none = rows_of(tmp_path, {}, {"software": "Foo 2.1"}, {"software": ""})
    assert (job_of(known).software, known.remarks) == ("megatron-bridge", ())
    assert (job_of(other).software, other.remarks) == ("", ("software 'Foo 2.1' is not known: the default",))
    assert none.remarks == ("software is not stated: the default",)


def test_an_unknown_clause_of_a_note_is_named(tmp_path: Path) -> None:
    (row,) = rows_of(tmp_path, {"note": "async TP; with a new trick"})
    assert job_of(row).plan.tensor_overlap == 8
    assert row.remarks == ("note 'with a new trick' is not understood",)


def test_models_are_read_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "own.json").write_text((MEASURED / "models" / "qwen2.5-7b.json").read_text())
    (row,) = rows_of(tmp_path, {"model": "own", "plan": "tp2 pp2 cp1 dp4 ep1 zero1 none"})
    assert job_of(row).model.layers == 28


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"plan": "tp2 pq2 none"}, "the word 'pq2'"),
        ({"plan": "tp2x3 pp2 none"}, "the word 'tp2x3'"),
        ({"plan": "tp2 pp2 dp4 sometimes"}, "recompute is 'sometimes'"),
        ({"gpus": "32"}, "gpus is 32, and the plan has 16 ranks"),
        ({"gpus": "-3"}, "gpus is '-3' (allowed: an integer from 1 to 10^9)"),
        ({"seq": "1e3"}, "seq is '1e3'"),
        ({"measured_s": "soon"}, "measured_s is 'soon' (allowed: seconds, more than 0)"),
        ({"measured_s": "0"}, "measured_s is '0'"),
        ({"measured_s": "nan"}, "measured_s is 'nan'"),
        ({"precision": "int3"}, "precision is 'int3' (known: bf16"),
        ({"model": "llama9"}, "there is no model 'llama9'"),
    ],
)
def test_a_line_that_cannot_be_read_has_its_reason_and_others_are_read(
    change: dict[str, str], why: str, tmp_path: Path
) -> None:
    good, bad, after = rows_of(tmp_path, {}, change, {})
    assert (good.number, bad.number, after.number) == (1, 2, 3)
    assert bad.job is None
    assert bad.why.startswith("steps.csv: line 3: ")
    assert why in bad.why
    assert job_of(good) == job_of(after)


@pytest.mark.parametrize(
    ("machine", "model", "plan"),
    [
        ("tpu-v9", "mixtral-8x7b", "tp1 dp16 ep8 zero1 none"),
        ("h100-dgx:16", "llama3-8b", "tp1 dp16 ep1 zero1 none"),
    ],
)
def test_a_machine_that_is_not_known_is_the_reason_of_its_row(
    machine: str, model: str, plan: str, tmp_path: Path
) -> None:
    rows = rows_of(tmp_path, {"machine": machine, "model": model, "plan": plan})
    (prediction,) = predictions(rows)
    assert prediction.predicted_us is None
    assert f"machine '{machine}' is not known" in prediction.how


def test_a_line_with_too_few_values_has_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    path.write_text(",".join(COLUMNS) + "\nonly,two\n")
    (row,) = measured_rows(path)
    assert row.why == "steps.csv: line 2: the line has fewer values than the first one"
