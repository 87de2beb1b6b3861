"""Sustained rates of devices by name at their limits of power, against published and measured products."""

from __future__ import annotations

import numpy as np
import pytest

from et_sim import TraceBuilder
from et_sim.compute import compute_model
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_system_alone

# 10^12 operations per second. Fitted to: A100, H100, V100, MI325X, MI355X; of GB300, 1,600 to 2,174 are
# published, more than its energy leads to, which is fitted to training steps.
SUSTAINED = [
    ("a100-dgx-80gb", "bf16", "gemm 8192 8192 8192", 257, 0.01),
    ("h100-dgx", "bf16", "gemm 3072 51200 51200", 705, 0.05),
    ("b200-dgx", "bf16", "gemm 16384 65536 10240", 1361, 0.25),  # fitted to steps, not to products
    ("v100-dgx-1", "fp16", "gemm 8192 8192 8192", 95, 0.02),
    ("gb300-nvl72", "bf16", "gemm 8192 8192 8192", 1887, 0.27),
    ("mi325x-node", "bf16", "gemm 4096 4864 32896", 831.4, 0.01),
    ("mi325x-node", "fp16", "gemm 4096 4864 32896", 787.3, 0.01),
    ("mi325x-node", "fp8", "gemm 4096 3648 32896", 1408, 0.01),
    ("mi300x-node", "bf16", "gemm 4096 4864 32896", 708, 0.02),  # with the energies of MI325X
    ("mi300x-node", "fp16", "gemm 4096 4864 32896", 654, 0.05),
    ("mi300x-node", "fp8", "gemm 4096 4864 32896", 1273, 0.05),
    ("mi355x-node", "bf16", "gemm 4096 4864 32896", 1686, 0.01),
    ("mi355x-node", "fp8", "gemm 4096 4864 32896", 3567, 0.01),
]


@pytest.mark.parametrize(("machine", "datatype", "shape", "sustained", "within"), SUSTAINED)
def test_large_products_run_at_the_sustained_rate_of_boards(
    machine: str, datatype: str, shape: str, sustained: float, within: float
) -> None:
    build = TraceBuilder()
    build.compute("product", layer_shape=shape, dtype=datatype)
    model = compute_model(read_system_alone(preset(machine).system))
    durations = model.durations(build.build(), np.arange(1), 0)
    rows, columns, inner = map(int, shape.split()[1:])
    assert 2 * rows * columns * inner / durations.ns[0] / 1000 == pytest.approx(sustained, rel=within)
    assert durations.utilisation is not None
    assert durations.utilisation.clock[0] < 1
