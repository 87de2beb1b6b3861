"""Generated jobs compute in a datatype for which their machine has a rate, or are refused at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.machine.presets import names, preset
from et_sim.recipes.recipe import for_machine, make
from et_sim.sweeps.bounds import Bounder
from et_sim.sweeps.state import plan_sweep
from et_sim.trace import read_workload
from et_sim.workloads import Plan

MODEL = ("--layers", "1", "--hidden", "64", "--sequence", "64", "--vocabulary", "128")
SMALL = ("make", "transformer", *MODEL, "--micro-batches", "1")
DGX_1 = "v100-dgx-1:4"


def types_of(workload: et_sim.Workload) -> set[str]:
    """Return the datatypes of all kernels."""
    return {str(name) for trace in workload.templates for name in trace.datatypes if name}


@pytest.mark.parametrize("name", names())
def test_a_job_made_by_default_for_a_machine_runs_there(name: str, tmp_path: Path) -> None:
    machine, prefix = preset(name), str(tmp_path / "job")
    assert main([*SMALL, "--machine", machine.text, "--dp", str(machine.npus), "-o", prefix]) == 0
    result = et_sim.simulate(f"{prefix}.workload.json", machine=machine.text)
    assert result.makespan_ns > 0


def test_values_are_fp16_where_there_is_no_bf16(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = str(tmp_path / "job")
    assert main([*SMALL, "--machine", DGX_1, "--dp", "4", "-o", prefix]) == 0
    assert "values in fp16" in capsys.readouterr().out
    made = read_workload(f"{prefix}.workload.json")
    assert types_of(made) == {"fp16"}
    assert made.step is not None
    assert made.step.datatype == "fp16"


def test_sizes_do_not_depend_on_the_type_of_two_bytes() -> None:
    recipe = {"make": "llm", "model": "gpt2", "layers": 1, "sequence": 64, "plan": {"micro-batches": 1}}
    plain = make(recipe, Path())
    other = make({**recipe, "plan": {"micro-batches": 1, "value-type": "fp16"}}, Path())
    assert types_of(plain) == {"bf16"}
    assert types_of(other) == {"fp16"}
    for one, two in zip(plain.templates, other.templates, strict=True):
        assert one.num_ops.tolist() == two.num_ops.tolist()
        assert one.tensor_bytes.tolist() == two.tensor_bytes.tolist()


@pytest.mark.parametrize(
    ("machine", "options", "sentence"),
    [
        (
            DGX_1,
            ("--products", "fp8"),
            "products with weights compute in fp8, for which v100-dgx-1 has no rate: it has fp64, fp32, fp16"
            " (change --products, or choose another machine)",
        ),
        (DGX_1, ("--value-type", "bf16"), "values are bf16, for which v100-dgx-1 has no rate"),
        ("a100-dgx-80gb:4", ("--products", "fp8"), "compute in fp8, for which a100-dgx-80gb has no rate"),
        ("tpu-v4-pod:64", ("--value-bytes", "4"), "values are fp32, for which tpu-v4-pod has no rate"),
        (DGX_1, ("--value-bytes", "4", "--value-type", "fp16"), "whose values have 2 bytes"),
        (DGX_1, ("--value-type", "fp8"), "--value-type is 'fp8' (known: bf16, fp16)"),
    ],
)
def test_other_types_are_refused_before_anything_is_written(
    machine: str,
    options: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ranks = machine.partition(":")[2]
    job = [*SMALL, "--machine", machine, "--dp", ranks, *options]
    assert main([*job, "-o", str(tmp_path / "job")]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_of_a_sweep_takes_the_same_type_from_its_machine() -> None:
    recipe: dict[str, Any] = {"make": "llm", "model": "gpt2", "plan": {"dp": 4}}
    assert for_machine(recipe, "v100-quad:4")["plan"] == {"dp": 4, "value-type": "fp16", "node-ranks": 4}
    assert for_machine(recipe, "h100-dgx:8") == recipe
    assert for_machine({**recipe, "make": "all_reduce"}, DGX_1) == {**recipe, "make": "all_reduce"}
    given = {**recipe, "plan": {"value-bytes": 4}}
    assert "value-type" not in for_machine(given, DGX_1)["plan"]


def test_bounds_of_a_sweep_are_those_of_the_job_that_its_machine_runs() -> None:
    """Check V100, which has a rate for products in fp16 and none in bf16."""
    job: dict[str, Any] = {"make": "llm", "model": "gpt2", "layers": 1, "sequence": 64}
    plans: list[dict[str, Any]] = [{}, {"value-type": "fp16"}]
    axes = {"dp": {"field": "workload.plan.dp", "values": [4]}}
    bounds = []
    for plan in plans:
        sweep = plan_sweep({"base": {"workload": {**job, "plan": plan}, "machine": DGX_1}, "axes": axes})
        bounds.append(Bounder(sweep.space).of(sweep.points[0].values))
    assert bounds[0] == bounds[1] is not None


def test_a_plan_of_fp16_values_is_refused_by_python_too() -> None:
    with pytest.raises(UsageError, match="leave one of them out"):
        Plan(value_type="fp16", value_bytes=4)
