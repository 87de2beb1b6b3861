"""Steps of a table on a machine that is not their own: the kept plan is stated, and must fit."""

from __future__ import annotations

import pytest
from msgspec import structs
from msgspec.structs import replace

from et_sim.validation.predictions import on_machine, predictions
from et_sim.validation.row import Row, TrainingStep
from et_sim.workloads import Plan, read_model

MODEL = replace(read_model("gpt2"), layers=1, sequence=256)
PLAN = Plan(data=4, micro_batches=1)


def step(plan: Plan = PLAN, hardware: str = "4 H100", power: str = "", model: str = "gpt2") -> Row:
    named = MODEL if model == "gpt2" else replace(read_model(model), layers=2, sequence=256)
    job = TrainingStep("a step", hardware, named, plan, 0.01, power=power)
    return Row("steps", 1, hardware, "", "iteration", "4 GPUs", "a step", 10_000.0, job, machine="h100-dgx")


def job_of(row: Row) -> TrainingStep:
    assert isinstance(row.job, TrainingStep), row.why
    return row.job


def test_a_step_on_its_own_machine_is_unchanged() -> None:
    row = step(power="500W")
    assert on_machine(row, "h100-dgx", "h100-dgx") == row


def test_a_plan_that_is_kept_elsewhere_is_stated_without_the_power_limit_of_its_hardware() -> None:
    row = on_machine(step(power="500W"), "a100-dgx-80gb", "h100-dgx")
    assert job_of(row).plan == PLAN
    assert job_of(row).power == ""
    assert row.remarks == (
        "a plan for a100-dgx-80gb: that of 4 H100 is kept",
        "the limit of 500W, which is that of 4 H100",
    )
    [prediction] = predictions([step(power="500W")], "a100-dgx-80gb")
    assert prediction.row == row
    [own] = predictions([structs.replace(step(), machine="a100-dgx-80gb")])
    assert prediction.predicted_us == own.predicted_us


def test_unknown_hardware_keeps_its_plan_without_remark() -> None:
    assert on_machine(step(hardware="4 Q900"), "h100-dgx", None).remarks == ()


def test_values_and_nodes_of_experts_are_those_of_the_machine() -> None:
    row = on_machine(step(hardware="4 V100"), "v100-dgx-1", "v100-dgx-1")
    assert job_of(row).plan.values == "fp16"
    assert row.remarks == ("bf16, which v100-dgx-1 lacks: values are fp16",)
    spread = replace(PLAN, data=16, expert=16)
    assert job_of(on_machine(step(spread), "a100-quad", "h100-dgx")).plan.node_ranks == 4


def test_a_step_in_a_type_that_the_machine_lacks_is_not_predicted() -> None:
    [prediction] = predictions([step(replace(PLAN, products="fp8"))], "a100-dgx-80gb")
    assert prediction.predicted_us is None
    assert prediction.how.startswith("products with weights compute in fp8, for which a100-dgx-80gb has no")


def test_a_plan_that_does_not_fit_the_memory_of_another_machine_is_not_predicted() -> None:
    """Check weights and states of two layers and the heads of Llama 3 70B, over 60 GB; V100 has 16."""
    row = step(Plan(data=4, micro_batches=1, batch=4), model="llama3-70b")
    [own] = predictions([row])
    assert own.predicted_us is not None
    [elsewhere] = predictions([row], "v100-dgx-1")
    assert elsewhere.predicted_us is None
    assert "local-mem-capacity" in elsewhere.how


@pytest.mark.parametrize("own", ["no-such-machine", "a100-dgx-80gb"])
def test_a_machine_of_the_file_that_is_not_known_differs(own: str) -> None:
    assert job_of(on_machine(step(), "h100-dgx", own)).is_kept
