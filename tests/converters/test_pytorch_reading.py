"""Columns of recordings hold the content that the standard library's json finds in the files."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import FOLDER, parsed, recordings

from converters.pytorch.columns import ON_DEVICE, DeviceTrace, EventKind, HostNodeKind, HostTrace
from converters.pytorch.reading import identify, read_device, read_host, read_linked

S = EventKind
# Spelled out once more, so that a category that gets lost in the reader is missed here.
SORT_OF = {
    "cpu_op": S.OPERATOR,
    "user_annotation": S.ANNOTATION,
    "cuda_runtime": S.LAUNCH,
    "cuda_driver": S.LAUNCH,
    "Runtime": S.LAUNCH,
    "mtia_runtime": S.LAUNCH,
    "kernel": S.KERNEL,
    "Kernel": S.KERNEL,
    "gpu_memcpy": S.MEMCPY,
    "gpu_memset": S.MEMSET,
    "cuda_sync": S.SYNC,
    "gpu_user_annotation": S.DEVICE_ANNOTATION,
    "overhead": S.OVERHEAD,
    "mtia_ccp_events": S.ACCELERATOR,
}


@dataclass(frozen=True)
class Timeline:
    trace: DeviceTrace
    whole: dict[str, Any]
    events: list[dict[str, Any]]  # those that have a row
    arguments: list[dict[str, Any]]


@dataclass(frozen=True)
class Execution:
    trace: HostTrace
    nodes: list[dict[str, Any]]


@pytest.fixture(scope="module", params=recordings("device"))
def timeline(request: pytest.FixtureRequest) -> Timeline:
    whole = parsed(request.param)
    kept = [event for event in whole["traceEvents"] if event["ph"] == "X" and event.get("cat") in SORT_OF]
    return Timeline(read_device(request.param), whole, kept, [event.get("args", {}) for event in kept])


@pytest.fixture(scope="module", params=recordings("host", "linked"))
def execution(request: pytest.FixtureRequest) -> Execution:
    path = request.param
    trace = read_linked(path)[0] if identify(path).kind == "linked" else read_host(path)
    return Execution(trace, parsed(path)["nodes"])


def nanoseconds(microseconds: Decimal | int) -> int:
    exact = microseconds * 1000
    assert exact == int(exact)
    return int(exact)


def test_every_kept_event_has_its_row(timeline: Timeline) -> None:
    trace, events = timeline.trace, timeline.events
    assert trace.kind.tolist() == [SORT_OF[event["cat"]] for event in events]
    assert [trace.names[name] for name in trace.name] == [event["name"] for event in events]
    assert trace.ts_ns.tolist() == [nanoseconds(event["ts"]) for event in events]
    assert trace.dur_ns.tolist() == [nanoseconds(event["dur"]) for event in events]


def test_ids_are_those_of_the_arguments(timeline: Timeline) -> None:
    trace, arguments = timeline.trace, timeline.arguments
    assert trace.correlation.tolist() == [own.get("correlation", -1) for own in arguments]
    external = [own.get("External id", own.get("external id", -1)) for own in arguments]
    assert trace.external_id.tolist() == external
    assert trace.record_function.tolist() == [own.get("Record function id", 0) or -1 for own in arguments]
    assert trace.sequence.tolist() == [own.get("Sequence number", -1) for own in arguments]


@pytest.mark.deep
def test_lanes_are_threads_and_streams(timeline: Timeline) -> None:
    trace = timeline.trace
    assert len(set(trace.lanes)) == len(trace.lanes)
    for event, sort, lane in zip(timeline.events, trace.kind, trace.lane, strict=True):
        result, own = trace.lanes[lane], event.get("args", {})
        assert (result.process, result.thread) == (event["pid"], event["tid"])
        if sort in ON_DEVICE:
            assert (result.device, result.stream) == (
                own.get("device", event["pid"]),
                own.get("stream", event["tid"]),
            )
        elif sort in (S.OPERATOR, S.LAUNCH):
            assert (result.device, result.stream) == (-1, -1)


def test_every_other_event_is_counted(timeline: Timeline) -> None:
    trace, events = timeline.trace, timeline.whole["traceEvents"]
    others = Counter(
        f"{event['ph']}/{event.get('cat', '')}"
        for event in events
        if not (event["ph"] == "X" and event.get("cat") in {*SORT_OF, "Trace"})
    )
    assert trace.dropped == others
    spans = [event for event in events if event.get("cat") == "Trace"]
    if spans:
        start = min(nanoseconds(event["ts"]) for event in spans)
        end = max(nanoseconds(event["ts"] + event["dur"]) for event in spans)
        assert trace.window_ns == (start, end)


def test_details_are_those_of_the_arguments(timeline: Timeline) -> None:
    trace, events, arguments = timeline.trace, timeline.events, timeline.arguments
    texts = [text.decode() for text in trace.texts]
    collectives = trace.collectives
    rows = [row for row, own in enumerate(arguments) if "Collective name" in own]
    assert collectives.row.tolist() == rows
    for place, row in enumerate(rows):
        own = arguments[row]
        assert texts[collectives.operation[place]] == own["Collective name"]
        assert texts[collectives.dtype[place]] == own["dtype"]
        assert collectives.in_elements[place] == own["In msg nelems"]
        assert collectives.out_elements[place] == own["Out msg nelems"]
        assert texts[collectives.group_name[place]] == own.get("Process Group Name", "")
        assert texts[collectives.group_ranks[place]] == own.get("Process Group Ranks", "")
        assert collectives.group_size[place] == own["Group size"]
    waits = [row for row, own in enumerate(arguments) if "cuda_sync_kind" in own or "wait_on_stream" in own]
    assert trace.waits.row.tolist() == waits
    for place, row in enumerate(waits):
        own = arguments[row]
        assert texts[trace.waits.kind[place]] == own.get("cuda_sync_kind", events[row]["name"])
        assert trace.waits.stream[place] in (own.get("wait_on_stream", -1), -1)
        assert trace.waits.record_correlation[place] == own.get("wait_on_cuda_event_record_corr_id", -1)
    moved = {row: own["bytes"] for row, own in enumerate(arguments) if "bytes" in own}
    result = dict(zip(trace.transfers.row.tolist(), trace.transfers.size_bytes.tolist(), strict=True))
    assert {row: result[row] for row in moved} == moved
    for own, text in zip(arguments, trace.arguments, strict=True):
        assert (text >= 0) == bool("Input Dims" in own or "Input type" in own)
        if text >= 0:
            recorded = json.loads(texts[text])
            assert recorded["dims"] == own.get("Input Dims", [])
            assert recorded["types"] == own.get("Input type", [])
            assert "values" not in recorded or recorded["values"] == own["Concrete Inputs"]


def test_metadata_of_the_run_is_kept(timeline: Timeline) -> None:
    trace, whole = timeline.trace, timeline.whole
    distributed = whole.get("distributedInfo", {})
    assert trace.world_size == distributed.get("world_size", -1)
    assert trace.backend == distributed.get("backend", "")
    if "rank" in distributed:
        assert trace.rank == distributed["rank"] == identify(Path(trace.path)).rank
    assert trace.base_ns == whole.get("baseTimeNanoseconds", 0)
    assert len(trace.device_properties) == len(whole.get("deviceProperties", []))
    groups = [(entry["pg_name"], tuple(entry["ranks"])) for entry in distributed.get("pg_config", [])]
    assert [(group.name, group.ranks) for group in trace.groups] == groups
    assert trace.repaired == 0


def attributes_of(node: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry["value"] for entry in node.get("attrs", [])}


def values_of(node: dict[str, Any], side: str, member: str) -> Any:
    if isinstance(node[f"{side}s"], dict):
        return node[f"{side}s"][member]
    return node[f"{side}s" if member == "values" else f"{side}_{member}"]


def tensors_in(value: Any) -> list[list[Any]]:
    if not isinstance(value, list):
        return []
    if len(value) == 6 and isinstance(value[5], str) and all(isinstance(entry, int) for entry in value[:5]):
        return [value] if value[4] or value[5] else []
    return [tensor for entry in value for tensor in tensors_in(entry)]


def test_every_node_has_its_row(execution: Execution) -> None:
    trace, nodes = execution.trace, execution.nodes
    assert trace.node_id.tolist() == [node["id"] for node in nodes]
    assert trace.parent.tolist() == [node.get("parent", node.get("ctrl_deps")) for node in nodes]
    assert [trace.names[name] for name in trace.name] == [node["name"] for node in nodes]
    for column, key, otherwise in (
        (trace.record_function, "rf_id", -1),
        (trace.thread, "tid", 0),
        (trace.sequence, "seq_id", -1),
        (trace.scope, "scope", 0),
    ):
        output = [node.get(key, attributes_of(node).get(key, otherwise)) for node in nodes]
        assert column.tolist() == output, key


def test_arguments_of_nodes_are_kept(execution: Execution) -> None:
    trace, nodes = execution.trace, execution.nodes
    columns = (
        ("input", "shapes", trace.input_shapes),
        ("input", "types", trace.input_types),
        ("output", "shapes", trace.output_shapes),
        ("output", "types", trace.output_types),
    )
    meanings = [json.loads(text) if text[:1] in b'[{"' else None for text in trace.texts]
    for side, member, column in columns:
        for node, text in zip(nodes, column, strict=True):
            assert meanings[text] == values_of(node, side, member)
    for node, text, sort in zip(nodes, trace.input_values, trace.kind, strict=True):
        if text >= 0:
            assert json.loads(trace.texts[text], parse_float=Decimal) == values_of(node, "input", "values")
        else:
            assert sort not in (HostNodeKind.COMMUNICATION, HostNodeKind.GROUPS, HostNodeKind.C10D)


def test_tensors_of_nodes_are_those_in_their_values(execution: Execution) -> None:
    trace, nodes = execution.trace, execution.nodes
    for side, columns in (("input", trace.inputs), ("output", trace.outputs)):
        expected = [tensors_in(values_of(node, side, "values")) for node in nodes]
        assert np.diff(columns.start).tolist() == [len(result) for result in expected]
        flat = [tensor for result in expected for tensor in result]
        for column, place in ((columns.storage_id, 1), (columns.elements, 3), (columns.element_bytes, 4)):
            assert column.tolist() == [tensor[place] for tensor in flat]
        assert [trace.texts[text].decode() for text in columns.device] == [tensor[5] for tensor in flat]
        arguments = [
            number
            for node in nodes
            for number, value in enumerate(values_of(node, side, "values"))
            for _ in tensors_in(value)
        ]
        assert columns.argument.tolist() == arguments


def test_sorts_of_nodes_add_up(execution: Execution) -> None:
    trace, nodes = execution.trace, execution.nodes
    counts = Counter(trace.kind.tolist())
    names = Counter(node["name"] for node in nodes)
    assert counts[HostNodeKind.COMMUNICATION] == names["record_param_comms"]
    assert counts[HostNodeKind.DEVICE] == sum("cat" in node for node in nodes)
    assert counts[HostNodeKind.PROCESS] == 1
    assert counts[HostNodeKind.THREAD] == sum(count for name, count in names.items() if "|thread]" in name)
    assert counts[HostNodeKind.GROUPS] == sum(
        count for name, count in names.items() if "process_group:init" in name
    )


def test_a_linked_file_is_read_as_both_recordings() -> None:
    path = FOLDER / "dlrm_8r_linked" / "dlrm_eg_0_plus.json.gz"
    host, device = read_linked(path)
    nodes = parsed(path)["nodes"]
    timed = [node for node in nodes if "ts" in node and node["id"] > 1 and "|thread]" not in node["name"]]
    assert len(host) == len(nodes)
    assert device.node_id is not None
    owners = [node["parent"] if "cat" in node else node["id"] for node in timed]
    assert device.node_id.tolist() == owners
    assert device.dur_ns.tolist() == [nanoseconds(node["dur"]) for node in timed]
    launched = np.isin(device.kind, sorted(ON_DEVICE))
    assert int(launched.sum()) == sum("cat" in node for node in nodes)


def test_groups_of_an_execution_trace_are_listed_once() -> None:
    trace = read_host(FOLDER / "gloo_mixed_4r" / "et_0.json.gz")
    assert [(group.name, group.size, group.ranks) for group in trace.groups] == [
        ("0", 4, ()),
        ("1", 2, (0, 1)),
        ("3", 2, (0, 2)),
    ]


@pytest.mark.parametrize("block_bytes", [1 << 10, 5000, 1 << 16])
def test_the_size_of_blocks_does_not_matter(block_bytes: int) -> None:
    path = FOLDER / "gloo_ddp_2r" / "kineto_0.json.gz"
    whole, pieces = read_device(path), read_device(path, block_bytes=block_bytes)
    for name in ("kind", "name", "ts_ns", "dur_ns", "lane", "external_id", "arguments"):
        assert np.array_equal(getattr(whole, name), getattr(pieces, name)), name
    assert (whole.names, whole.texts, whole.lanes) == (pieces.names, pieces.texts, pieces.lanes)


def test_a_file_without_compression_reads_the_same(tmp_path: Path) -> None:
    packed = FOLDER / "simple_add" / "kineto.json.gz"
    plain = tmp_path / "kineto.json"
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    seen: list[int] = []
    trace = read_device(plain, progress=seen.append)
    assert np.array_equal(trace.ts_ns, read_device(packed).ts_ns)
    assert seen == sorted(seen)
    assert seen[-1] == plain.stat().st_size
