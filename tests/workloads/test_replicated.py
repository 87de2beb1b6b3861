"""Convolutional networks and recommendation models: weights, operations and bytes equal closed forms."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.cli import main
from et_sim.trace import CollectiveKind, NodeKind, Trace
from et_sim.trace.preflight import find_problems
from et_sim.workloads import (
    Plan,
    make_convolution_training,
    make_dlrm_training,
    read_dlrm,
    read_network,
)
from et_sim.workloads.convolution import ConvolutionNetwork, layers_of, network_names
from et_sim.workloads.kernels import Kernel
from et_sim.workloads.models import preset_names
from et_sim.workloads.recommendation import PRESETS, Dlrm, changed

PLAN = Plan(data=4, micro_batches=1, batch=2)
IDEAL = {"topology": ["FullyConnected"], "npus_count": [4], "bandwidth": [1e9], "latency": [0]}
SYSTEM = {"endpoint-delay": 0, "profile": "corrected", "all-reduce-implementation": ["direct"]}
SYSTEM |= {"all-to-all-implementation": ["direct"]}


def small_network() -> ConvolutionNetwork:
    """Return a network of the first and last layers of VGG16, and a sum."""
    _, network = read_network("vgg16")
    _, other = read_network("resnet50")
    [total] = [layer for layer in other.layers if layer.name == "layer1.0.add"]
    return ConvolutionNetwork("this test", (*network.layers[:2], total, *network.layers[-2:]))


def small_dlrm() -> Dlrm:
    """Return a model with four tables."""
    return Dlrm("this test", 4, 8, 3, 5, (16,), (32, 16), 2)


def bytes_of(trace: Trace, kind: CollectiveKind) -> int:
    chosen = (trace.kind == NodeKind.COLL) & (trace.comm_type == kind)
    return int(trace.comm_bytes[chosen].sum())


def operations(trace: Trace, *endings: str) -> int:
    fitting = np.array([name.endswith(endings) for name in trace.names], np.bool_)
    return int(trace.num_ops[fitting[trace.name] & (trace.kind == NodeKind.COMP)].sum())


def products(kernels: Sequence[Kernel]) -> int:
    return sum(k.operations for k in kernels if k.shape.startswith(("gemm", "conv")))


@pytest.mark.parametrize(
    ("name", "weights", "billions"),
    [("resnet50", 25_557_032, "4.089"), ("vgg16", 138_357_544, "15.470"), ("vgg19", 143_667_240, "19.632")],
)
def test_networks_have_the_published_weights_and_multiplications(
    name: str, weights: int, billions: str
) -> None:
    """Compare with multiplications and additions of an image on torchvision's pages."""
    layers = layers_of(read_network(name)[1], replace(PLAN, batch=1))
    assert sum(layer.weights for layer in layers) == weights
    assert f"{sum(products(layer.forward) for layer in layers) / 2e9:.3f}" == billions


@pytest.mark.parametrize("name", network_names())
def test_the_backward_pass_has_two_products_for_each_forward_one_but_the_first(name: str) -> None:
    first, *rest = layers_of(read_network(name)[1], PLAN)
    for layer, factor in ((first, 1), *((layer, 2) for layer in rest)):
        forward = products(layer.forward)
        assert products(layer.backward) == factor * forward
        assert bool(forward) == bool(layer.weights)


