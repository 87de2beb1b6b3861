"""Dependencies on timelines small enough to see: launches, streams, events, waits, threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from converters.pytorch.columns import NONE
from converters.pytorch.converting import convert_rank
from converters.pytorch.emission import trace_bytes
from converters.pytorch.graph import Link, RunPart
from converters.pytorch.rank import ConvertedRank
from converters.pytorch.reading import read_device, read_host
from converters.pytorch.report import lines, report_on
from et_sim.trace import decode
from et_sim.trace.columns import NodeKind

MAIN, OTHER = 10, 11
COMPUTE, NCCL = 7, 20
NCCL_KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
SEND_RECEIVE = "ncclDevKernel_SendRecv"


class Timeline:
    """Kineto events, in microseconds."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path / "kineto_0.json"
        self.events: list[dict[str, Any]] = []
        self.correlation = 100

    def operator(self, name: str, ts: float, dur: float, tid: int = MAIN, **arguments: Any) -> None:
        self._add("cpu_op", name, ts, dur, 1, tid, {"External id": len(self.events) + 1} | arguments)

    def annotation(self, name: str, ts: float, dur: float, tid: int = MAIN) -> None:
        self._add("user_annotation", name, ts, dur, 1, tid, {"External id": len(self.events) + 1})

    def call(self, name: str, ts: float, dur: float, tid: int = MAIN) -> int:
        self.correlation += 1
        self._add("cuda_runtime", name, ts, dur, 1, tid, {"correlation": self.correlation})
        return self.correlation

    def kernel(
        self, name: str, ts: float, dur: float, stream: int, correlation: int, **arguments: Any
    ) -> None:
        own = {"device": 0, "stream": stream, "correlation": correlation}
        self._add("kernel", name, ts, dur, 0, stream, own | arguments)

    def launch(
        self, name: str, call_ts: float, ts: float, dur: float, stream: int = COMPUTE, tid: int = MAIN
    ) -> None:
        self.kernel(name, ts, dur, stream, self.call("cudaLaunchKernel", call_ts, 2, tid))

    def sync(self, kind: str, ts: float, stream: int, correlation: int, **arguments: Any) -> None:
        own = {"cuda_sync_kind": kind, "stream": stream, "correlation": correlation, "device": 0}
        self._add("cuda_sync", kind, ts, 1, 0, stream, own | arguments)

    def _add(self, category: str, name: str, ts: float, dur: float, pid: int, tid: int, args: Any) -> None:
        event = {
            "ph": "X",
            "cat": category,
            "name": name,
            "ts": ts,
            "dur": dur,
            "pid": pid,
            "tid": tid,
            "args": args,
        }
        self.events.append(event)

    def converted(self) -> Converted:
        info = {"backend": "nccl", "rank": 0, "world_size": 4}
        self.path.write_text(
            json.dumps({"schemaVersion": 1, "distributedInfo": info, "traceEvents": self.events})
        )
        return Converted(convert_rank(None, read_device(self.path)))


class Converted:
    """Nodes by name, with their dependencies."""

    def __init__(self, rank: ConvertedRank) -> None:
        self.rank = rank
        ends, _ = rank.graph.replayed()
        assert (ends == rank.graph.end_ns).all()
        trace = decode(b"".join(trace_bytes(rank)), "converted")
        self.names = [trace.node_name(row) for row in range(len(trace))]
        self.trace = trace

    def row(self, name: str) -> int:
        return self.names.index(name)

    def span(self, name: str) -> tuple[float, float]:
        row = self.row(name)
        return self.rank.graph.start_ns[row] / 1000, self.rank.graph.end_ns[row] / 1000

    def comes_after(self, after: str, before: str) -> bool:
        """Return whether a path leads from one node to another."""
        return self.row(before) in self._ancestors(self.row(after))

    def waits_directly(self, after: str, before: str, kind: Link) -> bool:
        """Return whether a dependency of this kind, or two with a gap between them, leads from one to the
        other.
        """
        graph, wanted = self.rank.graph, self.row(before)
        direct = graph.before[(graph.after == self.row(after)) & (graph.kind == kind)].tolist()
        gaps = [row for row in direct if graph.role[row] in (RunPart.LAUNCH_GAP, RunPart.STREAM_GAP)]
        behind = [int(node) for gap in gaps for node in graph.before[graph.after == gap]]
        return wanted in (*direct, *behind)

    def _ancestors(self, row: int) -> set[int]:
        graph = self.rank.graph
        result, todo = set(), [row]
        while todo:
            for before in graph.before[graph.after == todo.pop()].tolist():
                if before not in result:
                    result.add(before)
                    todo.append(before)
        return result


