"""Constants of kinds of kernels: the entry that applies to a kernel, and its effects."""

from __future__ import annotations

from typing import Any

import pytest
from test_device import ns, system

from et_sim.basics.errors import EtSimError
from et_sim.compute.registry import compute_model
from et_sim.machine.accuracy import KERNELS, Accuracy
from et_sim.machine.readers import read_system_alone
from et_sim.trace import TraceBuilder, shapes

PRODUCT = shapes.gemm(4096, 4096, 4096)
OPERATIONS = 2 * 4096**3
PEAKS = {"bf16": 100, "fp8": 200, "fp32": 10}


def device(**changes: Any) -> dict[str, Any]:
    return system(peaks=PEAKS, **changes)


def test_an_entry_of_operation_and_datatype_overrides_one_of_the_operation() -> None:
    kinds = {"gemm": {"launch-overhead": "3us"}, "gemm fp8": {"launch-overhead": "5us", "efficiency": 0.5}}
    machine = device(kinds=kinds, **{"launch-overhead": "1us"})
    assert ns({"layer_shape": PRODUCT, "dtype": "bf16"}, machine) == 3000 + OPERATIONS // 100_000
    assert ns({"layer_shape": PRODUCT, "dtype": "fp8"}, machine) == 5000 + OPERATIONS // 100_000
    assert ns({"layer_shape": shapes.softmax(1, 1)}, machine) == 1000


def test_kinds_of_one_family_are_launched_and_cut_as_their_lead_and_keep_their_efficiency() -> None:
    tiles = {"processors": 4, "tiles": [[128, 128, 64]]}
    kinds = {"gemm fp8": {"tiles": [[4096, 4096, 64]], "launch-overhead": "2us", "efficiency": 0.25}}
    machine = device(kinds=kinds, **tiles)
    grouped = {"layer_shape": shapes.grouped_gemm(4096, 4096, [4096])}
    assert ns({**grouped, "dtype": "bf16"}, machine) == OPERATIONS // 100_000
    assert ns({**grouped, "dtype": "fp8"}, machine) == 2000 + 4 * OPERATIONS // 200_000  # one of four works


