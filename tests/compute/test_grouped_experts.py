"""Grouped products of experts with the constants of inference engines, and the rows that measured them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_device import ns as ns_of
from test_device import system

from et_sim.basics.kernel_names import BLOCK_SCALES, NARROW_WEIGHTS
from et_sim.compute.operations import read_shape
from et_sim.compute.registry import at_full_clock, compute_model
from et_sim.machine.engine_kernels import with_engine_kernels
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_system_alone
from et_sim.trace import TraceBuilder, shapes
from et_sim.validation.engine_rows import loads_of_rank
from et_sim.validation.predictions import predictions
from et_sim.validation.row import KernelRow
from et_sim.validation.rows import measured_rows

SMS, MEMORY, PEAK = 132, 4800, 989.4e3  # GB/s, and operations in a ns with bf16


def ns(shape: str, dtype: str = "bf16", engine: str = "trtllm", size: int | None = None) -> int:
    system = at_full_clock(read_system_alone(preset("h200-dgx").system))
    model = compute_model(with_engine_kernels(system, engine) if engine else system)
    trace = TraceBuilder()
    trace.compute("kernel", layer_shape=shape, dtype=dtype, tensor_bytes=size)
    return int(model.durations(trace.build(), np.arange(1), 0).ns[0])


@pytest.mark.parametrize(
    ("engine", "dtype", "kernel", "launch", "prologue", "rate"),
    [
        ("trtllm", "bf16", "", 12_900, 9.1, 1),
        ("trtllm", "fp8", "", 13_100, 22.1, 2),
        ("trtllm", "fp8", BLOCK_SCALES, 10_800, 62.9, 2),
        ("sglang", "fp8", BLOCK_SCALES, 12_900, 9.1, 2),
    ],
)
def test_experts_read_their_weights_and_compute_whole_tiles_of_rows(
    engine: str, dtype: str, kernel: str, launch: int, prologue: float, rate: int
) -> None:
    rows, columns, inner = (1, 16, 17, 100), 4096, 7168
    tiles = (1 + 1 + 2 + 7) * (columns // 128)
    waves = -(-tiles // SMS) * SMS
    peak = PEAK if rate == 1 else 1978.9e3
    arithmetic = waves * 2 * 16 * 128 * 128 * (inner // 128 + prologue) / (peak * 0.97)
    elements = 4 * columns * inner + sum(rows) * (columns + inner)
    traffic = elements * 2 / rate / (MEMORY * 0.97)
    shape = shapes.grouped_gemm(columns, inner, rows, kernel=kernel)
    assert abs(ns(shape, dtype, engine) - (launch + arithmetic + traffic)) <= 1


def test_weights_in_4_bits_have_constants_of_their_own_and_bytes_of_the_node() -> None:
    plain, narrow = (
        shapes.grouped_gemm(5760, 2880, [8] * 32, kernel=kernel) for kernel in ("", NARROW_WEIGHTS)
    )
    size = 32 * 5760 * 2880 * 17 // 32 + 2 * 256 * (5760 + 2880)
    arithmetic = 11 * SMS * 2 * 16 * 128 * 128 * (23 + 11.5) / (PEAK * 0.334)  # 1,440 tiles
    assert abs(ns(narrow, size=size) - (51_600 + max(arithmetic, size / (MEMORY * 0.735)))) <= 1
    assert ns(narrow, engine="vllm", size=size) == ns(plain, engine="vllm", size=size)


def test_arithmetic_that_does_not_hide_traffic_is_added() -> None:
    node, memory = {"num_ops": 2_000_000, "tensor_bytes": 3_000_000}, [{"name": "HBM", "bandwidth": 1}]
    times = [
        ns_of(node, system(peaks={"bf16": 1}, memory=memory, **{"unhidden-part": unhidden}))
        for unhidden in (0, 0.5, 1)
    ]
    assert times[1] - times[0] == times[2] - times[1] == 1000
    assert times[2] == 2000 + 3_000_000


@given(
    rows=st.lists(st.integers(1, 3000), min_size=1, max_size=64),
    columns=st.sampled_from([128, 1536, 7168]),
    inner=st.sampled_from([48, 128, 4096]),
    kernel=st.sampled_from(["", BLOCK_SCALES, NARROW_WEIGHTS]),
    dtype=st.sampled_from(["bf16", "fp8"]),
)
def test_no_experts_beat_memory_or_peak(
    rows: list[int], columns: int, inner: int, kernel: str, dtype: str
) -> None:
    shape = shapes.grouped_gemm(columns, inner, rows, kernel=kernel)
    operation = read_shape(shape, "").operation
    bits, peak = (16, PEAK) if dtype == "bf16" else (8, 1978.9e3)
    assert ns(shape, dtype) > max(operation.bytes(bits) / MEMORY, operation.operations / peak)


@given(
    tokens=st.integers(1, 5000),
    chosen=st.integers(1, 8),
    ranks=st.sampled_from([1, 2, 8, 64]),
    loads=st.sampled_from(["balanced", "power_law_1.01", "power_law_1.2"]),
)
def test_loads_of_a_rank_are_those_of_its_share_of_the_choices(
    tokens: int, chosen: int, ranks: int, loads: str
) -> None:
    rows = loads_of_rank(tokens, chosen, 128, ranks, loads)
    assert 1 <= len(rows) <= 128 // ranks
    assert all(1 <= row <= max(tokens, math.ceil(tokens * chosen / 128)) for row in rows)
    if loads == "balanced":
        assert max(rows) == min(rows)
        assert abs(sum(rows) - tokens * chosen / ranks) <= max(len(rows), chosen)
    elif ranks == 1:
        assert sum(rows) <= tokens * chosen
        assert sum(rows) >= 0.6 * tokens * chosen  # no expert has more than all tokens
    else:
        assert sum(rows) >= tokens * chosen / ranks - 1 or max(rows) == tokens


# us on H200; experts on 2 and 8 ranks, which the constants were not fitted to (docs/compute.md)
ROWS = {
    "moe 512 4096 1536 8 128 2 8 bfloat16 balanced cutlass": 115.9,
    "moe 4096 4096 1536 8 128 4 8 fp8 balanced cutlass": 132.4,
    "moe 320 7168 2048 8 256 1 8 fp8_block balanced cutlass": 382.1,
    "moe 12288 7168 2048 8 384 4 8 fp8_block balanced cutlass": 1136.0,
    "moe 2048 7168 2048 8 256 8 8 fp8_block balanced cutlass": 220.3,
}


def test_experts_left_out_of_the_fit_are_within_a_fifth(tmp_path: Path) -> None:
    file = tmp_path / "experts.csv"
    file.write_text("".join(["table,shape,us\n", *(f"t,{shape},{us}\n" for shape, us in ROWS.items())]))
    file.with_suffix(".json").write_text('{"t": {"gpu": "H200", "software": "TensorRT-LLM 1.3.0rc20"}}')
    found = list(predictions(measured_rows(file)))
    ratios = [prediction.ratio for prediction in found]
    assert all(ratio is not None and abs(math.log(ratio)) < math.log(1.2) for ratio in ratios), ratios


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("moe 8 8 8 2 4 1 1 int9 balanced cutlass", "numbers other than"),
        ("moe 8 8 8 2 4 1 1 fp8 zipf cutlass", "the loads are 'zipf'"),
        ("moe 8 8", "lacks sizes"),
    ],
)
def test_rows_that_cannot_be_read_have_a_reason(tmp_path: Path, words: str, why: str) -> None:
    file = tmp_path / "experts.csv"
    file.write_text(f"table,shape,us\nt,{words},3\n")
    row: Any = measured_rows(file)[0]
    assert row.job is None
    assert why in row.why
    file.write_text("table,shape,us\nt,moe 8 64 64 2 4 1 1 fp8 balanced cutlass,3\n")
    assert isinstance(measured_rows(file)[0].job, KernelRow)