@pytest.fixture
def timeline(tmp_path: Path) -> Timeline:
    return Timeline(tmp_path)


def test_an_operators_time_is_its_own(timeline: Timeline) -> None:
    timeline.operator("outer", 0, 100)
    timeline.operator("inner", 10, 20)
    timeline.operator("next", 130, 10)
    converted = timeline.converted()
    assert [
        converted.span(name) for name in ("outer", "inner", "rest of operators", "gap of thread 1", "next")
    ] == [
        (0, 10),
        (10, 30),
        (30, 100),
        (100, 130),
        (130, 140),
    ]
    assert converted.names == ["outer", "inner", "rest of operators", "gap of thread 1", "next"]


def test_a_message_that_outlasts_its_operator_holds_no_later_calls(timeline: Timeline) -> None:
    timeline.operator("c10d::send", 0, 10, **nccl("send", 64, **{"Dst Rank": 1}))
    timeline.annotation("gloo:send", 5, 95)
    timeline.operator("meanwhile", 20, 10)
    timeline.operator("after", 103, 10)
    converted = timeline.converted()
    sent = converted.names.index(
        "gloo:send", converted.names.index("gloo:send") + 1
    )  # the first one is the mark
    assert converted.trace.kind[sent] == NodeKind.SEND
    assert (converted.rank.graph.start_ns[sent], converted.rank.graph.end_ns[sent]) == (5_000, 100_000)
    assert sent not in converted._ancestors(converted.row("meanwhile"))
    assert sent in converted._ancestors(converted.row("after"))


def test_annotations_are_marks(timeline: Timeline) -> None:
    timeline.annotation("ProfilerStep#1", 0, 50)
    timeline.operator("inside", 20, 10)
    converted = timeline.converted()
    assert converted.span("ProfilerStep#1") == (0, 0)
    assert converted.names == ["ProfilerStep#1", "gap of thread 1", "inside", "gap of thread 1"]
    assert converted.rank.measured_ns == 50_000


def test_launches_waits_copies_and_gaps_are_marked_as_such(timeline: Timeline) -> None:
    timeline.operator("op", 0, 10)
    timeline.launch("kernel", 2, 8, 20)
    timeline.kernel("Memcpy HtoD", 40, 5, COMPUTE, timeline.call("cudaMemcpyAsync", 30, 2))
    timeline.events[-1]["cat"] = "gpu_memcpy"
    timeline.call("cudaStreamSynchronize", 34, 14)
    timeline.kernel("Memset (Device)", 56, 5, COMPUTE, timeline.call("cudaMemsetAsync", 50, 2))
    timeline.events[-1]["cat"] = "gpu_memset"
    trace = timeline.converted().trace

    def marked(column: Any) -> set[str]:
        return {trace.node_name(row) for row in np.flatnonzero(column)}

    assert marked(trace.is_launch) == {
        *("cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaStreamSynchronize")
    }
    assert marked(trace.is_copy) == {"Memcpy HtoD", "Memset (Device)"}
    assert marked(trace.is_gap) == {"gap of thread 1", "launch gap of stream 7"}
    assert marked(~trace.is_cpu) == {"kernel", "Memcpy HtoD", "Memset (Device)"}


def test_gaps_are_named_after_their_thread_or_stream(timeline: Timeline) -> None:
    timeline.operator("first", 0, 10)
    timeline.annotation("step", 0, 30)
    timeline.operator("other", 20, 10, tid=OTHER)
    timeline.launch("kernel", 60, 70, 20)
    timeline.launch("sum", 64, 100, 5, stream=NCCL)
    converted = timeline.converted()
    gaps = {name: converted.span(name) for name in converted.names if "gap" in name}
    assert gaps == {
        "gap of thread 1": (10, 60),
        "gap of thread 2": (0, 20),
        "launch gap of stream 7": (62, 70),
        "launch gap of stream 20": (66, 100),
    }


def test_work_that_begins_during_its_launch_comes_after_the_part_before(timeline: Timeline) -> None:
    timeline.operator("op", 0, 30)
    timeline.kernel("kernel", 12, 40, COMPUTE, timeline.call("cudaLaunchKernel", 10, 8))
    converted = timeline.converted()
    assert converted.span("cudaLaunchKernel") == (10, 12)
    assert converted.waits_directly("kernel", "cudaLaunchKernel", Link.LAUNCH)
    assert converted.span("rest of launches") == (12, 18)
    assert converted.span("rest of operators") == (18, 30)


