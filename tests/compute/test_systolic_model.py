"""The systolic array as a compute model: kernels by their shapes, in a whole simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_compute_model import NETWORK, RANKS
from test_compute_model import SYSTEM as COMMON

from et_sim import TraceBuilder, Workload, simulate
from et_sim.basics.errors import EtSimError, MachineError, TraceError
from et_sim.compute.systolic.model import layers_of
from et_sim.trace import Trace
from et_sim.trace.encode import encode_trace
from et_sim.trace.wire import decode

ARRAY = {
    "model": "systolic",
    "array-height": 16,
    "array-width": 16,
    "ifmap-sram-kb": 1,
    "filter-sram-kb": 1,
    "ofmap-sram-kb": 1,
    "dataflow": "ws",
    "bandwidth": 10,
}
SYSTEM = {**COMMON, "compute": ARRAY}
PRODUCT, PRODUCT_NS = "gemm 100 100 100", 47592  # a golden case of SCALE-Sim


def program(*shapes: str | None) -> Trace:
    build = TraceBuilder()
    for number, shape in enumerate(shapes):
        build.compute(f"k{number}", layer_shape=shape, micros=0 if shape else 3)
    build.collective("all_reduce", 1 << 10)
    return build.build()


def kernels(trace: Trace, system: dict[str, Any] = SYSTEM, **options: Any) -> list[tuple[Any, ...]]:
    result = simulate(Workload.of([trace] * RANKS), system=system, network=NETWORK, **options)
    rows = result.timeline.to_pylist()
    return [(row["end_ns"] - row["start_ns"], row["treatment"]) for row in rows if row["kind"] == "compute"]


def test_kernels_with_a_shape_take_the_time_of_the_array_and_others_the_recorded_one() -> None:
    result = kernels(program(PRODUCT, None, "conv 7 7 3 3 4 5 1 1"))
    assert result == [(PRODUCT_NS, "modelled"), (3000, "replayed"), (304, "modelled")]


def test_a_faster_clock_takes_less() -> None:
    system = {**SYSTEM, "compute": {**ARRAY, "clock-ghz": 2.0}}
    assert kernels(program(PRODUCT), system) == [(PRODUCT_NS // 2, "modelled")]


def test_without_a_bandwidth_no_line_waits_and_every_word_counts_once() -> None:
    array = {key: value for key, value in ARRAY.items() if key != "bandwidth"}
    result = simulate(
        Workload.of([program(PRODUCT)] * RANKS), system={**COMMON, "compute": array}, network=NETWORK
    )
    row = result.timeline.to_pylist()[0]
    assert row["end_ns"] == 49 * (2 * 16 + 16 + 100 - 2) - 1
    assert row["compute_utilisation"] == pytest.approx(100**3 / (row["end_ns"] * 256))
    assert (row["memory_utilisation"], row["operational_intensity"]) == (0, 2 * 100**3 / (3 * 100**2))
    assert row["memory_bound"] is False


def test_the_bound_of_a_kernel_is_in_the_timeline() -> None:
    result = simulate(Workload.of([program(PRODUCT)] * RANKS), system=SYSTEM, network=NETWORK)
    row = result.timeline.to_pylist()[0]
    assert row["memory_bound"] is True
    assert 0 < row["memory_utilisation"] < 1
    assert row["operational_intensity"] > 0


@pytest.mark.deep
def test_ranks_fold_exactly_when_their_shapes_cost_the_same() -> None:
    other = "gemm 100 100 99"
    traces = [program(PRODUCT), program(PRODUCT), program(other)]
    workload = Workload.of([traces[rank % 3] for rank in range(RANKS)])
    folded = simulate(workload, system=SYSTEM, network=NETWORK)
    single = simulate(workload, system=SYSTEM, network=NETWORK, fold=False)
    assert folded.finish_ns.tolist() == single.finish_ns.tolist()
    alike = Workload.of([traces[rank % 2] for rank in range(RANKS)])
    assert simulate(alike, system=SYSTEM, network=NETWORK).summary()["folded"]["actors"] == 1


def test_ranks_that_use_the_array_differently_are_not_folded_even_with_equal_times() -> None:
    array = {key: value for key, value in ARRAY.items() if key != "bandwidth"}
    traces = [program("gemm 10 10 10"), program("gemm 10 12 10")]
    workload = Workload.of([traces[rank % 2] for rank in range(RANKS)])
    result = simulate(workload, system={**COMMON, "compute": array}, network=NETWORK)
    assert len(set(result.finish_ns.tolist())) == 1
    assert result.summary()["folded"]["actors"] > 1


def test_an_operation_without_products_is_left_to_another_rule() -> None:
    build = TraceBuilder()
    build.compute("k", layer_shape="softmax 4 4")
    with pytest.raises(TraceError, match="not a matrix product or convolution") as error:
        kernels(build.build())
    assert 'let another rule of "compute" time it' in str(error.value.remedy)


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ("gem 1 2 3", "layer_shape is 'gem 1 2 3' (did you mean 'gemm'?"),
        ("gemm 1 2", "layer_shape 'gemm 1 2' has 2 numbers (gemm has 3: gemm M N K [KERNEL])"),
        ("gemm 1 0 2", "layer_shape 'gemm 1 0 2' has the size 0"),
        ("gemm 1 -4 2", "has the size -4"),
        ("conv 3 3 4 1 1 1 1 1", "the filter's height 4 is larger than the ifmap's, 3"),
        ("", "layer_shape is ''"),
    ],
)
def test_an_invalid_shape_is_refused_with_its_node(shape: str, sentence: str) -> None:
    build = TraceBuilder()
    build.compute("k", layer_shape=shape)
    with pytest.raises(EtSimError) as error:
        kernels(build.build())
    assert sentence in str(error.value)
    assert 'node 0 "k"' in str(error.value)


def test_a_kernel_with_neither_shape_nor_time_is_refused() -> None:
    build = TraceBuilder()
    build.compute("k")
    with pytest.raises(TraceError, match="layer_shape"):
        kernels(build.build())


BAD_ARRAYS = [
    ({"clock-ghz": 1e12}, "more than 1000"),
    ({"model": "sistolic"}, 'key "model" is "sistolic"'),
]


@pytest.mark.parametrize(("change", "sentence"), BAD_ARRAYS)
def test_a_bad_array_is_refused(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MachineError) as error:
        kernels(program(PRODUCT), {**SYSTEM, "compute": {**ARRAY, **change}})
    assert sentence in str(error.value)
    assert '"compute"' in str(error.value)


def test_a_system_has_one_model() -> None:
    with pytest.raises(MachineError, match='"compute" and "roofline-enabled" both time kernels'):
        kernels(program(PRODUCT), {**SYSTEM, "roofline-enabled": 1, "peak-perf": 1, "local-mem-bw": 1})


def test_shapes_are_written_and_read_in_any_order_of_nodes() -> None:
    build = TraceBuilder()
    for node_id, shape in ((7, "gemm 1 2 3"), (3, None), (5, "gemm 4 5 6"), (1, "gemm 1 2 3")):
        build.compute("k", layer_shape=shape, node_id=node_id)
    trace = build.build()
    content = encode_trace(trace)
    read = decode(content, "x")
    assert [read.layer_shapes[shape] for shape in read.layer_shape] == [
        *("gemm 1 2 3", "", "gemm 4 5 6", "gemm 1 2 3")
    ]
    assert read.has("layer_shape").tolist() == [True, False, True, True]
    assert encode_trace(read) == content


def test_a_shape_is_a_layer() -> None:
    ((layer, _),) = layers_of("conv 7 7 3 3 192 384 1 1", "")
    assert (layer.rows, layer.columns, layer.inner) == (25, 384, 1728)


def test_roundtrip_through_a_file(tmp_path: Path) -> None:
    from et_sim.trace.files import read_trace, write_trace

    write_trace(program(PRODUCT), tmp_path / "t.0.et")
    assert kernels(read_trace(tmp_path / "t.0.et")) == [(PRODUCT_NS, "modelled")]


def test_a_convolution_may_have_more_output_pixels_than_the_largest_side_of_a_product() -> None:
    ((layer, count),) = layers_of("conv 16000 16000 3 3 64 64 1 1", "k")
    assert (layer.rows, count) == (15998**2, 1)
    with pytest.raises(
        TraceError, match=r"has the size 20,000,000 \(the limit of a systolic array is 16,777,216"
    ):
        layers_of("gemm 20000000 4 4", "k")