def test_equal_shapes_of_two_datatypes_in_one_trace_have_each_their_tiles() -> None:
    machine = device(kinds={"gemm fp8": {"tiles": [[4096, 4096, 64]]}}, processors=4, tiles=[[128, 128, 64]])
    build = TraceBuilder()
    for datatype in ("fp8", "bf16", "fp8"):
        build.compute(datatype, layer_shape=PRODUCT, dtype=datatype)
    trace = build.build()
    model = compute_model(read_system_alone(machine))
    times = model.durations(trace, (trace.kind == 4).nonzero()[0], 0).ns.tolist()
    assert times == [4 * OPERATIONS // 200_000, OPERATIONS // 100_000, 4 * OPERATIONS // 200_000]


@pytest.mark.parametrize("width", [64, 128, 256])
def test_exponentials_of_scores_take_the_same_time_at_any_width(width: int) -> None:
    node = {"layer_shape": shapes.attention(1, 8, 1024, 1024, width)}
    scores = 8 * 1024 * 1024
    assert ns(node, device(**{"score-operations": 200})) == (4 * width + 200) * scores // 100_000


@pytest.mark.parametrize("width", [64, 96, 128])
def test_exponentials_beside_products_take_time_only_where_they_are_longer(width: int) -> None:
    node = {"layer_shape": shapes.attention(1, 8, 1024, 1024, width)}
    scores = 8 * 1024 * 1024
    machine = device(**{"exponential-operations": 400, "score-operations": 10})
    assert ns(node, machine) == (max(4 * width, 400) + 10) * scores // 100_000


@pytest.mark.parametrize("datatype", ["fp8", "bf16", "fp32"])
def test_exponentials_beside_products_take_as_long_in_any_datatype(datatype: str) -> None:
    node = {"layer_shape": shapes.attention(1, 8, 1024, 1024, 64), "dtype": datatype}
    machine = device(**{"exponential-operations": 400})
    scores, rate = 8 * 1024 * 1024, PEAKS[datatype] * 1000
    assert ns(node, machine) == max(256 * scores // rate, 400 * scores // 100_000)


def test_exponentials_beside_products_need_a_peak_of_bf16() -> None:
    machine = system(peaks={"fp16": 100}, dtype="fp16", **{"exponential-operations": 400})
    with pytest.raises(EtSimError, match="counts operations in bf16, which has no peak"):
        read_system_alone(machine)


def test_backward_passes_may_have_score_operations_of_their_own() -> None:
    node = {"layer_shape": shapes.attention(1, 8, 1024, 1024, 64, backward=True)}
    machine = device(kinds={"attention_backward": {"score-operations": 300}}, **{"score-operations": 100})
    assert ns(node, machine) == (10 * 64 + 300) * 8 * 1024 * 1024 // 100_000


def test_the_last_tiles_of_causal_attention_see_all_keys() -> None:
    cut = {"processors": 100, "query-tile": 128}
    few = {"layer_shape": shapes.attention(1, 1, 1024, 1024, 128, causal=True)}
    assert ns(few, device(**cut)) == 100 * 128 * 1024 * 4 * 128 // 100_000  # as the last of eight tiles
    many = {"layer_shape": shapes.attention(1, 400, 1024, 1024, 128, causal=True)}
    mean, longest = (1024 + 1) / 2, 1024
    keys = 3200 / 100 * mean + longest - mean
    assert ns(many, device(**cut)) == int(100 * 128 * keys * 4 * 128 / 100_000)


def test_long_causal_attention_is_half_of_all_pairs_and_the_diagonal() -> None:
    rates = []
    machine = device(**{"processors": 100, "query-tile": 128, "query-prologue": 400})
    for tokens in (32768, 131072, 262144):
        node = {"layer_shape": shapes.attention(1, 8, tokens, tokens, 128, causal=True)}
        useful = 8 * tokens * (tokens + 1) / 2 * 4 * 128
        rates.append(useful / ns(node, machine))
    assert rates == sorted(rates)
    assert rates[0] / 100_000 > 0.93
    assert 0.99 < rates[2] / 100_000 < 1


def test_quantising_reads_numbers_twice_and_writes_them_once() -> None:
    node = {"layer_shape": shapes.quantise(4096, 1 << 14), "dtype": "fp8"}
    assert ns(node, device()) == (2 * 2 + 1) * 4096 * (1 << 14) // 1000


@pytest.mark.parametrize(
    ("kinds", "problem"),
    [
        ({"gem": {}}, 'operation "gem" is not known'),
        ({"gemm f8": {}}, "gemm f8"),
        ({"gemm fp8 x": {}}, "gemm fp8 x"),
        ({"gemm": 3}, 'key "gemm" is 3'),
        ({"gemm": {"tile": []}}, "tile"),
        ({"gemm": {"efficiency": 2}}, "efficiency is"),
        ([], "kinds"),
    ],
)
def test_invalid_entries_are_refused(kinds: Any, problem: str) -> None:
    with pytest.raises(EtSimError, match=problem):
        compute_model(read_system_alone(device(kinds=kinds)))


@pytest.mark.parametrize(
    ("figure", "of_bf16", "of_fp8"),
    [("launch overhead", 2.0, 2.0), ("efficiency of gemm", 1.0, 1.0), ("efficiency of softmax", 1.0, 1.0)],
)
def test_a_figure_that_is_multiplied_is_multiplied_in_its_entries_too(
    figure: str, of_bf16: float, of_fp8: float
) -> None:
    kinds = {"gemm fp8": {"launch-overhead": "2us", "efficiency": 0.5}}
    machine = device(kinds=kinds, efficiency={"gemm": 0.5}, **{"launch-overhead": "1us"})
    settings: Any = read_system_alone(machine).compute[0].settings
    scaled = settings.scaled(figure, 2.0)
    if figure not in settings.figures:
        assert scaled is None
        return
    for datatype, multiple in (("bf16", of_bf16), ("fp8", of_fp8)):
        before, after = (one.of_kind("gemm", datatype) for one in (settings, scaled[0]))
        assert after.launch_ns == multiple * before.launch_ns
        doubled = 2.0 if figure == "efficiency of gemm" else 1.0
        assert after.efficiency.of("gemm").peak == doubled * before.efficiency.of("gemm").peak


def test_errors_of_a_datatype_override_those_of_the_operation() -> None:
    system_of = read_system_alone(
        system() | {"accuracy": {"gemm": {"random": 0.1}, "gemm fp8": {"random": 0.2}, "small_gemm": {}}}
    )
    accuracy = system_of.accuracy
    assert isinstance(accuracy, Accuracy)
    large, small = "gemm 4096 4096 4096", "gemm 16 4096 4096"
    assert accuracy.of_kernel(large, "bf16") == "gemm"
    assert accuracy.of_kernel(large, "fp8") == "gemm fp8"
    assert accuracy.of_kernel(small, "fp8") == "gemm fp8"
    assert accuracy.of_kernel(small, "bf16") == "small_gemm"
    assert accuracy.of_kernel("softmax 16 16", "fp8") == KERNELS
    assert accuracy.terms["gemm fp8"].random == 0.2