def test_work_that_begins_after_a_long_launch_comes_after_all_of_it(timeline: Timeline) -> None:
    """Count the first launch of a kernel, which may load its code, as time of the host without a gap beside
    it.
    """
    timeline.operator("op", 0, 9000)
    timeline.kernel("kernel", 8744, 20, COMPUTE, timeline.call("hipLaunchKernel", 2195, 6543))
    for at in range(8770, 8870, 10):
        timeline.kernel("short", at + 6, 3, COMPUTE, timeline.call("hipLaunchKernel", at, 2))
    converted = timeline.converted()
    assert converted.span("hipLaunchKernel") == (2195, 8738)
    assert converted.span("launch gap of stream 7") == (8738, 8744)
    assert converted.waits_directly("kernel", "hipLaunchKernel", Link.LAUNCH)
    assert "rest of launches" not in converted.names
    assert converted.trace.is_launch[converted.row("hipLaunchKernel")]


def test_a_long_launch_whose_kernel_begins_and_ends_before_it_returns_has_not_waited(
    timeline: Timeline,
) -> None:
    timeline.kernel("kernel", 8990, 4, COMPUTE, timeline.call("cudaLaunchKernel", 1000, 8000))
    for number in range(6):
        timeline.launch(f"short {number}", 9010 + 20 * number, 9016 + 20 * number, 3)
    converted = timeline.converted()
    assert converted.span("cudaLaunchKernel") == (0, 7990)
    assert converted.waits_directly("kernel", "cudaLaunchKernel", Link.LAUNCH)


def test_launched_work_that_begins_after_its_call_comes_after_all_of_it(timeline: Timeline) -> None:
    correlation = timeline.call("cudaGraphLaunch", 0, 50)
    timeline.kernel("early", 10, 10, COMPUTE, correlation)
    timeline.kernel("late", 56, 10, COMPUTE, correlation)
    converted = timeline.converted()
    assert converted.waits_directly("early", "cudaGraphLaunch", Link.LAUNCH)
    assert converted.span("rest of launches") == (10, 50)
    assert converted.waits_directly("late", "rest of launches", Link.LAUNCH)


def test_a_gap_follows_the_cause_that_decided_the_start(timeline: Timeline) -> None:
    timeline.launch("first", 0, 10, 20)
    timeline.launch("second", 4, 33, 20)
    converted = timeline.converted()
    assert converted.span("launch gap of stream 7") == (2, 10)
    assert converted.span("stream gap of stream 7") == (30, 33)
    assert converted.waits_directly("second", "first", Link.STREAM_ORDER)
    assert converted.waits_directly("second", "cudaLaunchKernel", Link.LAUNCH) or converted.comes_after(
        "second", "cudaLaunchKernel"
    )


def test_a_launched_graph_starts_all_its_kernels(timeline: Timeline) -> None:
    correlation = timeline.call("cudaGraphLaunch", 0, 5)
    for number in range(3):
        timeline.kernel(f"kernel {number}", 10 + 10 * number, 10, COMPUTE, correlation)
    converted = timeline.converted()
    for number in range(3):
        assert converted.waits_directly(f"kernel {number}", "cudaGraphLaunch", Link.LAUNCH)


def test_kernels_that_overlap_on_a_stream_are_both_waited_for(timeline: Timeline) -> None:
    timeline.launch("first", 0, 10, 20)
    timeline.launch("early", 4, 28, 20)
    timeline.launch("last", 8, 50, 5)
    converted = timeline.converted()
    assert not converted.comes_after("early", "first")
    assert converted.comes_after("last", "first")
    assert converted.comes_after("last", "early")


def test_the_host_waits_for_work_of_a_stream(timeline: Timeline) -> None:
    timeline.launch("kernel", 0, 10, 90)
    timeline.call("cudaStreamSynchronize", 5, 98)
    converted = timeline.converted()
    assert converted.span("cudaStreamSynchronize") == (100, 103)
    assert converted.waits_directly("cudaStreamSynchronize", "kernel", Link.SYNC)


def test_waiting_for_the_device_is_waiting_for_every_stream(timeline: Timeline) -> None:
    timeline.launch("here", 0, 10, 90)
    timeline.launch("there", 3, 10, 50, stream=NCCL)
    timeline.call("cudaDeviceSynchronize", 6, 100)
    converted = timeline.converted()
    assert converted.waits_directly("cudaDeviceSynchronize", "here", Link.SYNC)
    assert converted.waits_directly("cudaDeviceSynchronize", "there", Link.SYNC)


