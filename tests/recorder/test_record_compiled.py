"""Regions that a program compiles are recorded as its operators, with chains of element-wise ones fused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from recording_here import Recording, needs_torch, record

from et_sim.trace import NodeKind, Trace

needs_torch()

WIDTH, ROWS, BLOCKS = 64, 32, 2
ELEMENTS = ROWS * WIDTH
IN_CHAINS = 6 + 6  # element-wise operators of a block, forward and backward


def _second_step(folder: Path, part: str, *options: str) -> Recording:
    return record(folder, "compiled.py", part, world=2, options=("--step", "1", *options))


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return _second_step(tmp_path_factory.mktemp("eager"), "none").workload.templates[0]


def _named(trace: Trace, word: str) -> np.ndarray:
    return np.array([word in name for name in trace.names])[trace.name]


@pytest.mark.parametrize("part", ["function", "module", "in-place"])
def test_a_chain_of_a_region_is_one_kernel_that_moves_shared_tensors_only(
    part: str, eager: Trace, tmp_path: Path
) -> None:
    recording = _second_step(tmp_path, part)
    trace = recording.workload.templates[0]
    forward, backward = (_named(trace, phase) & _named(trace, "fused") for phase in ("forward", "backward"))
    # Read: the product and the weight. Written, because autograd keeps them: the wide product, its sigmoid
    # and the narrow sum; and the result.
    moved = 2 * ELEMENTS + 2 * WIDTH + 4 * ELEMENTS + 4 * ELEMENTS + 2 * ELEMENTS + 2 * ELEMENTS
    assert trace.tensor_bytes[forward].tolist() == [moved] * BLOCKS
    assert trace.num_ops[forward].tolist() == [4 * ELEMENTS] * BLOCKS
    # Backward: a gradient and the kept output are read, and the gradient of the product is written.
    assert trace.tensor_bytes[backward].tolist() == [(2 + 4 + 4 + 2) * ELEMENTS] * BLOCKS
    assert len(trace) == len(eager) - BLOCKS * (IN_CHAINS - 2)
    (output,) = recording.remarks("compiled")
    assert "56 element-wise ones of which are 16 kernels" in output["text"]


def test_products_and_reductions_of_a_region_are_as_without_it(eager: Trace, tmp_path: Path) -> None:
    trace = _second_step(tmp_path, "module").workload.templates[0]
    for word in (" mm", " sum"):
        first, other = _named(eager, word), _named(trace, word)
        assert eager.num_ops[first].tolist() == trace.num_ops[other].tolist()
        assert eager.tensor_bytes[first].tolist() == trace.tensor_bytes[other].tolist()


def test_a_fused_kernel_is_launched_once(eager: Trace, tmp_path: Path) -> None:
    trace = _second_step(tmp_path, "module", "--host-time", "5us").workload.templates[0]
    is_launch = _named(trace, "launch of")
    assert set(trace.kind.tolist()) == {NodeKind.COMP}
    assert len(trace) == 2 * is_launch.sum() == 2 * (len(eager) - BLOCKS * (IN_CHAINS - 2))
    # Each kernel comes after its launch, and each launch after the one before it.
    assert [int(is_launch[trace.parents(row)].sum()) for row in range(len(trace))] == [0] + [1] * (
        len(trace) - 1
    )
    assert set(trace.duration_ns[is_launch].tolist()) == {5000}
