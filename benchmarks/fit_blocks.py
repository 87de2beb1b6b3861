"""Fit constants of products in blocks to DeepGEMM's table: `benchmarks/fit_blocks.py`.

The table is that of deepseek-ai/DeepGEMM's README of March 2025 (MIT licence): products of DeepSeek-V3 in fp8
with scales of blocks on H800, of prompts and of tokens, dense, and of experts in one kernel. Its times are
those of kernels alone, so that a launch is not among the constants. Each pair of N and K is left out in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy.optimize import least_squares

from et_sim.basics.kernel_names import BLOCK_SCALES, GEMM_BLOCKS, GROUPED_BLOCKS
from et_sim.compute.registry import at_full_clock, compute_model, kernel_times
from et_sim.machine.compute_rules import ComputeRule
from et_sim.machine.efficiencies import Curve, Tile
from et_sim.machine.kernel_kinds import KernelKind
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_system_alone
from et_sim.machine.roofline import RooflineDevice
from et_sim.trace import TraceBuilder, shapes

Values = NDArray[np.float64]
TILES = ((64, 128, 128), (128, 128, 128))  # blocks of 128 values have one scale; a tile has 64 or 128 rows
FIRST = (0.7, 4.0, 0.8)  # part of the peak, steps of the prologue, part of the bandwidth


class Rate(NamedTuple):
    """A measured product, or some of equal size in one kernel."""

    experts: int  # 0: a dense product
    rows: int
    columns: int
    inner: int
    tflops: float

    @property
    def measured_ns(self) -> float:
        """Return the time of the kernel."""
        return 2 * max(self.experts, 1) * self.rows * self.columns * self.inner / (self.tflops * 1e3)


DENSE_SIZES = ((2112, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048))
DENSE = {
    64: (206, 289, 219, 336, 287, 295),
    128: (352, 535, 358, 645, 533, 510),
    4096: (1058, 990, 590, 1358, 1304, 1025),
}
GROUPED_SIZES = ((4096, 7168), (7168, 2048))
GROUPED = {
    (4, 8192): (1297, 1099),
    (8, 4096): (1288, 1093),
    (1, 1024): (1233, 925),
    (2, 512): (1040, 916),
    (4, 256): (932, 815),
}
RATES = (
    *(
        Rate(0, m, *size, rate)
        for m, rates in DENSE.items()
        for size, rate in zip(DENSE_SIZES, rates, strict=True)
    ),
    *(
        Rate(*of, *size, rate)
        for of, rates in GROUPED.items()
        for size, rate in zip(GROUPED_SIZES, rates, strict=True)
    ),
)


def kind_of(constants: Values) -> KernelKind:
    """Return the constants of both kinds, without a launch."""
    part, prologue, bandwidth = constants.tolist()
    tiles = tuple(Tile(*size, part) for size in TILES)
    return KernelKind(
        efficiency=Curve(1.0),
        memory_efficiency=Curve(bandwidth),
        launch_ns=0.0,
        tiles=tiles,
        prologue=prologue,
        split_k=1,
    )


def simulated() -> Callable[[Values], Values]:
    """Return the times of all rows as a function of the constants."""
    system = at_full_clock(read_system_alone(preset("h800-node").system))
    build = TraceBuilder()
    for experts, rows, columns, inner, _ in RATES:
        count = max(experts, 1)
        size = count * (rows * inner + columns * inner + 2 * rows * columns)
        shape = shapes.gemm(rows, columns, inner, kernel=BLOCK_SCALES)
        if experts:
            shape = shapes.grouped_gemm(columns, inner, [rows], count=experts, kernel=BLOCK_SCALES)
        build.compute("product", layer_shape=shape, dtype="fp8", tensor_bytes=size)
    trace = build.build()

    def ns(constants: Values) -> Values:
        kind, rules = kind_of(constants), list[ComputeRule]()
        for rule in system.compute:
            device = rule.settings
            assert isinstance(device, RooflineDevice)
            kinds = {**device.kinds, **{f"{name} fp8": kind for name in (GEMM_BLOCKS, GROUPED_BLOCKS)}}
            rules.append(replace(rule, settings=replace(device, kinds=kinds)))
        times = kernel_times(compute_model(replace(system, compute=tuple(rules))))
        found: Values = times(trace, np.arange(len(trace)), 0).astype(float)
        return found

    return ns


def fitted(ns: Callable[[Values], Values], chosen: NDArray[np.bool_]) -> Values:
    """Return the constants with the least errors on some rows."""
    measured = np.array([rate.measured_ns for rate in RATES])

    def errors(logarithms: Values) -> Values:
        found: Values = np.log(ns(np.exp(logarithms)) / measured)[chosen]
        return found

    most = [0.0, np.inf, 0.0]  # a part is at most 1
    found = least_squares(
        errors,
        np.log(FIRST),
        bounds=([-np.inf] * 3, most),
        loss="soft_l1",
        f_scale=0.1,
        diff_step=1e-3,  # times are whole nanoseconds
    )
    constants: Values = np.exp(found.x)
    return constants


def main() -> None:
    """Print the constants, and the errors of all rows and of those left out."""
    ns, measured = simulated(), np.array([rate.measured_ns for rate in RATES])
    sizes = [(rate.columns, rate.inner) for rate in RATES]
    constants = fitted(ns, np.ones(len(RATES), bool))
    of_all = np.log(ns(constants) / measured)
    left_out = np.zeros(len(RATES))
    for size in dict.fromkeys(sizes):
        others = np.array([other != size for other in sizes])
        left_out[~others] = np.log(ns(fitted(ns, others)) / measured)[~others]
    print("part of peak {:.3f}, prologue {:.3f}, part of bandwidth {:.3f}".format(*constants))
    for rate, error, out in zip(RATES, of_all, left_out, strict=True):
        count = f"{rate.experts} x " if rate.experts else ""
        label = f"{count}{rate.rows} x {rate.columns} x {rate.inner}"
        print(f"{label:24} {rate.measured_ns / 1e3:8.1f} us  {error:+.1%}  left out {out:+.1%}")
    is_dense = np.array([not rate.experts for rate in RATES])
    for name, rows in (("dense", is_dense), ("experts", ~is_dense), ("all", is_dense | ~is_dense)):
        inside, outside = (float(np.sqrt(np.mean(values[rows] ** 2))) for values in (of_all, left_out))
        print(f"{name}: E {inside:.1%}, left out {outside:.1%}")


if __name__ == "__main__":
    main()
