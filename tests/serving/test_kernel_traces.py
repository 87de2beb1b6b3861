"""Traces and times of kernels of passes: those made quickly equal those that are built one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.compute import compute_model, kernel_times
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_machine
from et_sim.serving.chains import KernelTraces, built_trace
from et_sim.trace import Trace
from et_sim.workloads.counting import KernelStep

SHAPES = (
    None,
    "",
    "gemm 64 4096 512",
    "gemm 8192 128 128",
    "elementwise 5000 2 1",
    "grouped_gemm 512 256 40 9",
)
kernels = st.builds(
    KernelStep,
    st.integers(0, 10**6),
    st.none() | st.integers(0, 1 << 40),
    st.none() | st.integers(0, 1 << 34),
    st.sampled_from(SHAPES),
    st.sampled_from([None, "bf16", "fp8"]),
    st.sampled_from([(), (("cold", 1),), (("launches", 3),), (("cold", 1), ("launches", 0))]),
)


def content_of(trace: Trace) -> dict[str, Any]:
    """Return all columns of a trace, texts as words."""
    texts = {"name": "names", "layer_shape": "layer_shapes", "datatype": "datatypes", "group": "group_names"}
    columns = {}
    for name in Trace.__struct_fields__:
        column = getattr(trace, name)
        if name in texts:
            words = getattr(trace, texts[name])
            columns[name] = [words[at] for at in column.tolist()]
        elif isinstance(column, np.ndarray):
            columns[name] = (column.dtype, column.tolist())
    return columns


@given(st.lists(st.lists(kernels, min_size=1, max_size=6), min_size=1, max_size=4))
def test_traces_of_kernels_equal_those_that_are_built_one_by_one(calls: list[list[KernelStep]]) -> None:
    traces = KernelTraces()
    for call in calls:
        assert content_of(traces.trace(call)) == content_of(built_trace(call))


def test_a_size_beyond_the_limit_is_refused_as_in_a_built_trace() -> None:
    kernel = KernelStep(1, 1 << 64, 8, None, None, ())
    causes = []
    for make in (KernelTraces().trace, built_trace):
        with pytest.raises(Exception, match=str(1 << 64)) as caught:
            make([kernel])
        causes.append(str(caught.value))
    assert causes[0] == causes[1]


@pytest.mark.parametrize("name", ["h100-dgx", "mi300x-node", "v100-dgx-1"])
@given(call=st.lists(kernels, min_size=1, max_size=6))
def test_times_alone_equal_those_with_their_causes(name: str, call: list[KernelStep]) -> None:
    known = preset(f"{name}:8")
    model = compute_model(read_machine(system=known.system, network=known.network).system)
    datatype = "fp16" if name == "v100-dgx-1" else "bf16"
    of_call = [kernel._replace(dtype=datatype, layer_shape=kernel.layer_shape or None) for kernel in call]
    trace, rows = built_trace(of_call), np.arange(len(of_call))
    lacks = np.logical_or.reduce([np.zeros(len(of_call), np.bool_), *model.lacking(trace, 0).values()])
    described = rows[~lacks]
    alone = kernel_times(model)(trace, described, 0)
    assert alone.tolist() == model.durations(trace, described, 0).ns.tolist()
