"""Tests of a user's compute model: equal kernels take equal times, whatever is timed beside them.

Ranks that behave identically are simulated as one, so the time of a kernel may depend on the kernel alone.
"""

from __future__ import annotations

import random

import numpy as np

from et_sim.compute.custom import Kernels, OwnKernelTimes, OwnTimes

KERNELS = 200
ALONE = 20  # kernels that are timed one by one
SHAPES = ("", "gemm 1024 4096 4096", "gemm 8 4096 11008", "softmax 4096 4096")
DATATYPES = ("", "bf16", "fp8", "fp32")


def examine_compute_model(path: str, seed: int = 1) -> str:
    """Return the first problem of a model with random kernels, or an empty text."""
    draw = random.Random(seed)
    model = OwnTimes(OwnKernelTimes(path))
    kernels = _kernels(draw)
    times = model.of_kernels(kernels)
    order = np.array(draw.sample(range(KERNELS), KERNELS))
    reordered = np.empty(KERNELS)
    reordered[order] = model.of_kernels(kernels.take(order))
    alone = times.copy()
    for row in draw.sample(range(KERNELS), ALONE):
        alone[row] = model.of_kernels(kernels.take(np.array([row])))[0]
    tries = (("again", model.of_kernels(kernels)), ("in another order", reordered), ("alone", alone))
    for how, other in tries:
        differ = np.flatnonzero(~np.isclose(times, other, rtol=1e-12, equal_nan=True))
        if len(differ):
            row = int(differ[0])
            return (
                f"the kernel {kernels.names[row]!r} of {kernels.operations[row]:,} operations and "
                f"{kernels.bytes[row]:,} bytes takes {times[row]:g} ns, and {other[row]:g} ns {how}"
            )
    return ""


def _kernels(draw: random.Random) -> Kernels:
    """Return random kernels; some state no operations, bytes, shape or datatype."""

    def numbers(most: int) -> list[int]:
        return [draw.choice((0, 1, draw.randrange(most))) for _ in range(KERNELS)]

    def words(choices: tuple[str, ...]) -> list[str]:
        return [draw.choice(choices) for _ in range(KERNELS)]

    return Kernels(
        np.array([f"kernel {number % 7}" for number in range(KERNELS)], np.object_),
        np.array(numbers(10**14), np.int64),
        np.array(numbers(10**10), np.int64),
        np.array(words(SHAPES), np.object_),
        np.array(words(DATATYPES), np.object_),
        np.array(numbers(10**6), np.int64),
    )
