"""A device with roofs: closed forms, bounds of a kernel, and monotonicity."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_compute_model import NETWORK, RANKS
from test_compute_model import SYSTEM as COMMON

from et_sim import TraceBuilder, Workload, simulate
from et_sim.basics.errors import EtSimError
from et_sim.compute.registry import compute_model
from et_sim.machine.datatypes import BITS
from et_sim.machine.readers import read_system_alone
from et_sim.trace import Trace, shapes

DEVICE: dict[str, Any] = {
    "model": "roofline",
    "peaks": {"bf16": 100, "fp32": 10},
    "dtype": "bf16",
    "memory": [
        {"name": "HBM", "bandwidth": 1000, "capacity": "80GB"},
        {"name": "L2", "bandwidth": "4TB/s", "capacity": "32MB"},
    ],
}


def system(**changes: Any) -> dict[str, Any]:
    return {**COMMON, "compute": {**DEVICE, **changes}}


def program(*nodes: dict[str, Any]) -> Trace:
    build = TraceBuilder()
    for number, node in enumerate(nodes):
        build.compute(f"k{number}", **node)
    return build.build()


def rows(trace: Trace, given_system: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    workload = Workload.of([trace] * RANKS)
    result = simulate(workload, system=given_system, network=NETWORK, **options).timeline.to_pylist()
    return [{**row, "ns": row["end_ns"] - row["start_ns"]} for row in result if row["actor"] == 0]


def ns(node: dict[str, Any], given_system: dict[str, Any]) -> int:
    trace = program(node)
    model = compute_model(read_system_alone(given_system))
    return int(model.durations(trace, (trace.kind == 4).nonzero()[0], 0).ns[0])


GEMM = {"layer_shape": shapes.gemm(8192, 8192, 8192)}
COPY = {"layer_shape": shapes.elementwise(10**9)}


STRIDED = {"layer_shape": shapes.elementwise(10**9, kernel="strided")}


@pytest.mark.parametrize("bandwidth", [100, 4000])
def test_a_strided_kernel_takes_its_traffic_or_25_instructions_a_number(bandwidth: int) -> None:
    """Expect two accesses of two bytes an element, and two operations in fp32 an instruction."""
    memory = [{"name": "HBM", "bandwidth": bandwidth, "capacity": "80GB"}]
    device = system(memory=memory)
    traffic, places = 4 * 10**9 // bandwidth, 2 * 10**9 * 25 * 2 // 10_000
    assert ns(STRIDED, device) == max(traffic, places)
    assert ns(COPY, device) == traffic
    assert ns(STRIDED, system(memory=memory, peaks={"bf16": 100})) == traffic


def test_the_places_of_numbers_bound_strided_kernels_by_name() -> None:
    slow = [{"name": "HBM", "bandwidth": 100, "capacity": "80GB"}]
    (fast,), (by_memory,) = rows(program(STRIDED), system()), rows(program(STRIDED), system(memory=slow))
    assert (fast["bound"], by_memory["bound"]) == ("places", "HBM")


def test_a_product_takes_its_operations_over_the_peak_of_its_datatype() -> None:
    assert ns(GEMM, system()) == 2 * 8192**3 // 100_000
    assert ns({**GEMM, "dtype": "c10::Float"}, system()) == 2 * 8192**3 // 10_000


def test_memory_bound_kernels_take_their_bytes_over_the_bandwidth() -> None:
    assert ns(COPY, system()) == 2 * 10**9 * 2 // 1000


def test_a_kernel_whose_bytes_fit_a_level_is_served_by_it() -> None:
    fits, does_not = ({"num_ops": 1, "tensor_bytes": size} for size in (32 * 10**6, 32 * 10**6 + 4000))
    assert (ns(fits, system()), ns(does_not, system())) == (8000, 32004)


def test_every_kernel_pays_its_launch() -> None:
    assert ns(GEMM, system(**{"launch-overhead": "3us"})) == 3000 + 2 * 8192**3 // 100_000
    assert ns({"num_ops": 0, "tensor_bytes": 0}, system(**{"launch-overhead": "3us"})) == 3000


def test_figures_of_the_trace_override_those_of_the_shape() -> None:
    assert ns({**GEMM, "num_ops": 10**9, "tensor_bytes": 0}, system()) == 10**9 // 100_000


def test_products_take_whole_waves_of_the_best_tile() -> None:
    tiled = {"processors": 10, "tiles": [[128, 128, 32], [64, 64, 32]]}
    shape = {"layer_shape": shapes.gemm(128 * 11, 128, 64)}  # 11 tiles: two waves; of small ones 44: five
    waves = 10 * 2 * 128 * 128 * 64 * 2, 10 * 2 * 64 * 64 * 64 * 5
    assert ns(shape, system(**tiled)) == math.floor(min(waves) / 100_000)
    exact = {"layer_shape": shapes.gemm(128 * 20, 128, 6400)}
    assert ns(exact, system(**tiled)) == ns(exact, system())


def test_a_tile_has_a_prologue_and_a_part_of_the_peak() -> None:
    tiled = {"processors": 10, "tiles": [[128, 128, 32, 0.5]], "prologue": 1.5}
    shape = {"layer_shape": shapes.gemm(128 * 11, 128, 50)}  # two waves of two steps
    assert ns(shape, system(**tiled)) == math.floor(10 * 2 * 128 * 128 * 32 * (2 + 1.5) / 0.5 * 2 / 100_000)


def test_a_product_of_few_tiles_is_split_where_that_pays() -> None:
    tiled: dict[str, Any] = {"processors": 10, "tiles": [[128, 128, 32]], "split-k": 8, "split-time": "10us"}
    tiled["memory"] = [{"name": "HBM", "bandwidth": 10**6}]
    deep = {"layer_shape": shapes.gemm(128, 128, 32 * 8000)}  # one tile
    one_wave = 10 * 2 * 128 * 128 * 32 / 100_000
    assert ns(deep, system(**tiled)) == math.floor(one_wave * 1000 + 10_000)
    assert ns(deep, system(**{**tiled, "split-k": 3})) == math.floor(one_wave * 4000 + 10_000)
    assert ns(deep, system(**{**tiled, "split-time": "1s"})) == math.floor(one_wave * 8000)
    shallow = {"layer_shape": shapes.gemm(128, 128, 32 * 7)}  # halves would have less than four steps
    assert ns(shallow, system(**tiled)) == math.floor(one_wave * 7)
    bound = {"memory": [{"name": "HBM", "bandwidth": 1}]}
    assert ns(deep, system(**{**tiled, **bound})) == ns(deep, system(**bound))


@pytest.mark.parametrize("queries", [128, 200, 1000])
def test_attention_takes_whole_waves_of_tiles_of_queries(queries: int) -> None:
    tiled: dict[str, Any] = {"processors": 10, "query-tile": 128, "query-prologue": 64}
    node = {"layer_shape": shapes.attention(3, 4, queries, 2000, 64)}
    waves = -(-12 * -(-queries // 128) // 10)
    bound = {"memory": [{"name": "HBM", "bandwidth": 10**6}]}
    assert ns(node, system(**tiled, **bound)) == waves * 10 * 128 * 4 * 64 * (2000 + 64) // 100_000
    few = {"layer_shape": shapes.attention(3, 4, 127, 2000, 64)}
    assert ns(few, system(**tiled, **bound)) == ns(few, system(**bound))


@pytest.mark.parametrize(("backward", "part"), [(False, 0.5), (True, 0.25)])
def test_a_kernel_of_attention_reaches_a_part_of_the_rate_of_the_best(backward: bool, part: float) -> None:
    kernels = {"flash-2": {"forward": 0.5, "backward": 0.25}}
    times = [
        ns(
            {"layer_shape": shapes.attention(1, 64, 8192, 8192, 128, backward=backward, kernel=kernel)},
            system(**{"attention-kernels": kernels}),
        )
        for kernel in ("", "flash-3", "flash-2")
    ]
    assert times[0] == times[1]
    assert times[2] == pytest.approx(times[0] / part, abs=1)


@pytest.mark.parametrize("cut", [{"tiles": [[64, 64, 32]]}, {"query-tile": 32}, {"row-tile": 8}])
def test_a_kind_is_cut_into_tiles_only_on_a_device_with_processors(cut: dict[str, Any]) -> None:
    kinds = {"kinds": {"attention": cut}}
    assert ns(GEMM, system(**kinds, processors=100)) == ns(GEMM, system())
    with pytest.raises(EtSimError, match='cuts "attention" into tiles, and the device has no "processors"'):
        ns(GEMM, system(**kinds))


def test_a_part_of_the_best_rate_is_above_0_and_at_most_1() -> None:
    for part in (0, 1.5):
        kernels = {"flash-2": {"forward": part}}
        with pytest.raises(EtSimError, match=r'"flash-2".*key "forward" is .*allowed: a number > 0 and <= 1'):
            ns(GEMM, system(**{"attention-kernels": kernels}))
    with pytest.raises(EtSimError, match=r'names "flash"'):
        ns(GEMM, system(**{"attention-kernels": {"flash": {}}}))


def test_efficiency_is_a_number_a_curve_or_measured(tmp_path: Path) -> None:
    plain, operations = 2 * 8192**3 / 100_000, 2 * 8192**3
    assert ns(GEMM, system(efficiency=0.5)) == math.floor(plain / 0.5)
    half = {"gemm": {"peak": 0.8, "half": operations}}
    assert ns(GEMM, system(efficiency=half)) == math.floor(plain / 0.4)
    table = tmp_path / "measured.csv"
    table.write_text(f"operation,size,efficiency\ngemm,{operations // 4},0.2\ngemm,{operations * 4},0.6\n")
    result = ns(GEMM, system(efficiency={"table": str(table)}))
    assert result == pytest.approx(plain / 0.4, abs=1)  # half way in the logarithm
    assert ns(COPY, system(efficiency={"table": str(table)})) == ns(COPY, system())


def test_a_row_has_its_model_and_its_bound() -> None:
    tiled = {"processors": 100, "tiles": [[128, 128, 32]], "launch-overhead": "2us", "label": "H1"}
    tiny, one_tile = shapes.gemm(8, 8, 8), shapes.gemm(128, 128, 10**6)
    trace = program(GEMM, COPY, {"layer_shape": tiny}, {"layer_shape": one_tile}, {"micros": 4})
    outcome = rows(trace, system(**tiled))
    assert [row["bound"] for row in outcome] == ["compute", "HBM", "launch", "tiles", None]
    assert [row["timed_by"] for row in outcome] == ["H1"] * 4 + ["replay"]
    first = outcome[0]
    assert (first["peak"], first["level"]) == ("peak of bf16", "bandwidth of HBM")
    assert first["ns"] == int(first["launch_ns"] + max(first["arithmetic_ns"], first["traffic_ns"]))
    result = simulate(Workload.of([trace] * RANKS), system=system(**tiled), network=NETWORK)
    assert result.summary()["coverage"]["timed_by"] == {"H1": 4 * RANKS}


sides = st.integers(1, 3000)


@given(sides, sides, sides, st.sampled_from(["peak", "bandwidth", "launch", "efficiency"]), st.booleans())
def test_no_kernel_gets_slower_on_a_better_device(
    rows: int, columns: int, inner: int, what: str, tiled: bool
) -> None:
    base: dict[str, Any] = {"launch-overhead": 2000, "efficiency": {"gemm": {"peak": 0.5, "half": 1e8}}}
    base |= {"processors": 16, "tiles": [[64, 128, 32], [128, 128, 64]]} if tiled else {}
    more = {
        "peak": {"peaks": {"bf16": 130}},
        "bandwidth": {"memory": [{"name": "HBM", "bandwidth": 1300}]},
        "launch": {"launch-overhead": 1000},
        "efficiency": {"efficiency": {"gemm": {"peak": 0.7, "half": 1e8}}},
    }[what]
    plain = {"memory": [{"name": "HBM", "bandwidth": 1000}]}
    node = {"layer_shape": shapes.gemm(rows, columns, inner)}
    assert ns(node, system(**{**base, **plain, **more})) <= ns(node, system(**{**base, **plain}))


BAD: list[tuple[dict[str, Any], str]] = [
    ({"peaks": {"bf61": 1}}, "datatype \"bf61\" is not known (did you mean 'bf16'?"),
    ({"peaks": {"bf16": 0}}, 'key "bf16" is 0 (allowed: a number > 0'),
    ({"dtype": "fp64"}, 'key "dtype" is "fp64", which has no peak'),
    ({"efficiency": 1.5}, 'key "efficiency" is 1.5'),
    ({"efficiency": {"gem": 0.5}}, "did you mean 'gemm' or 'gemm_blocks'?"),
    ({"efficiency": {"half": 0}}, 'key "half" is 0'),
    ({"tiles": [[0, 1, 1]], "processors": 4}, 'key "tiles" is [[0, 1, 1]]'),
    ({"tiles": [[8, 8, 8]]}, 'key "tiles" has no effect without "processors"'),
    ({"tiles": [[8, 8, 8, 1.5]], "processors": 4}, 'key "tiles" is [[8, 8, 8, 1.5]]'),
    ({"split-time": 5}, 'key "split-time" has no effect without "split-k"'),
    ({"memory": [{"name": "A", "bandwidth": 1}, {"name": "B", "bandwidth": 1}]}, "is not smaller than"),
    ({"model": "rooflin"}, "did you mean 'roofline'?"),
    ({"pekas": {}}, "did you mean 'peaks'?"),
]


@pytest.mark.parametrize(("changes", "sentence"), BAD)
def test_an_invalid_device_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EtSimError) as error:
        rows(program(GEMM), system(**changes))
    assert sentence in str(error.value)
    assert '<system>: "compute"' in str(error.value)


def test_a_table_with_one_point_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "one.csv"
    table.write_text("size,efficiency\n1000,0.5\n")
    with pytest.raises(EtSimError, match=r"one\.csv: the table has only one size"):
        rows(program(GEMM), system(efficiency={"table": str(table)}))
    table.write_text("size,efficiency\n1000,0.5\n2000,x\n")
    with pytest.raises(EtSimError, match=r"one\.csv: line 3: column 'efficiency' is 'x'"):
        rows(program(GEMM), system(efficiency={"table": str(table)}))


def test_nodes_of_unknown_datatypes_are_refused() -> None:
    for dtype, sentence in (("bf61", "did you mean 'bf16'?"), ("fp8", "gives no peak")):
        with pytest.raises(EtSimError) as error:
            rows(program({**GEMM, "dtype": dtype}), system())
        assert sentence in str(error.value)
        assert 'node 0 "k0"' in str(error.value)
    with pytest.raises(EtSimError, match='node 1 "k1"'):
        rows(program(GEMM, {**GEMM, "dtype": "bf61"}), system())
    with pytest.raises(EtSimError, match='node 1 "k1"'):
        rows(program({**GEMM, "dtype": next(iter(BITS))}, {**GEMM, "dtype": "bf61"}), system())
    without = {key: value for key, value in DEVICE.items() if key != "dtype"}
    with pytest.raises(EtSimError, match="has no dtype"):
        rows(program(GEMM), {**COMMON, "compute": without})


def test_a_node_of_several_kernels_pays_for_each_launch() -> None:
    of = system(**{"launch-overhead": 1000})
    one, three, none = ({**COPY, "attributes": {"launches": count}} for count in (1, 3, 0))
    assert ns(one, of) == ns(COPY, of)
    assert ns(three, of) - ns(one, of) == 2000
    assert ns(one, of) - ns(none, of) == 1000


def test_cold_kernels_are_served_by_the_largest_level() -> None:
    warm = {"num_ops": 0, "tensor_bytes": 1 << 20}
    assert ns({**warm, "attributes": {"cold": 0}}, system()) == ns(warm, system()) == (1 << 20) // 4000
    assert ns({**warm, "attributes": {"cold": 1}}, system()) == (1 << 20) // 1000


@pytest.mark.parametrize("shape", [shapes.gemm, shapes.grouped_gemm])
def test_a_product_with_full_sums_reaches_a_part_of_its_rate_and_draws_no_less(shape: Any) -> None:
    sizes = (8192, 8192, 8192) if shape is shapes.gemm else (8192, 8192, [8192])
    plain, full = ({"layer_shape": shape(*sizes, kernel=kernel)} for kernel in ("", "full-sums"))
    alone = ns(plain, system())
    assert ns(full, system()) == alone
    assert ns(full, system(**{"full-sums": 0.8})) == pytest.approx(alone / 0.8, rel=1e-6)
    assert ns(plain, system(**{"full-sums": 0.8})) == alone
    draws = {"power": {"idle": "10W", "operation": {"bf16": 2.0}}, "power-cap": "110W", "full-sums": 0.8}
    assert ns(full, system(**draws)) == pytest.approx(ns(plain, system(**draws)) / 0.8, rel=1e-4)


def test_a_count_follows_full_sums() -> None:
    several = {"layer_shape": shapes.gemm(8192, 8192, 8192, count=3, kernel="full-sums")}
    assert several["layer_shape"] == "gemm 8192 8192 8192 full-sums x 3"
    assert ns(several, system()) == 3 * ns(GEMM, system())


@pytest.mark.parametrize("part", [0, 1.1, "half"])
def test_a_part_of_the_rate_is_above_0_and_at_most_1(part: Any) -> None:
    with pytest.raises(EtSimError, match='"full-sums" is'):
        ns(GEMM, system(**{"full-sums": part}))


def test_other_operations_have_no_full_sums() -> None:
    with pytest.raises(EtSimError, match="has the size full-sums"):
        ns({"layer_shape": "conv 8 8 3 3 4 4 1 full-sums"}, system())