def test_a_copy_that_returns_at_its_end_has_waited_for_itself(timeline: Timeline) -> None:
    timeline.operator("op", 0, 5)
    timeline.kernel(
        "Memcpy DtoH (Device -> Pageable)", 20, 75, COMPUTE, timeline.call("cudaMemcpyAsync", 10, 90)
    )
    converted = timeline.converted()
    assert converted.span("cudaMemcpyAsync") == (95, 100)
    assert converted.waits_directly("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)", Link.SYNC)
    assert converted.comes_after("Memcpy DtoH (Device -> Pageable)", "op")


def test_a_launch_into_a_full_queue_waits_for_room(timeline: Timeline) -> None:
    for number in range(80):
        timeline.launch(f"kernel {number}", 3 * number, 10 + 100 * number, 100)
    timeline.kernel("late", 8010, 10, COMPUTE, timeline.call("cudaGraphLaunch", 300, 320))
    converted = timeline.converted()
    assert converted.span("cudaGraphLaunch") == (610, 620)
    assert converted.waits_directly("cudaGraphLaunch", "kernel 5", Link.SYNC)


def test_recorded_waits_name_event_and_stream(timeline: Timeline) -> None:
    timeline.launch("before", 0, 10, 30)
    recorded = timeline.call("cudaEventRecord", 4, 1)
    timeline.launch("later", 6, 40, 30)
    waited = timeline.call("cudaStreamWaitEvent", 10, 1)
    output = {
        "wait_on_stream": COMPUTE,
        "wait_on_cuda_event_record_corr_id": recorded,
        "wait_on_cuda_event_id": 1,
    }
    timeline.sync("Stream Wait Event", 10.5, NCCL, waited, **output)
    timeline.launch("waiting", 14, 45, 10, stream=NCCL)
    converted = timeline.converted()
    assert converted.waits_directly("waiting", "before", Link.EVENT_WAIT)
    assert not converted.comes_after("waiting", "later")


def test_communication_follows_computation_and_computation_communication(timeline: Timeline) -> None:
    """Infer the order of c10d's stream without records of events."""
    timeline.launch("gradient", 0, 10, 30)
    timeline.call("cudaEventRecord", 4, 1)
    timeline.call("cudaStreamWaitEvent", 6, 1)
    timeline.launch("reduce", 8, 42, 40, stream=NCCL)
    timeline.launch("overlapping", 12, 45, 20)
    timeline.call("cudaStreamWaitEvent", 16, 1)
    timeline.launch("update", 18, 85, 5)
    converted = timeline.converted()
    assert converted.waits_directly("reduce", "gradient", Link.EVENT_WAIT)
    assert not converted.comes_after("overlapping", "reduce")
    assert converted.waits_directly("update", "reduce", Link.EVENT_WAIT)


def test_work_that_seems_to_begin_before_its_launch_comes_after_the_call_before(timeline: Timeline) -> None:
    timeline.operator("op", 0, 5)
    timeline.kernel("kernel", 9, 10, COMPUTE, timeline.call("cudaLaunchKernel", 10, 2))
    converted = timeline.converted()
    assert converted.comes_after("kernel", "op")
    assert not converted.comes_after("kernel", "cudaLaunchKernel")
    assert any("begin after what they launched" in subject for subject in converted.rank.tally.counts)


def test_work_launched_before_the_recording_has_a_gap_from_its_beginning(timeline: Timeline) -> None:
    timeline.operator("op", 0, 5)
    timeline.kernel("kernel", 9, 10, COMPUTE, 7)
    converted = timeline.converted()
    assert converted.span("stream gap of stream 7") == (0, 9)
    assert converted.rank.tally.counts["launches of work that began before the recording"] == 1


def test_a_thread_goes_on_after_the_thread_it_waited_for(timeline: Timeline) -> None:
    timeline.operator("forward", 0, 100)
    timeline.operator("backward", 110, 400, tid=OTHER)
    timeline.operator("optimizer", 530, 50)
    converted = timeline.converted()
    assert converted.comes_after("backward", "forward")
    assert converted.comes_after("optimizer", "backward")
    assert converted.rank.graph.kind.tolist().count(Link.CROSS_THREAD) == 2


