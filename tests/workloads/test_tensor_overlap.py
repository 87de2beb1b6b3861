"""Products that overlap with their own exchange: the longer of both, and one chunk of the other."""

from __future__ import annotations

import pytest
from machines import network, system
from training_jobs import decoder, transformer

from et_sim.api import run
from et_sim.workloads import Axes, Plan, Rank, make_workload
from et_sim.workloads.training.layers import Layers
from et_sim.workloads.training.parts import GatheredProduct, ReducedProduct
from et_sim.workloads.training.work import Work

PLAN = {"tensor": 4, "sequence_parallel": True, "micro_batches": 1}


@pytest.mark.parametrize("chunks", [2, 4, 8])
@pytest.mark.parametrize("bandwidth", [0.05, 0.5, 50.0])
@pytest.mark.parametrize("kind", [GatheredProduct, ReducedProduct])
@pytest.mark.parametrize("is_forward", [True, False])
def test_chunks_take_the_longer_of_both_and_one_chunk_of_the_other(
    chunks: int, bandwidth: float, kind: type[GatheredProduct | ReducedProduct], is_forward: bool
) -> None:
    plan = Plan(**PLAN, tensor_overlap=chunks, tflops=1e-3)
    part = next(part for part in Layers(decoder(), plan).layer(0) if isinstance(part, kind))

    def alone(rank: Rank) -> None:
        work = Work(rank, plan)
        (part.forward if is_forward else part.backward)(work)

    done = run(
        make_workload(Axes(tensor=4), alone),
        system=system(profile="corrected"),
        network=network(["Ring"], [4], bandwidth),
    )
    rows = [row for row in done.timeline.to_pylist() if row["actor"] == 0]
    kernels = {row["end_ns"] - row["start_ns"] for row in rows if row["kind"] == "compute"}
    exchanges = {row["end_ns"] - row["start_ns"] for row in rows if row["kind"] != "compute"}
    assert len(kernels) == len(exchanges) == 1
    assert len(rows) == 2 * chunks
    (product,), (exchange,) = kernels, exchanges
    assert done.makespan_ns == chunks * max(product, exchange) + min(product, exchange)


def test_a_step_takes_less_with_overlap() -> None:
    whole, halves = (
        run(
            transformer(**PLAN, tensor_overlap=chunks, tflops=0.1, batch=4),
            system=system(profile="corrected"),
            network=network(["Ring"], [4], bandwidth=0.5),
        ).makespan_ns
        for chunks in (1, 2)
    )
    assert halves < 0.96 * whole