@pytest.mark.parametrize("bucket", [1, 1 << 20, 10**9])
@pytest.mark.parametrize("zero", [0, 1, 2])
def test_every_gradient_of_a_network_is_reduced_once(bucket: int, zero: int) -> None:
    network = small_network()
    plan = replace(PLAN, bucket=bucket, zero=zero, micro_batches=2)
    weights = sum(layer.weights for layer in layers_of(network, plan))
    workload = make_convolution_training(network, plan)
    [trace] = workload.templates
    assert find_problems(workload) == []
    kind = CollectiveKind.REDUCE_SCATTER if zero else CollectiveKind.ALL_REDUCE
    times = 2 if zero == 2 else 1
    assert bytes_of(trace, kind) == times * weights * plan.gradient_bytes
    if zero:
        counts = [layer.weights for layer in layers_of(network, plan) if layer.weights]
        share = sum(-(-count * plan.value_bytes // 4) for count in counts)
        assert bytes_of(trace, CollectiveKind.ALL_GATHER) == share


def test_a_smaller_bucket_lets_gradients_go_while_earlier_layers_compute() -> None:
    network = small_network()
    machine = {**IDEAL, "bandwidth": [50]}
    spans = [
        et_sim.simulate(
            make_convolution_training(network, replace(PLAN, bucket=bucket)), system=SYSTEM, network=machine
        ).makespan_ns
        for bucket in (1 << 20, 10**9)
    ]
    assert spans[0] < spans[1]


def test_a_systolic_array_times_every_product_of_a_network() -> None:
    network = small_network()
    workload = make_convolution_training(network, replace(PLAN, batch=1))
    array = {
        "model": "systolic",
        "array-height": 64,
        "array-width": 64,
        "dataflow": "ws",
        "where": {"operation": "gemm,conv"},
    }
    array |= {"ifmap-sram-kb": 512, "filter-sram-kb": 512, "ofmap-sram-kb": 256, "clock-ghz": 1.0}
    rows = et_sim.simulate(
        workload, system={**SYSTEM, "compute": [array]}, network=IDEAL
    ).timeline.to_pylist()
    kernels = {row["name"]: row["treatment"] for row in rows if row["kind"] == "compute"}
    for word in ("convolution", "product", "inputs", "weights"):
        assert {how for name, how in kernels.items() if name.endswith(f" {word}")} == {"modelled"}


# Recommendation.


def test_the_models_have_the_published_dimensions() -> None:
    assert preset_names(PRESETS) == ("hoti-2020", "mlperf")
    _, hoti = read_dlrm("hoti-2020")
    assert (len(hoti.bottom_widths), len(hoti.top_widths)) == (5 + 2 + 1, 10 + 2 + 1)
    assert hoti.batch * hoti.tables * hoti.dimension * 2 == 4_194_304  # bytes of its all-to-all
    _, mlperf = read_dlrm("mlperf")
    assert mlperf.interactions == 27 * 26 // 2 + 128 == 479
    assert mlperf.dense_weights == 2_368_897


def test_vectors_go_to_all_ranks_and_their_gradients_back() -> None:
    model, count = small_dlrm(), 3
    workload = make_dlrm_training(model, replace(PLAN, micro_batches=count))
    [trace] = workload.templates
    assert find_problems(workload) == []
    assert bytes_of(trace, CollectiveKind.ALL_TO_ALL) == 2 * count * 2 * 4 * 8 * PLAN.value_bytes
    assert bytes_of(trace, CollectiveKind.ALL_REDUCE) == model.dense_weights * PLAN.gradient_bytes


def test_operations_of_a_recommendation_model_are_those_of_its_products() -> None:
    model = small_dlrm()
    [trace] = make_dlrm_training(model, PLAN).templates
    chains = (model.bottom_widths, model.top_widths)
    forward = sum(2 * PLAN.batch * a * b for chain in chains for a, b in pairwise(chain))
    assert operations(trace, " product") == forward
    first = 2 * PLAN.batch * model.dense_features * model.bottom[0]
    assert operations(trace, " inputs") == forward - first
    assert operations(trace, " weights") == forward
    vectors = 5 * 5 * PLAN.batch * model.dimension * 2
    assert operations(trace, "interaction") == 3 * vectors
    assert operations(trace, "embedding lookup") == PLAN.batch * 4 * 8 * 3


@pytest.mark.deep
def test_vectors_arrive_while_the_bottom_network_computes() -> None:
    """Compare a network that takes no time, where a step is its computation, with slower ones."""
    model = changed(small_dlrm(), {"bottom": (4096, 4096)})
    workload = make_dlrm_training(model, PLAN)
    compute = int(workload.templates[0].duration_us.sum()) * 1000
    spans = {
        bandwidth: et_sim.simulate(
            workload, system=SYSTEM, network={**IDEAL, "bandwidth": [bandwidth]}
        ).makespan_ns
        for bandwidth in (1e9, 1.0)
    }
    assert spans[1e9] == pytest.approx(compute, rel=1e-3)
    rows = et_sim.simulate(
        workload, system=SYSTEM, network={**IDEAL, "bandwidth": [1.0]}
    ).timeline.to_pylist()
    at = {row["name"]: row for row in rows}
    exchange, bottom = at["forward 0 vectors all-to-all"], at["forward 0 bottom 0 product"]
    assert bottom["start_ns"] < exchange["end_ns"] <= at["forward 0 interaction"]["start_ns"]


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 32])
def test_tables_are_whole_or_cut_into_columns(ranks: int) -> None:
    assert make_dlrm_training(small_dlrm(), replace(PLAN, data=ranks)).ranks == ranks


