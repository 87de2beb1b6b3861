"""Any timeline, however unlikely, converts, keeps its times, and replays without delay."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from converters.pytorch.columns import NONE
from converters.pytorch.converting import convert_rank
from converters.pytorch.emission import trace_bytes
from converters.pytorch.graph import Link
from converters.pytorch.reading import read_device
from converters.pytorch.report import lines, report_on
from et_sim.basics.errors import TraceError
from et_sim.trace import decode

MOMENT = st.integers(0, 400)
LENGTH = st.integers(0, 120)
HOST = (
    "aten::mm",
    "c10d::allreduce_",
    "record_param_comms",
    "nccl:all_reduce",
    "gloo:all_reduce",
    "ProfilerStep#1",
)
CALLS = (
    "cudaLaunchKernel",
    "cudaEventRecord",
    "cudaStreamWaitEvent",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cudaDeviceSynchronize",
    "cudaMemcpy",
    "cudaEventQuery",
)
KERNELS = ("gemm", "ncclDevKernel_AllReduce_Sum", "ncclDevKernel_SendRecv", "ncclKernel_New")
SYNCS = ("Stream Wait Event", "Event Sync", "Stream Sync", "Context Sync", "Something Else")
NCCL = {
    "Collective name": "allreduce",
    "In msg nelems": 64,
    "Out msg nelems": 64,
    "dtype": "Float",
    "Group size": 2,
}
CORRELATION = st.integers(0, 12)


@st.composite
def host_events(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(HOST))
    arguments: dict[str, Any] = {"External id": draw(st.integers(0, 40))}
    if draw(st.booleans()):
        arguments |= {"Input Dims": [[8, 4], [4, 2]], "Input type": ["float", "float"]}
    if name == "record_param_comms" and draw(st.booleans()):
        arguments |= NCCL
    category = "user_annotation" if name.startswith(("nccl", "gloo", "Profiler")) else "cpu_op"
    return {"cat": category, "name": name, "pid": 1, "tid": draw(st.integers(1, 3)), "args": arguments}


@st.composite
def runtime_events(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(CALLS))
    return {
        "cat": "cuda_runtime",
        "name": name,
        "pid": 1,
        "tid": draw(st.integers(1, 3)),
        "args": {"correlation": draw(CORRELATION)},
    }


@st.composite
def device_events(draw: st.DrawFn) -> dict[str, Any]:
    stream = draw(st.integers(7, 9))
    arguments = {"device": 0, "stream": stream, "correlation": draw(CORRELATION)}
    category, name = draw(
        st.sampled_from([*(("kernel", name) for name in KERNELS), ("gpu_memset", "Memset (Device)")])
    )
    if "nccl" in name and draw(st.booleans()):
        arguments |= NCCL
    return {"cat": category, "name": name, "pid": 0, "tid": stream, "args": arguments}


@st.composite
def sync_events(draw: st.DrawFn) -> dict[str, Any]:
    stream = draw(st.integers(-1, 9))
    own = {
        "device": 0,
        "stream": stream,
        "correlation": draw(CORRELATION),
        "wait_on_stream": draw(st.integers(-1, 9)),
    }
    own |= {"wait_on_cuda_event_record_corr_id": draw(CORRELATION), "wait_on_cuda_event_id": 1}
    return {"cat": "cuda_sync", "name": draw(st.sampled_from(SYNCS)), "pid": 0, "tid": stream, "args": own}


@st.composite
def timelines(draw: st.DrawFn) -> list[dict[str, Any]]:
    kinds = st.one_of(host_events(), runtime_events(), device_events(), sync_events())
    events = draw(st.lists(kinds, min_size=1, max_size=40))
    for event in events:
        scale = draw(st.sampled_from([1, 0.001]))
        lasts = max(draw(LENGTH), event["pid"] == 0)  # work of devices takes time
        event |= {"ph": "X", "ts": draw(MOMENT) * scale, "dur": lasts * scale}
    return events


@given(timelines(), st.sets(st.sampled_from(list(Link))))
def test_any_timeline_converts_and_is_never_late(events: list[dict[str, Any]], without: set[Link]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kineto_0.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        device = read_device(path)
    try:
        rank = convert_rank(None, device, frozenset(without))
    except TraceError as error:
        if "holds no operator" not in error.cause:
            raise
        return
    graph = rank.graph
    assert (graph.before < graph.after).all()
    ends, _ = graph.replayed()
    overlap = "communications of one stream that overlap in the recording (kept in order)"
    if overlap not in rank.tally.counts:
        assert (ends <= graph.end_ns).all()
        if not without:  # single nodes may be early if an annotation begins after all its content
            assert ends.max(initial=0) == graph.end_ns.max(initial=0)
    assert (graph.end_ns >= graph.start_ns).all()
    assert (graph.start_ns >= 0).all()
    kernels = sum(event["cat"] in ("kernel", "gpu_memset") for event in events)
    assert len(np.unique(graph.work[graph.work != NONE])) >= kernels
    trace = decode(b"".join(trace_bytes(rank)), "converted")
    assert len(trace) == len(graph)
    assert list(lines(report_on(rank, [str(path)], "out.0.et", 0)))
