"""Tensors of training jobs: a run needs the memory of its plan, with any sharing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import network, system
from training_jobs import decoder, with_experts

import et_sim
from et_sim.api import run
from et_sim.memory.footprint import class_of
from et_sim.trace import NodeKind, Workload
from et_sim.trace.tensors import remark_on_unannotated, tensor_uses
from et_sim.workloads import Axes, Model, Plan, Rank, make_training, make_workload
from et_sim.workloads.convolution import (
    Convolution,
    layers_of,
    make_convolution_training,
    read_network,
)
from et_sim.workloads.recommendation import changed, make_dlrm_training, read_dlrm
from et_sim.workloads.training.figures import figures, figures_of_replicas
from et_sim.workloads.training.layers import ModelLayers

FAST = {"topology": ["FullyConnected"], "bandwidth": [1e6], "latency": [1]}
SHARED = [
    {},
    {"data": 4, "zero": 1},
    {"data": 4, "zero": 2, "bucket": 10_000},
    {"data": 4, "zero": 2},
    {"data": 4, "zero": 3},
    {"data": 4, "zero": 3, "prefetch": 0},
    {"data": 2, "zero": 3, "prefetch": 3, "context": 2},
    {"data": 4, "zero": 3, "shard": 2},
    {"tensor": 4, "sequence_parallel": True, "data": 2, "tensor_overlap": 2, "zero": 1},
    {"context": 2, "context_attention": "all-to-all", "tensor": 2, "overlap_tensor": False},
]
STAGED = [
    {},
    {"pipeline": 4},
    {"pipeline": 2, "schedule": "gpipe"},
    {"pipeline": 2, "schedule": "interleaved", "chunks": 2},
    {"pipeline": 4, "schedule": "zero-bubble"},
    {"pipeline": 2, "stage_layers": (3, 1)},
]
RECOMPUTED = [
    {},
    {"recompute": "selective", "fused_attention": False},
    {"recompute": "full"},
    {"recompute": "norms+activation"},
    {"recompute": "op", "recompute_layers": "every:2"},
]


def job(plan: dict[str, Any], *, experts: bool = False, **model: Any) -> tuple[Model, Plan]:
    """Return a job with long kernels, which hide the exchanges of a fast network."""
    made = with_experts(**model) if experts else decoder(**model)
    return made, Plan(**{"micro_batches": 4, "tflops": 0.01, **plan})


def tracked(workload: Workload, machine: dict[str, Any], **keys: Any) -> et_sim.Result:
    given = system(
        profile="corrected",
        corrections={"groups-by-dimension": False},  # groups take some time at endpoints
        **{"track-local-mem": 1, "endpoint-delay": 0, "local-mem-bw": 0},
        **keys,
    )
    return run(workload, system=given, network={**machine, "npus_count": [workload.ranks]})


def peaks(result: et_sim.Result, plan: Plan) -> list[int]:
    """Return the peaks of the first rank of each stage."""
    places = plan.axes.place("pipeline", np.arange(plan.ranks))
    of_rank = result.peak_memory_bytes
    assert all(len(set(of_rank[places == place].tolist())) == 1 for place in range(plan.pipeline))
    return [int(of_rank[int(np.argmax(places == place))]) for place in range(plan.pipeline)]


def slow(ranks: int) -> dict[str, Any]:
    return network(["Ring"], [ranks], bandwidth=1e-3, latency=1e5)


@pytest.mark.deep
@given(st.sampled_from(SHARED), st.sampled_from(STAGED), st.sampled_from(RECOMPUTED))
def test_on_a_fast_network_every_run_needs_the_planned_memory(
    shared: dict[str, Any], staged: dict[str, Any], recomputed: dict[str, Any]
) -> None:
    check(shared | staged | recomputed)


@pytest.mark.parametrize("place", range(10))
def test_on_a_fast_network_a_run_needs_the_planned_memory(place: int) -> None:
    check(SHARED[place] | STAGED[place % 6] | RECOMPUTED[place % 3])


@pytest.mark.parametrize("how", [{"zero": 3}, {"zero": 2, "pipeline": 2}, {"zero": 1, "recompute": "full"}])
def test_experts_need_the_planned_memory(how: dict[str, Any]) -> None:
    check({"data": 4, "expert": 2, **how}, experts=True)


def check(how: dict[str, Any], *, experts: bool = False) -> None:
    result, workload = figures(*job(how, experts=experts))
    planned = [stage.memory.total for stage in result.stages]
    needed = peaks(tracked(workload, FAST), result.plan)
    if result.plan.zero < 2 or result.plan.pipeline == 1:
        assert needed == planned
        return
    spared = max(stage.memory.temporary for stage in result.stages)
    for least, most in zip(needed, planned, strict=True):  # a stage that waits has reduced its gradients then
        assert most - spared <= least <= most


@pytest.mark.parametrize("how", [{"data": 2, "zero": 1, "pipeline": 2}, {"tensor": 2, "recompute": "full"}])
def test_without_shared_gradients_the_network_changes_no_peak(how: dict[str, Any]) -> None:
    result, workload = figures(*job(how))
    planned = [stage.memory.total for stage in result.stages]
    assert peaks(tracked(workload, slow(workload.ranks)), result.plan) == planned


@pytest.mark.parametrize("zero", [2, 3])
@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_slow_network_adds_at_most_waiting_gradients(zero: int, prefetch: int) -> None:
    model, plan = job({"data": 4, "zero": zero, "prefetch": prefetch, "bucket": 10_000})
    result, workload = figures(model, plan)
    (planned,) = (stage.memory.total for stage in result.stages)
    (needed,) = peaks(tracked(workload, slow(4)), plan)
    layers = ModelLayers(model, plan)
    weights = model.layers * layers.dense_weights(0) + layers.embedding_weights + layers.head_weights
    gathered = (prefetch + 1) * max(layers.dense_weights(0), layers.head_weights) * plan.value_bytes
    assert planned - (gathered if zero == 3 else 0) <= needed <= planned + weights * plan.gradient_bytes


def test_shared_weights_are_there_a_window_at_a_time() -> None:
    """Count the backward pass, with gradients of a layer, and of the previous one unless all wait."""
    held = {}
    for prefetch in (0, 1, 2):
        model, plan = job({"data": 4, "zero": 3, "prefetch": prefetch}, vocabulary=8, layers=8)
        held[prefetch] = figures(model, plan)[0].stages[0].memory.temporary
    layer = ModelLayers(model, plan).dense_weights(0) * plan.value_bytes
    assert [held[count] // layer for count in (0, 1, 2)] == [2, 4, 5]
    assert held[2] - held[1] == layer


def test_postponed_gradients_keep_recomputed_activations() -> None:
    """Compare the first stage of zero-bubble, which postpones none, with the last one."""
    result, _ = figures(*job({"pipeline": 4, "schedule": "zero-bubble", "recompute": "full"}, vocabulary=4))
    again = [stage.memory.temporary for stage in result.stages]
    assert again[3] > again[0] > 0


@given(st.sampled_from(SHARED), st.sampled_from(STAGED))
def test_few_nodes_name_tensors_and_all_list_them(shared: dict[str, Any], staged: dict[str, Any]) -> None:
    workload = make_training(*job(shared | staged))
    assert remark_on_unannotated(workload) == ""
    for trace in workload.templates:
        uses = tensor_uses(trace, "job")
        assert all(class_of(uses.names[number]) < 5 for number in np.unique(uses.tensor).tolist())
        is_optimizer = np.array([name.endswith("optimizer") for name in trace.names])[trace.name]
        counts = np.bincount(uses.row, minlength=len(trace))
        assert counts[(trace.kind == NodeKind.COMP) & ~is_optimizer].max() <= 4
        assert counts.sum() < len(trace)


@pytest.mark.deep
def test_a_job_that_does_not_fit_runs_out_of_memory_at_the_planned_bytes() -> None:
    outcome, workload = figures(*job({"data": 2}))
    (planned,) = (stage.memory.total for stage in outcome.stages)
    assert tracked(workload, FAST, **{"local-mem-capacity": planned}).is_complete
    result = tracked(workload, FAST, **{"local-mem-capacity": planned - 1})
    summary = result.summary()
    assert summary["status"] == "out of memory"
    assert summary["out_of_memory"]["alive_bytes"] == planned
    assert summary["out_of_memory"]["by_class"] == {
        name: size
        for name in ("weights", "gradients", "optimizer", "activations", "temporary")
        if (size := getattr(outcome.stages[0].memory, name))
    }


def test_programs_that_name_tensors_somewhere_name_none_elsewhere() -> None:
    def step(rank: Rank) -> None:
        rank.compute("reads", micros=1, inputs={"weights:all": 8})
        rank.compute("reads nothing", micros=1)

    workload = make_workload(Axes(data=2), step)
    assert remark_on_unannotated(workload) == ""
    silent = make_workload(Axes(data=2), lambda rank: rank.compute("says nothing", micros=1))
    assert "no node names tensors" in remark_on_unannotated(silent)


def test_images_keep_outputs_and_inputs_of_norms() -> None:
    """Expect 11.1 million outputs of ResNet-50's convolutions (Radosavovic et al., 2020, table 2)."""
    _, network = read_network("resnet50")
    layers = layers_of(network, Plan(batch=1, value_bytes=1))
    convolutions = {layer.name for layer in network.layers if isinstance(layer, Convolution)}
    image = network.layers[0].image ** 2 * network.layers[0].channels
    left = sum(layer.left_bytes for layer in layers if layer.name in convolutions) - image
    assert left / 2 == pytest.approx(11.1e6, rel=0.005)


@pytest.mark.parametrize("zero", [0, 1, 2])
@pytest.mark.parametrize("kind", ["cnn", "dlrm"])
def test_replicas_need_the_planned_memory(kind: str, zero: int) -> None:
    plan = Plan(data=4, zero=zero, batch=4, micro_batches=2, bucket=1 << 20, tflops=1e-3)
    if kind == "cnn":
        workload = make_convolution_training(read_network("vgg16")[1], plan)
    else:
        model = changed(read_dlrm("mlperf")[1], {"tables": 4})
        workload = make_dlrm_training(model, plan)
    planned = figures_of_replicas(workload, plan, "", 0, 0, "").stages[0].memory.total
    assert tracked(workload, FAST).peak_memory_bytes.tolist() == [planned] * 4
    assert remark_on_unannotated(workload) == ""
