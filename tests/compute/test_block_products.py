"""Products whose numbers have scales of blocks: their kinds, and the rates that they are fitted to."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

import et_sim
from et_sim.basics.kernel_names import BLOCK_SCALES
from et_sim.compute.registry import at_full_clock, compute_model
from et_sim.machine.engine_kernels import with_engine_kernels, words_on
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_system_alone
from et_sim.machine.system import System
from et_sim.trace import TraceBuilder, Workload, shapes
from et_sim.trace.workload import MadeFor

SMS, MEMORY, PEAK, LAUNCH = 132, 3350, 1978.9e3, 2430  # GB/s, operations in a ns with fp8, and ns
PART, PROLOGUE, BANDWIDTH = 0.727, 5.856, 0.689


def machine(name: str, engine: str = "", exchange: str = "") -> System:
    system = at_full_clock(read_system_alone(preset(name).system))
    return with_engine_kernels(system, engine, deepgemm=bool(exchange)) if engine else system


def ns(shape: str, system: System, size: int | None = None, dtype: str = "fp8") -> int:
    trace = TraceBuilder()
    trace.compute("product", layer_shape=shape, dtype=dtype, tensor_bytes=size)
    return int(compute_model(system).durations(trace.build(), np.arange(1), 0).ns[0])


@pytest.mark.parametrize(
    ("rows", "columns", "inner"), [(64, 2112, 7168), (8192, 24576, 1536), (200, 128, 130)]
)
def test_a_product_takes_waves_of_tiles_of_64_or_128_rows(rows: int, columns: int, inner: int) -> None:
    steps = math.ceil(inner / 128) + PROLOGUE
    arithmetic = min(
        math.ceil(math.ceil(rows / tile) * math.ceil(columns / 128) / SMS)
        * SMS
        * 2
        * tile
        * 128
        * 128
        * steps
        for tile in (64, 128)
    ) / (PEAK * PART)
    traffic = (rows * inner + inner * columns + rows * columns) / (MEMORY * BANDWIDTH)
    shape = shapes.gemm(rows, columns, inner, kernel=BLOCK_SCALES)
    assert abs(ns(shape, machine("h100-dgx")) - (LAUNCH + max(arithmetic, traffic))) <= 1
    assert ns(shape, machine("h100-dgx")) != ns(shapes.gemm(rows, columns, inner), machine("h100-dgx"))


# TFLOP/s of products of 4,096 rows on H800 (deepseek-ai/DeepGEMM, README of March 2025)
DENSE = [
    (2112, 7168, 1058),
    (24576, 1536, 990),
    (32768, 512, 590),
    (7168, 16384, 1358),
    (4096, 7168, 1304),
    (7168, 2048, 1025),
]


@pytest.mark.parametrize(("columns", "inner", "tflops"), DENSE)
def test_products_of_prompts_reach_the_published_rates(columns: int, inner: int, tflops: float) -> None:
    size = 4096 * inner + inner * columns + 2 * 4096 * columns
    shape = shapes.gemm(4096, columns, inner, kernel=BLOCK_SCALES)
    took = ns(shape, machine("h800-node"), size) - LAUNCH
    assert abs(took * tflops * 1e3 / (2 * 4096 * columns * inner) - 1) < 0.1


@pytest.mark.parametrize(("columns", "inner", "tflops"), [(4096, 7168, 1288), (7168, 2048, 1093)])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_experts_whose_tokens_deepep_brings_reach_the_published_rates(
    columns: int, inner: int, tflops: float, engine: str
) -> None:
    size = 8 * (4096 * inner + inner * columns + 2 * 4096 * columns)
    shape = shapes.grouped_gemm(columns, inner, [4096], count=8, kernel=BLOCK_SCALES)
    took = ns(shape, machine("h800-node", engine, "deepep"), size) - LAUNCH
    assert abs(took * tflops * 1e3 / (2 * 8 * 4096 * columns * inner) - 1) < 0.1
    assert ns(shape, machine("h800-node", engine), size) != took + LAUNCH


def test_deepep_is_that_of_the_machine_or_of_the_workload() -> None:
    known = preset("h100-dgx:8")
    trace = TraceBuilder()
    shape = shapes.grouped_gemm(4096, 7168, [4096], count=8, kernel=BLOCK_SCALES)
    trace.compute("experts", layer_shape=shape, dtype="fp8", tensor_bytes=1)
    workload = Workload.of([trace.build()] * 8)

    def took(exchange: str = "", **of_machine: str) -> int:
        system = {**known.system, "library": {**known.system["library"], **of_machine}}
        software = MadeFor("sglang", engine="sglang", expert_exchange=exchange)
        made = replace(workload, software=software)
        return et_sim.simulate(made, system=system, network=known.network).makespan_ns

    assert took("deepep") == took(**{"expert-exchange": "deepep"}) != took()


def test_padded_experts_have_the_constants_of_deepgemm() -> None:
    trace = TraceBuilder()
    shape = shapes.grouped_gemm(1536, 4096, [128], count=128, kernel=BLOCK_SCALES)
    trace.compute("experts", layer_shape=shape, dtype="fp8", tensor_bytes=1)
    known = preset("h200-dgx:1")

    def took(engine: str, *words: str) -> int:
        made = replace(Workload.of([trace.build()]), software=MadeFor(engine, engine=engine, separate=words))
        return et_sim.simulate(made, system=known.system, network=known.network).makespan_ns

    assert took("vllm", "padded-experts") == ns(shape, machine("h200-dgx"), 1) != took("vllm")
    assert took("trtllm", "padded-experts") == took("trtllm")


@pytest.mark.parametrize(("name", "is_hopper"), [("h100-dgx", True), ("b200-dgx", False)])
def test_experts_are_padded_on_hopper_alone(name: str, is_hopper: bool) -> None:
    words = ("casts", "padded-experts")
    assert words_on(machine(name), words) == (words if is_hopper else ("casts",))
    build, known = TraceBuilder(), preset(f"{name}:1")
    build.compute("experts", layer_shape=shapes.grouped_gemm(1536, 4096, [128], count=8), tensor_bytes=1)
    made = replace(Workload.of([build.build()]), software=MadeFor("vllm", engine="vllm", separate=words))
    result = et_sim.simulate(made, system=known.system, network=known.network)
    warned = [notice["text"] for notice in result.manifest["warnings"] if notice["key"] == "separate"]
    assert warned == [] if is_hopper else "experts have padded rows, as on Hopper" in warned[0]


def test_other_experts_and_engines_keep_the_constants_of_the_engine() -> None:
    for engine, kernel, dtype in (
        ("trtllm", BLOCK_SCALES, "fp8"),
        ("sglang", "", "bf16"),
        ("vllm", "", "fp8"),
    ):
        shape = shapes.grouped_gemm(4096, 7168, [100], count=8, kernel=kernel)
        own, with_deepep = machine("h100-dgx", engine), machine("h100-dgx", engine, "deepep")
        assert ns(shape, own, dtype=dtype) == ns(shape, with_deepep, dtype=dtype)


def test_a_device_without_the_kinds_takes_those_of_products_without_blocks() -> None:
    b200 = machine("b200-dgx")
    for dtype in ("fp8", "fp4"):
        plain = ns(shapes.gemm(512, 4096, 7168), b200, dtype=dtype)
        assert ns(shapes.gemm(512, 4096, 7168, kernel=BLOCK_SCALES), b200, dtype=dtype) == plain
    shape = shapes.grouped_gemm(4096, 7168, [100], count=8, kernel=BLOCK_SCALES)
    assert ns(shape, machine("b200-dgx", "sglang")) == ns(shape, machine("b200-dgx", "sglang", "deepep"))
