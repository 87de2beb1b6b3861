"""Attention of devices by name against measured kernels of cuDNN (GB200, GB300) and AITER (MI300X, MI355X).

The sources are NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training/results (@df73764adb, and @60e572b7c8
for windows of 128), and ROCm/aiter, op_tests/cpp/mha/README.md@0403bcdfd0. Constants of GB200 and GB300 are
fitted to these and further rows; those of MI300X and MI355X to rows of 32 heads, and here are rows of 64.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from et_sim import TraceBuilder
from et_sim.compute import compute_model
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_system_alone
from et_sim.trace import shapes

FULL = 0
# machine, sequences, heads, heads of keys, tokens, widths, window (0: causal), ms forward and backward
CUDNN = [
    ("gb200-nvl72", 1, 64, 8, 16384, 128, 128, FULL, 2.606, 7.845),
    ("gb200-nvl72", 1, 64, 8, 8192, 128, 128, FULL, 0.688, 2.097),
    ("gb200-nvl72", 1, 64, 8, 4096, 128, 128, FULL, 0.206, 0.607),
    ("gb200-nvl72", 1, 128, 128, 8192, 192, 128, FULL, 1.800, None),
    ("gb200-nvl72", 2, 64, 8, 8192, 64, 64, 1024, 0.423, 0.998),
    ("gb200-nvl72", 2, 64, 8, 4096, 64, 64, 1024, 0.209, 0.487),
    ("gb200-nvl72", 2, 128, 128, 8192, 64, 64, 128, 0.414, 0.911),
    ("gb200-nvl72", 2, 128, 128, 4096, 64, 64, 128, 0.210, 0.465),
    ("gb300-nvl72", 1, 64, 8, 8192, 128, 128, FULL, 0.583, 1.985),
    ("gb300-nvl72", 1, 128, 128, 8192, 192, 128, FULL, 1.548, None),
    ("gb300-nvl72", 2, 64, 8, 8192, 64, 64, 1024, 0.359, 0.965),
    ("gb300-nvl72", 2, 128, 128, 8192, 64, 64, 128, 0.397, 0.862),
]
# machine, sequences, heads of keys (of 64), tokens, causal, TFLOP/s forward and backward
AITER = [
    ("mi300x-node", 1, 8, 8192, False, 591.37, 473.0),
    ("mi300x-node", 4, 8, 4096, True, 513.79, 449.0),
    ("mi300x-node", 8, 4, 8192, True, 552.78, 473.41),
    ("mi355x-node", 1, 8, 8192, False, 1412.91, 1159.28),
    ("mi355x-node", 4, 8, 4096, True, 1174.92, 971.395),
    ("mi355x-node", 8, 4, 8192, True, 1318.92, 1065.225),
    ("mi355x-node", 1, 8, 16384, True, 1392.485, 1162.805),
]


def full_clock_ns(machine: str, shape: str) -> float:
    """Return the time of a kernel that was measured on its own."""
    build = TraceBuilder()
    build.compute("attention", layer_shape=shape, dtype="bf16")
    system = {key: value for key, value in preset(machine).system.items() if key != "costs"}
    compute = {key: value for key, value in system["compute"].items() if not key.startswith("power")}
    model = compute_model(read_system_alone({**system, "compute": compute}))
    return float(model.durations(build.build(), np.arange(1), 0).ns[0])


@pytest.mark.parametrize(
    ("machine", "batch", "heads", "key_heads", "tokens", "width", "values", "window", "there_ms", "back_ms"),
    CUDNN,
)
def test_attention_on_blackwell_takes_what_cudnn_takes(
    machine: str,
    batch: int,
    heads: int,
    key_heads: int,
    tokens: int,
    width: int,
    values: int,
    window: int,
    there_ms: float,
    back_ms: float | None,
) -> None:
    pairs = window * (window + 1) // 2 + (tokens - window) * window
    keys = -(-pairs // tokens) if window else tokens
    for backward, measured in ((False, there_ms), (True, back_ms)):
        if measured is None:
            continue
        shape = shapes.attention(
            batch,
            heads,
            tokens,
            keys,
            width,
            key_heads=key_heads,
            value_width=None if values == width else values,
            causal=not window,
            backward=backward,
        )
        assert full_clock_ns(machine, shape) / 1e6 == pytest.approx(measured, rel=0.13)


@pytest.mark.parametrize(("machine", "batch", "key_heads", "tokens", "causal", "there", "back"), AITER)
def test_attention_on_amd_takes_what_aiter_takes_on_heads_that_no_fit_had_seen(
    machine: str, batch: int, key_heads: int, tokens: int, causal: bool, there: float, back: float
) -> None:
    errors = []
    for backward, rate in ((False, there), (True, back)):
        shape = shapes.attention(
            batch, 64, tokens, tokens, 128, key_heads=key_heads, causal=causal, backward=backward
        )
        pairs = batch * 64 * tokens**2 / (2 if causal else 1)  # as the source counts
        measured = pairs * (1280 if backward else 512) / (rate * 1e3)
        errors.append(abs(math.log(full_clock_ns(machine, shape) / measured)))
    assert max(errors) < 0.1
