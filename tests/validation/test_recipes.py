"""Recipes of a product: their settings of a step, and the priority of sources over them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from et_sim.validation.recipes import Recipe, recipe_of, recipes
from et_sim.validation.row import Row, TrainingStep
from et_sim.validation.rows import measured_rows
from et_sim.workloads import Plan, read_model
from et_sim.workloads.training.recomputation import modules_of

LINE = {
    "software": "Megatron-Bridge 25.11",
    "hardware": "64 DGX-GB200",
    "model": "gpt-oss-120b",
    "machine": "gb200-nvl72",
    "gpus": "64",
    "plan": "tp1 pp1x1 cp1 dp64 ep64 zero1 none",
    "micro_batch": "1",
    "micro_batches": "20",
    "seq": "8192",
    "precision": "bf16",
    "measured_s": "10",
    "note": "",
}


def row_of(folder: Path, **line: str) -> Row:
    """Return the row of a file of one line."""
    with (folder / "steps.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, LINE)
        writer.writeheader()
        writer.writerow({**LINE, **line})
    (row,) = measured_rows(folder / "steps.csv")
    return row


def job_of(folder: Path, **line: str) -> TrainingStep:
    """Return the job of a file of one line."""
    row = row_of(folder, **line)
    assert isinstance(row.job, TrainingStep), row.why
    return row.job


def examples(recipe: Recipe) -> Iterator[tuple[str, str, str, str, dict[str, Any]]]:
    """Yield rows that a recipe is of."""
    release = recipe.release.replace("\\", "").replace("[4-9]", "4").replace("[1-3]", "2")
    release += "" if release[-1].isdigit() else "11" if release == "25." else "02"
    for device, products in product(recipe.devices or ("GB200",), recipe.products or ("values", "fp8")):
        stated = {"products": products, **recipe.when}
        yield recipe.software, f"Megatron-Bridge {release}", recipe.model, f"64 DGX-{device}", stated


@pytest.mark.parametrize("recipe", recipes().recipes)
def test_every_recipe_is_that_of_some_row_and_no_other_hides_it(recipe: Recipe) -> None:
    assert recipe.plan in [recipe_of(*row) for row in examples(recipe)]


@pytest.mark.parametrize("recipe", recipes().recipes)
def test_every_recipe_has_a_source_and_fields_of_a_plan(recipe: Recipe) -> None:
    assert "@" in recipe.source
    assert {*recipe.plan, *recipe.when} <= {*Plan.__struct_fields__}
    if "recompute" in recipe.plan:
        modules_of(recipe.plan["recompute"])


def test_a_recipe_is_of_one_product_release_model_and_device() -> None:
    def taken(
        software: str = "megatron-bridge",
        release: str = "Megatron-Bridge 25.11",
        model: str = "gpt-oss-120b",
        hardware: str = "64 DGX-GB200",
    ) -> dict[str, Any]:
        return dict(recipe_of(software, release, model, hardware, {}))

    assert taken() == {"expert_exchange": "all-to-all", "recompute": "norms+activation"}
    assert taken(software="megatron-core") == taken(release="Megatron-Bridge 24.11") == {}
    assert taken(model="llama3-8b") == {}
    assert taken(hardware="64 DGX-GB300") == {"expert_exchange": "all-to-all"}
    assert taken(release="Megatron-Bridge 26.04.01")["overlap_experts"]


def test_a_row_takes_its_recipe(tmp_path: Path) -> None:
    plan = job_of(tmp_path).plan
    assert (plan.expert_exchange, plan.recompute, plan.node_ranks) == ("all-to-all", "norms+activation", 64)
    deep = {"model": "deepseek-v3", "hardware": "256 DGX-B200", "machine": "b200-dgx", "gpus": "256"}
    deep |= {"plan": "tp1 pp8x2 cp1 dp32 ep32 zero1 none", "precision": "fp8", "micro_batches": "128"}
    plan = job_of(tmp_path, **deep, software="Megatron-Bridge 26.04.01").plan
    assert (plan.expert_exchange, plan.recompute, plan.node_ranks) == ("deepep", "mla-up+mlp", 8)
    assert plan.overlap_experts
    assert not job_of(tmp_path, **deep, software="Megatron-Bridge 26.02").plan.overlap_experts


OF_ONE_BATCH = {"hardware": "64 DGX-B200", "machine": "b200-dgx", "seq": "4096"}


@pytest.mark.parametrize(
    ("batch", "ranks", "remark"),
    [
        (("4", "2"), 8, "ep is 8, but 64 in the published recipe of this batch"),
        (("4", "2"), 64, ""),
        (("4", "5"), 8, ""),
    ],
)
def test_a_recipe_with_other_ranks_of_experts_than_the_table_gives_a_remark(
    tmp_path: Path, batch: tuple[str, str], ranks: int, remark: str
) -> None:
    size, count = batch
    row = row_of(
        tmp_path,
        **OF_ONE_BATCH,
        plan=f"tp1 pp1x1 cp1 dp64 ep{ranks} zero1 none",
        micro_batch=size,
        micro_batches=count,
    )
    assert isinstance(row.job, TrainingStep)
    assert row.job.plan.expert == ranks
    assert row.remarks == ((remark,) if remark else ())


def test_stated_settings_of_a_source_override_its_recipe(tmp_path: Path) -> None:
    assert job_of(tmp_path, note="no recompute").plan.recompute == "none"
    stated = job_of(tmp_path, plan="tp1 pp1x1 cp1 dp64 ep64 zero1 full").plan
    assert (stated.recompute, stated.expert_exchange) == ("full", "all-to-all")


def test_a_job_larger_than_a_rack_takes_equal_parts_of_few_racks(tmp_path: Path) -> None:
    job = job_of(tmp_path, gpus="256", plan="tp1 pp4 cp1 dp64 ep64 zero1 none")
    assert job.plan.node_ranks == 64


def stand_in(folder: Path, **changes: Any) -> None:
    """Write the file of a model with experts as collections have it, as a Mixtral."""
    content = {"name": "gpt-oss-120b", "model_type": "mixtral", "hidden_size": 2880, "num_hidden_layers": 36}
    content |= {"intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8}
    content |= {"vocab_size": 201088, "max_position_embeddings": 4096, "head_dim": 64}
    content |= {"num_local_experts": 128, "num_experts_per_tok": 4}
    (folder / "models").mkdir()
    (folder / "models" / "gpt-oss-120b.json").write_text(json.dumps(content | changes))


def test_a_file_with_the_dimensions_of_a_preset_gives_the_preset(tmp_path: Path) -> None:
    stand_in(tmp_path)
    assert job_of(tmp_path).model == replace(read_model("gpt-oss-120b"), sequence=8192)


@pytest.mark.parametrize(
    "change", [{"num_hidden_layers": 12}, {"num_local_experts": 64}, {"hidden_size": 2048}]
)
def test_a_file_with_other_dimensions_is_taken_as_it_is(change: dict[str, int], tmp_path: Path) -> None:
    stand_in(tmp_path, **change)
    model = job_of(tmp_path).model
    assert model.experts is not None
    assert not model.experts.expert.has_bias
