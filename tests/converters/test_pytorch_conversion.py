"""Recordings of PyTorch become traces with the same content and the same times."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import RING_2, system
from pytorch_cases import REPORTS, Case, cases, content, converted, report, some
from pytorch_cases import every as every_of
from recordings import FOLDER, parsed

import et_sim
from converters.pytorch.columns import NONE
from converters.pytorch.graph import RunPart
from et_sim.trace import Trace, Workload, decode
from et_sim.trace.columns import CollectiveKind, NodeKind
from et_sim.trace.group_attributes import read_process_groups
from et_sim.trace.schema import messages

DLRM = {"allreduce": "all_reduce", "all_to_all": "all_to_all", "all_to_allv": "all_to_all"}
GOLDEN = json.loads(REPORTS.read_text())
SYSTEM = system(**{"replay-only": 1})


def every(*, timed: bool | None = None) -> Any:
    """Return the cases with a timeline or without one."""
    chosen = [case for case in cases() if timed is None or (case.host is None or bool(case.device)) == timed]
    return every_of(chosen)


def named(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


def events(path: Path) -> list[dict[str, Any]]:
    content = parsed(path)
    return [
        event
        for event in (content["traceEvents"] if isinstance(content, dict) else content)
        if event.get("ph") == "X"
    ]


def nanoseconds(micros: Any) -> int:
    return int(micros * 1000)


@every()
def test_the_report_is_as_before(case: Case) -> None:
    assert json.loads(json.dumps(report(case))) == GOLDEN[case.name]


@every(timed=True)
def test_replaying_measured_durations_takes_as_long_as_was_measured(case: Case) -> None:
    time = report(case)["time"]
    late = report(case)["remarks"].get(
        "communications of one stream that overlap in the recording (kept in order)"
    )
    assert time["replayed_ns"] == time["measured_ns"]
    assert time["early_nodes"] == 0
    assert time["late_nodes"] == 0 or late


@pytest.mark.parametrize(
    "name",
    [
        "megatron_tp8/et_0+kineto",
        "dlrm_8r/et_1+kineto",
        "dlrm_8r_linked/dlrm_eg_0_plus",
        "gloo_ddp_2r/et_1+kineto",
        "fake_fsdp2_tp4_1024/et_5+kineto",
        "device_only/alexnet",
        "device_only/rocm_mi250",
        "device_only/b200_eager",
        "device_only/mtia_inference_rank_0",
    ],
)
def test_the_simulator_replays_the_reported_time(name: str) -> None:
    workload = Workload((decode(content(named(name)), name),), np.zeros(2, np.int32), source=name)
    result = et_sim.simulate(workload, system=SYSTEM, network=RING_2)
    assert result.makespan_ns == GOLDEN[name]["time"]["replayed_ns"]


@every(timed=True)
def test_kernels_and_copies_are_those_of_the_timeline(case: Case) -> None:
    if case.device is None or case.name.endswith("1 iteration of 30"):
        pytest.skip("not all of a plain timeline")
    wanted: Counter[tuple[str, int]] = Counter()
    for event in events(case.device):
        if event.get("cat", "").lower() in ("kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events"):
            wanted[event["name"], nanoseconds(event.get("dur", 0))] += 1
    rank = converted(case)
    assert rank.device is not None
    some = np.flatnonzero((rank.graph.work != NONE) & (rank.graph.role != RunPart.COMMUNICATION))
    lasting = (rank.graph.end_ns - rank.graph.start_ns)[some].tolist()
    names = [rank.device.names[at] for at in rank.device.name[rank.event[some]].tolist()]
    assert Counter(zip(names, lasting, strict=True)) == wanted


@every(timed=True)
def test_the_span_is_that_of_the_timeline(case: Case) -> None:
    if case.device is None or case.name.endswith("1 iteration of 30"):
        pytest.skip("not all of a plain timeline")
    left_out = ("Trace", "python_function", "gpu_user_annotation", "overhead", "cuda_sync")
    kept = [event for event in events(case.device) if event.get("cat") not in left_out]
    rank = converted(case)
    assert rank.device is not None
    is_node = np.zeros(len(rank.device), bool)
    events_of_nodes = rank.event[:]
    is_node[events_of_nodes[events_of_nodes != NONE]] = True
    ends = rank.device.ts_ns[is_node] + rank.device.dur_ns[is_node]
    assert rank.measured_ns == int(ends.max()) - int(rank.device.ts_ns[is_node].min())
    whole = max(event["ts"] + event.get("dur", 0) for event in kept) - min(event["ts"] for event in kept)
    assert rank.measured_ns <= nanoseconds(whole) + 1


@some(cases(), 4)
def test_the_protobuf_library_reads_the_file_and_would_write_the_same(case: Case) -> None:
    records = list(split(content(case)))
    header, node = messages().GlobalMetadata(), messages().Node()
    header.ParseFromString(records[0])
    assert header.SerializeToString() == records[0]
    for number, record in enumerate(records[1:], 1):
        node.Clear()
        node.ParseFromString(record)
        assert node.id == number
        assert node.SerializeToString() == record
        kinds = {attribute.name: attribute.WhichOneof("value") for attribute in node.attr}
        assert kinds["is_cpu_op"] == kinds["concurrent"] == "bool_val"
        assert kinds.get("comm_size", "int64_val") == kinds.get("comm_type", "int64_val") == "int64_val"
        assert all(
            kinds.get(name, "int32_val") == "int32_val" for name in ("comm_src", "comm_dst", "comm_tag")
        )


def split(data: bytes) -> Any:
    at = 0
    while at < len(data):
        size, shift = 0, 0
        while True:
            size |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if not data[at - 1] & 128:
                break
        yield data[at : at + size]
        at += size


@every()
def test_the_simulators_reader_finds_the_same_columns(case: Case) -> None:
    rank, trace = converted(case), decode(content(case), case.name)
    assert len(trace) == len(rank.graph)
    assert trace.is_concurrent.all()
    communicates = rank.communication != NONE
    assert not trace.is_cpu[communicates].any()
    if rank.is_timed:
        timed = trace.kind != NodeKind.METADATA
        assert (trace.duration_ns == rank.graph.end_ns - rank.graph.start_ns)[timed].all()
    both = np.diff(trace.data_start).sum() + np.diff(trace.ctrl_start).sum()
    assert both == len(rank.graph.before)
    assert read_process_groups(trace) == dict(rank.groups)


@every()
def test_dependencies_lead_from_earlier_rows_to_later_ones(case: Case) -> None:
    graph = converted(case).graph
    assert (graph.before < graph.after).all()


@every(timed=True)
def test_nodes_of_a_thread_follow_each_other_and_cover_its_time(case: Case) -> None:
    rank = converted(case)
    roles = (
        RunPart.KERNEL,
        RunPart.COPY,
        RunPart.FILL,
        RunPart.ACCELERATOR,
        RunPart.METADATA,
        RunPart.LAUNCH_GAP,
        RunPart.STREAM_GAP,
    )
    assert rank.device is not None
    host = ~np.isin(rank.graph.role, roles) & (rank.graph.work == NONE)
    lanes = len(
        {int(rank.device.lane[event]) for event in rank.event[:][host & (rank.event[:] != NONE)].tolist()}
    )
    if not lanes:
        return
    time = (rank.graph.end_ns - rank.graph.start_ns)[host].sum()
    waiting = GOLDEN[case.name]["dependencies"].get("sync", 0) + GOLDEN[case.name]["dependencies"].get(
        "cross-thread", 0
    )
    assert time <= lanes * rank.measured_ns
    if lanes == 1 and not waiting:  # a thread that never waits is busy or in a gap at every moment
        ends = max(rank.graph.end_ns[host])
        assert time == ends


def host_records(path: Path) -> Counter[str]:
    """Return bytes by collective, by the tensors of record_param_comms, of groups of more than one rank."""
    counts: Counter[str] = Counter()
    for node in parsed(path)["nodes"]:
        if node["name"] != "record_param_comms":
            continue
        values = node["inputs"]["values"] if isinstance(node["inputs"], dict) else node["inputs"]
        name = next((value for value in values if isinstance(value, str)), "")
        sizes = [value for value in values if isinstance(value, int)]
        if name and name != "wait" and (len(sizes) < 4 or sizes[-1] != 1):
            tensors = values[0] if isinstance(values[0][0], list) else values[:1]
            counts[name] += sum(tensor[3] * tensor[4] for tensor in tensors)
    return counts


@pytest.mark.parametrize(
    ("name", "operations"),
    [
        pytest.param("megatron_tp8/et_0+kineto", {"allreduce": "all_reduce"}, marks=pytest.mark.deep),
        pytest.param("megatron_tp8/et_1+kineto", {"allreduce": "all_reduce"}, marks=pytest.mark.deep),
        ("dlrm_8r/et_0+kineto", DLRM),
        ("dlrm_8r/et_1", DLRM),
        ("host_only/one_step_1.0.2", {"all_gather": "all_gather"}),
    ],
)
def test_bytes_by_collective_are_those_of_the_recorded_tensors(name: str, operations: dict[str, str]) -> None:
    case = named(name)
    assert case.host is not None
    wanted: Counter[str] = Counter()
    for recorded, size in host_records(case.host).items():
        wanted[operations[recorded]] += size
    results = {entry["operation"]: entry["bytes"] for entry in report(case)["communication"]}
    assert results == dict(wanted)


@pytest.mark.deep
def test_bytes_by_collective_are_those_of_the_kernels_arguments() -> None:
    case = named("device_only/nccl_ddp")
    assert case.device is not None
    each = {"Float": 4, "Long": 8}
    wanted: Counter[str] = Counter()
    for event in events(case.device):
        arguments = event.get("args", {})
        if event.get("cat") == "kernel" and "Collective name" in arguments:
            wanted[arguments["Collective name"]] += int(arguments["In msg nelems"]) * each[arguments["dtype"]]
    results = {entry["operation"].replace("_", ""): entry["bytes"] for entry in report(case)["communication"]}
    assert results == dict(wanted)


def test_a_collective_of_gloo_takes_the_workers_time_and_comes_after_its_operator() -> None:
    rank = converted(named("gloo_ddp_2r/et_0+kineto"))
    carried = np.flatnonzero(rank.communication != NONE)
    workers = [
        event
        for event in events(FOLDER / "gloo_ddp_2r/kineto_0.json.gz")
        if event["name"] == "gloo:all_reduce"
    ]
    lasting = (rank.graph.end_ns - rank.graph.start_ns)[carried]
    assert lasting.tolist() == [
        nanoseconds(span["dur"]) for span in sorted(workers, key=lambda span: span["ts"])
    ]
    assert [rank.communications[at].comm_bytes for at in rank.communication[carried]] == [99968 * 4] * 2
    assert all(
        rank.communications[at].operation.collective == CollectiveKind.ALL_REDUCE
        for at in rank.communication[carried]
    )


def simulated(traces: list[Trace], **system: object) -> Any:
    workload = Workload(tuple(traces), np.arange(len(traces), dtype=np.int32), source="recorded")
    network = RING_2 | {"npus_count": [len(traces)]}
    return et_sim.simulate(workload, system=SYSTEM | {"replay-only": 0} | system, network=network)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["gloo_ddp_2r", "megatron_tp8", "dlrm_8r"])
def test_two_ranks_simulate_with_their_communication_on_a_network(name: str) -> None:
    traces = [decode(content(named(f"{name}/et_{rank}+kineto")), f"{name}.{rank}") for rank in (0, 1)]
    result = simulated(traces)
    slower = et_sim.simulate(
        Workload(tuple(traces), np.arange(2, dtype=np.int32), source=name),
        system=SYSTEM | {"replay-only": 0},
        network=RING_2 | {"bandwidth": [0.05]},
    )
    assert slower.makespan_ns > result.makespan_ns  # communication matters
    host = [GOLDEN[f"{name}/et_{rank}+kineto"]["time"]["measured_ns"] for rank in (0, 1)]
    assert result.makespan_ns >= 0.5 * max(host)