@pytest.mark.parametrize("ranks", [3, 6, 64])
def test_shares_of_tables_that_differ_are_refused(ranks: int) -> None:
    with pytest.raises(UsageError, match="4 tables of dimension 8 cannot be spread evenly"):
        make_dlrm_training(small_dlrm(), replace(PLAN, data=ranks))


# The command.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cnn"], "cnn needs a model (add --model, a JSON file or one of: resnet50, vgg16, vgg19)"),
        (["cnn", "--model", "resnet5"], "there is no model 'resnet5' (did you mean 'resnet50'?)"),
        (["cnn", "--model", "vgg16", "--tp", "2"], "--tp is not for cnn"),
        (["cnn", "--model", "vgg16", "--tables", "2"], "--tables is not for cnn (only dlrm has it)"),
        (["cnn", "--model", "vgg16", "--dp", "2", "--ranks", "4"], "--ranks is 4, and the plan (data 2)"),
        (["cnn", "--model", "vgg16", "--bytes", "4"], "--bytes is not for cnn"),
        (["dlrm", "--zero", "3"], "--zero 3 is not for dlrm"),
        (["dlrm", "--tables", "0"], "`int` >= 1 - at `$.tables`"),
        (["dlrm", "--model", "mlpref"], "there is no model 'mlpref' (did you mean 'mlperf'?)"),
        (["dlrm", "--dp", "3"], "64 tables of dimension 64 cannot be spread evenly over 3 ranks"),
        (["transformer", "--top", "3"], "--top is not for transformer (only dlrm has it)"),
        (["all_reduce", "--ranks", "2", "--bytes", "1", "--pooling", "3"], "--pooling is not for all_reduce"),
        (["cnn", "--model", "odd.json"], "Object contains unknown field `windov` - at `$.layers[0]`"),
        (["cnn", "--model", "empty.json"], "empty.json: has no layers"),
        (["cnn", "--model", "wide.json"], "layer 'a' has a window of 9 on an image of 4"),
    ],
)
def test_invalid_jobs_are_refused_in_one_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    layer = '{"name": "a", "kind": "conv", "image": 4, "channels": 1, "filters": 1, "window": 9%s}'
    for name, layers in (("odd", layer % ', "windov": 1'), ("empty", ""), ("wide", layer % "")):
        Path(f"{name}.json").write_text(f'{{"source": "", "layers": [{layers}]}}')
    assert main(["make", *arguments, "-o", "job"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1


def test_numbers_on_the_command_line_change_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--tables", "8", "--bottom", "32,16", "--batch", "4", "--dp", "2"]
    assert main(["make", "dlrm", *arguments, "-o", str(tmp_path / "job")]) == 0
    assert capsys.readouterr().out.startswith("dlrm hoti-2020, data 2, 4 samples on each rank: ")
