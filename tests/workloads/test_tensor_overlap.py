"""Products that overlap with their own exchange: chunks of both go side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import network, system
from training_jobs import decoder, transformer

from et_sim.api import run
from et_sim.workloads import Axes, Plan, Rank, make_workload
from et_sim.workloads.training.layers import ModelLayers
from et_sim.workloads.training.parts import GatheredProduct, ModelPart, ReducedProduct
from et_sim.workloads.training.work import RankWork

PLAN = {"tensor": 4, "sequence_parallel": True, "micro_batches": 1}


def rows_of(part: ModelPart, plan: Plan, bandwidth: float, *, is_forward: bool) -> list[dict[str, Any]]:
    """Return the rows of the first rank in one direction of a part."""

    def alone(rank: Rank) -> None:
        work = RankWork(rank, plan)
        (part.forward if is_forward else part.backward)(work)

    done = run(
        make_workload(Axes(tensor=4), alone),
        system=system(profile="corrected"),
        network=network(["Ring"], [4], bandwidth),
    )
    return [row for row in done.timeline.to_pylist() if row["actor"] == 0]


def part_of(kind: type[ModelPart], plan: Plan) -> ModelPart:
    """Return the first part of a layer that is of a kind."""
    return next(part for part in ModelLayers(decoder(), plan).layer(0) if isinstance(part, kind))


def only(rows: list[dict[str, Any]], *kinds: str) -> tuple[int, int]:
    """Return the number of rows of some kinds, and their time, which is the same for all."""
    (ns,) = {row["end_ns"] - row["start_ns"] for row in rows if row["kind"] in kinds}
    return sum(row["kind"] in kinds for row in rows), ns


@pytest.mark.parametrize("chunks", [2, 4, 8])
@pytest.mark.parametrize("bandwidth", [0.05, 0.5, 50.0])
@pytest.mark.parametrize(("kind", "is_forward"), [(GatheredProduct, True), (ReducedProduct, False)])
def test_products_of_the_own_share_run_while_the_others_are_gathered(
    chunks: int, bandwidth: float, kind: type[ModelPart], is_forward: bool
) -> None:
    plan = Plan(**PLAN, tensor_overlap=chunks, tflops=1e-3)
    rows = rows_of(part_of(kind, plan), plan, bandwidth, is_forward=is_forward)
    (products, product), (exchanges, exchange) = only(rows, "compute"), only(rows, "all_gather")
    assert (products, exchanges) == (chunks, chunks - chunks // 4)
    last = max(row["end_ns"] for row in rows)
    assert last == max(chunks * product, exchange + exchanges * product, exchanges * exchange + product)


@pytest.mark.parametrize("chunks", [2, 4, 8])
@pytest.mark.parametrize("bandwidth", [0.05, 0.5, 50.0])
@pytest.mark.parametrize(("kind", "is_forward"), [(ReducedProduct, True), (GatheredProduct, False)])
def test_each_product_is_reduced_beside_the_next_and_after_inputs_are_gathered_again(
    chunks: int, bandwidth: float, kind: type[ModelPart], is_forward: bool
) -> None:
    plan = Plan(**PLAN, tensor_overlap=chunks, tflops=1e-3)
    rows = rows_of(part_of(kind, plan), plan, bandwidth, is_forward=is_forward)
    (products, product), (exchanges, exchange) = only(rows, "compute"), only(rows, "reduce_scatter")
    assert products == exchanges == chunks
    again = 0 if is_forward else only(rows, "all_gather")[1]
    last = max(row["end_ns"] for row in rows)
    assert last == max(chunks * product + exchange, max(product, again) + chunks * exchange)


def test_software_may_reduce_gradients_of_inputs_whole(tmp_path: Path) -> None:
    """Expect inputs gathered beside gradients of inputs, which are reduced beside those of weights."""
    path = tmp_path / "whole.json"
    path.write_text('{"about": "a test", "reduces-whole": true}', encoding="utf-8")
    plan = Plan(**PLAN, tensor_overlap=4, tflops=1e-3, software=str(path))
    part = part_of(GatheredProduct, plan)

    def alone(rank: Rank) -> None:
        work = RankWork(rank, plan)
        part.backward(work)
        work.catch_up()

    done = run(
        make_workload(Axes(tensor=4), alone),
        system=system(profile="corrected"),
        network=network(["Ring"], [4], 50.0),
    )
    rows = {row["name"].strip(): row for row in done.timeline.to_pylist() if row["actor"] == 0}
    inputs, weights = rows["qkv inputs"], rows["qkv weights"]
    again, reduced = rows["qkv weights all-gather"], rows["attention reduce-scatter"]
    assert len(rows) == 4
    assert again["start_ns"] == inputs["start_ns"]
    assert reduced["start_ns"] == inputs["end_ns"] == weights["start_ns"]


def test_gradients_of_weights_gather_inputs_in_their_own_pass() -> None:
    plan = {**PLAN, "pipeline": 2, "schedule": "zero-bubble", "micro_batches": 4}
    names = [name for name in transformer(**plan).trace(0).names if name.endswith("weights all-gather")]
    assert names
    assert all(name.startswith("backward-weights ") for name in names)


def test_a_step_takes_less_with_overlap() -> None:
    whole, halves = (
        run(
            transformer(**PLAN, tensor_overlap=chunks, tflops=0.1, batch=4),
            system=system(profile="corrected"),
            network=network(["Ring"], [4], bandwidth=0.5),
        ).makespan_ns
        for chunks in (1, 2)
    )
    assert halves < 0.98 * whole