def test_threads_that_work_side_by_side_do_not_wait(timeline: Timeline) -> None:
    for number in range(5):
        timeline.operator(f"here {number}", 100 * number, 95)
        timeline.operator(f"there {number}", 100 * number + 3, 94, tid=OTHER)
    converted = timeline.converted()
    assert Link.CROSS_THREAD not in converted.rank.graph.kind.tolist()


def nccl(name: str, elements: int, **arguments: Any) -> dict[str, Any]:
    output = {
        "Collective name": name,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "dtype": "Float",
    }
    return output | {"Group size": 2, "Process Group Name": "3", "Process Group Ranks": "[0, 2]"} | arguments


def test_messages_of_one_kernel_are_nodes_of_their_own(timeline: Timeline) -> None:
    timeline.operator("record_param_comms", 0, 5, **nccl("send", 64, **{"Dst Rank": 2}))
    timeline.operator("record_param_comms", 6, 5, **nccl("recv", 32, **{"Src Rank": 2}))
    timeline.operator("coalesced", 12, 10)
    timeline.launch(SEND_RECEIVE, 14, 30, 25, stream=NCCL)
    timeline.launch("after", 24, 60, 5, stream=NCCL)
    converted = timeline.converted()
    trace = converted.trace
    messages = np.flatnonzero((trace.kind == NodeKind.SEND) | (trace.kind == NodeKind.RECV))
    assert sorted(trace.kind[messages].tolist()) == [NodeKind.SEND, NodeKind.RECV]
    sent, received = (int(np.flatnonzero(trace.kind == kind)[0]) for kind in (NodeKind.SEND, NodeKind.RECV))
    assert (trace.comm_bytes[sent], trace.comm_dst[sent], trace.comm_src[sent]) == (256, 2, 0)
    assert (trace.comm_bytes[received], trace.comm_src[received], trace.comm_dst[received]) == (128, 2, 0)
    assert set(messages.tolist()) <= converted._ancestors(converted.row("after"))


def test_a_collective_recorded_several_times_is_one_node(timeline: Timeline) -> None:
    timeline.operator("c10d::allreduce_", 0, 50)
    timeline.operator("record_param_comms", 2, 46, **nccl("allreduce", 1000))
    timeline.annotation("nccl:all_reduce", 4, 40)
    timeline.launch(NCCL_KERNEL, 6, 60, 30, stream=NCCL)
    converted = timeline.converted()
    assert (converted.rank.communication != NONE).sum() == 1
    carrier = converted.row(NCCL_KERNEL)
    assert (converted.trace.kind[carrier], converted.trace.comm_bytes[carrier]) == (NodeKind.COLL, 4000)
    assert converted.trace.group_names[converted.trace.group[carrier]] == "3"
    assert dict(converted.rank.groups) == {"3": (0, 2)}


def test_further_kernels_of_a_collective_are_computation(timeline: Timeline) -> None:
    timeline.operator("record_param_comms", 0, 50, **nccl("allreduce", 1000))
    timeline.launch(NCCL_KERNEL, 6, 60, 30, stream=NCCL)
    timeline.launch("ncclDevKernel_Broadcast", 9, 90, 30, stream=NCCL)
    converted = timeline.converted()
    assert (converted.rank.communication != NONE).sum() == 1
    assert converted.rank.tally.counts["further kernels of a collective, kept as computation"] == 1


def test_a_communicating_kernel_without_an_operation_has_an_unknown_size(
    timeline: Timeline,
) -> None:
    timeline.operator("op", 0, 30)
    timeline.launch("ncclNewKernel_Something", 6, 60, 30, stream=NCCL)
    converted = timeline.converted()
    output = "kernels whose communication is unknown"
    assert converted.rank.tally.counts[output] == 1
    assert converted.rank.tally.examples[output] == ["ncclNewKernel_Something"]
    row = converted.row("ncclNewKernel_Something")
    assert converted.trace.kind[row] == NodeKind.COLL
    assert converted.trace.is_unsized[row]
    assert not converted.trace.has("comm_type", row)
    assert "  communication    unknown size in 1 of all ranks, 30 µs" in lines(
        report_on(converted.rank, [], "", 0)
    )


def test_old_timelines_have_the_bytes_of_the_annotations_shapes(timeline: Timeline) -> None:
    timeline.annotation("nccl:all_reduce", 0, 20)
    timeline.events[-1]["args"] |= {"Input Dims": [[4, 2048]], "Input type": ["c10::Half"]}
    timeline.launch(NCCL_KERNEL, 6, 60, 30, stream=NCCL)
    assert timeline.converted().trace.comm_bytes.max() == 16384


