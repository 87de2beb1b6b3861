"""Attention of devices by name against measured kernels of cuDNN (Blackwell) and AITER (MI300X, MI355X).

The sources are NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training/results (@df73764adb, and @60e572b7c8
for windows of 128), and ROCm/aiter, op_tests/cpp/mha/README.md@0403bcdfd0. Constants of GB200 and GB300 are
fitted to these and further rows; those of MI300X and MI355X to rows of 32 heads, and here are rows of 64.
Nothing is fitted to earlier versions of cuDNN: 9.13 and 9.17 (artifacts@bb37575d10 and @d48a60eb14), and 9.18
(results/gb200_918_only_cudnn@9072c4e78e, gb300_918_only_cudnn@b8c0656e6f).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

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
# of versions that no fit had seen: machine, heads, heads of keys, widths; by tokens, ms forward and backward
UNSEEN = {
    "9.13": [
        (
            "b200-dgx",
            128,
            8,
            128,
            128,
            {8192: (1.877, 5.833), 16384: (6.602, 20.46), 32768: (24.795, 79.338)},
        ),
        (
            "gb300-nvl72",
            128,
            8,
            128,
            128,
            {8192: (1.47, 4.865), 16384: (5.167, 17.345), 32768: (19.592, 66.679)},
        ),
    ],
    "9.17": [
        (
            "gb200-nvl72",
            128,
            8,
            128,
            128,
            {4096: (0.397, 1.304), 8192: (1.389, 4.542), 32768: (20.937, 65.277)},
        ),
    ],
    "9.18": [
        (
            "gb200-nvl72",
            64,
            8,
            128,
            128,
            {4096: (0.212, 0.622), 8192: (0.704, 2.15), 32768: (10.436, 30.513)},
        ),
        (
            "gb300-nvl72",
            64,
            8,
            128,
            128,
            {4096: (0.164, 0.574), 8192: (0.571, 1.976), 32768: (8.663, 28.331)},
        ),
        (
            "gb200-nvl72",
            128,
            128,
            192,
            128,
            {4096: (0.519, 1.65), 8192: (1.831, 5.875), 32768: (24.538, 87.23)},
        ),
        (
            "gb300-nvl72",
            128,
            128,
            192,
            128,
            {4096: (0.438, 1.541), 8192: (1.518, 5.412), 32768: (21.319, 80.52)},
        ),
    ],
}
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


class Unseen(NamedTuple):
    """A kernel of a version of cuDNN that no fit had seen."""

    machine: str
    is_backward: bool
    shape: str
    measured_ns: float


def unseen(version: str) -> Iterator[Unseen]:
    """Yield the measured kernels of a version."""
    for machine, heads, key_heads, width, values, rows in UNSEEN[version]:
        for tokens, measured in rows.items():
            for is_backward, ms in zip((False, True), measured, strict=True):
                shape = shapes.attention(
                    1,
                    heads,
                    tokens,
                    tokens,
                    width,
                    key_heads=key_heads,
                    value_width=None if values == width else values,
                    causal=True,
                    backward=is_backward,
                )
                yield Unseen(machine, is_backward, shape, ms * 1e6)


@pytest.mark.parametrize(
    ("version", "there", "back"), [("9.13", 0.17, 0.11), ("9.17", 0.03, 0.0), ("9.18", 0.02, -0.02)]
)
def test_attention_of_a_version_of_cudnn_differs_by_what_the_widths_of_bands_come_from(
    version: str, there: float, back: float
) -> None:
    for is_backward, stated in ((False, there), (True, back)):
        errors = [
            math.log(row.measured_ns / full_clock_ns(row.machine, row.shape))
            for row in unseen(version)
            if row.is_backward == is_backward
        ]
        assert sum(errors) / len(errors) == pytest.approx(stated, abs=0.02)


def test_bands_of_attention_on_blackwell_hold_most_kernels_of_versions_that_no_fit_had_seen() -> None:
    rows, inside = [row for version in UNSEEN for row in unseen(version)], 0
    for row in rows:
        accuracy = read_system_alone(preset(row.machine).system).accuracy
        assert accuracy is not None
        stated = accuracy.of_kernel_alone(row.shape, "bf16")
        assert stated is not None
        assert stated.shares.keys() == {"attention_backward" if row.is_backward else "attention"}
        low, high = stated.band(round(full_clock_ns(row.machine, row.shape)))
        inside += low <= row.measured_ns <= high
        assert high / low < 1.5
    assert 0.7 * len(rows) <= inside <= 0.95 * len(rows)


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