def test_the_cost_of_an_operator_is_shared_by_its_kernels_as_their_times_are(timeline: Timeline) -> None:
    shapes = {"Input Dims": [[16, 32], [32, 8]], "Input type": ["float", "float"]}
    timeline.operator("aten::mm", 0, 30, **shapes)
    timeline.launch("split", 5, 40, 10)
    timeline.launch("gemm", 10, 50, 30)
    converted = timeline.converted()
    operations = [int(converted.trace.num_ops[converted.row(name)]) for name in ("split", "gemm")]
    moved = [int(converted.trace.tensor_bytes[converted.row(name)]) for name in ("split", "gemm")]
    assert operations == [2 * 16 * 32 * 2, 2 * 16 * 32 * 6]
    assert moved == [(16 * 32 + 32 * 8 + 16 * 8), 3 * (16 * 32 + 32 * 8 + 16 * 8)]  # inputs and output


def test_an_operator_within_one_of_a_formula_is_counted_instead_of_it(timeline: Timeline) -> None:
    shapes = {"Input Dims": [[2, 3, 10, 8]] * 3, "Input type": ["float"] * 3}
    inner = {"Input Dims": [[6, 10, 8], [6, 8, 10]], "Input type": ["float"] * 2}
    timeline.operator("aten::scaled_dot_product_attention", 0, 40, **shapes)
    timeline.operator("aten::bmm", 2, 10, **inner)
    timeline.launch("gemm", 5, 50, 10)
    timeline.operator("aten::_softmax", 20, 10, **{"Input Dims": [[6, 10, 10]], "Input type": ["float"]})
    timeline.launch("softmax", 22, 60, 30)
    converted = timeline.converted()
    rows = [converted.row(name) for name in ("gemm", "softmax")]
    assert converted.trace.num_ops[rows].tolist() == [2 * 6 * 10 * 8 * 10, 0]
    assert converted.trace.tensor_bytes[rows[1]] == 2 * 4 * 600


def test_undetermined_and_impossible_costs_are_left_out(timeline: Timeline) -> None:
    table = {"Input Dims": [[1 << 30, 64], [7]], "Input type": ["float", "long int"]}
    timeline.operator("CompiledFunction", 0, 30, **{"Input Dims": [[100]], "Input type": ["float"]})
    timeline.launch("fused_1", 5, 40, 10)
    timeline.launch("fused_2", 10, 50, 10)
    timeline.operator("aten::add_", 40, 10, **table)
    timeline.launch("huge", 42, 70, 5)
    timeline.operator("aten::embedding", 60, 10, **table)
    timeline.launch("lookup", 62, 80, 5)
    converted = timeline.converted()
    names = ("fused_1", "fused_2", "huge", "lookup")
    has_figures = [bool(converted.trace.has("tensor_size", converted.row(name))) for name in names]
    assert has_figures == [False, False, False, True]
    assert converted.trace.tensor_bytes[converted.row("lookup")] == 7 * 8 + 2 * 7 * 64 * 4
    output = "kernels whose operators do more than a device can in their time: without figures"
    assert converted.rank.tally.counts[output] == 1


def test_callers_in_a_cycle_are_reported_and_dropped(tmp_path: Path) -> None:
    def node(number: int, parent: int, name: str = "op") -> dict[str, Any]:
        nothing = {"values": [], "shapes": [], "types": []}
        numbers = {"rf_id": number, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0}
        attributes = [{"name": key, "type": "uint64", "value": value} for key, value in numbers.items()]
        attributes.append({"name": "op_schema", "type": "string", "value": ""})
        own = {"id": number, "name": name, "ctrl_deps": parent, "attrs": attributes}
        return own | {"inputs": nothing, "outputs": nothing}

    nodes = [
        node(1, 1, "[pytorch|profiler|execution_trace|process]"),
        node(5, 7),
        node(6, 5),
        node(7, 6),
        node(8, 1),
    ]
    path = tmp_path / "et_0.json"
    path.write_text(json.dumps({"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": nodes}))
    rank = convert_rank(read_host(path), None)
    output = next(subject for subject in rank.tally.counts if "circle" in subject)
    assert rank.tally.counts[output] == 3
    assert rank.tally.examples[output] == ["5 is called by 7 is called by 6 is called by 5"]
    assert (rank.graph.before < rank.graph.after).all()
