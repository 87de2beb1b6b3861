"""The kind of a file follows from its content, and unreadable files are refused in a sentence."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recordings import FOLDER

from converters.pytorch.columns import ABSENT, EventKind
from converters.pytorch.reading import Identity, identify, read_device, read_host, read_linked
from converters.pytorch.reading.values import rank_of_name
from et_sim.basics.errors import TraceError

HOST = FOLDER / "simple_add" / "et.json.gz"
DEVICE = FOLDER / "simple_add" / "kineto.json.gz"
Reader = Callable[[Path], Any]


def written(folder: Path, content: Any, name: str = "file.json") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def event(**members: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2, **members}


SURPRISES = (None, True, -1, 2**63, -(2**70), 1.5, 1e308, "", "0x10", [], [1], {}, {"a": 1}, [[]])


def changed(value: Any, share: float, choose: random.Random) -> Any:
    """Return the value with a share of its parts left out or replaced."""
    if isinstance(value, dict):
        return {
            key: changed(inner, share, choose) for key, inner in value.items() if choose.random() >= share
        }
    if isinstance(value, list):
        return [changed(inner, share, choose) for inner in value]
    return choose.choice(SURPRISES) if choose.random() < share else value


@pytest.mark.parametrize(
    ("path", "identity"),
    [
        ("simple_add/et.json.gz", Identity("host", ABSENT, 563677)),
        ("simple_add/kineto.json.gz", Identity("device", 0, 563677)),
        ("dlrm_8r_linked/dlrm_eg_0_plus.json.gz", Identity("linked", 0, 59811)),
        ("gloo_mixed_4r/et_3.json.gz", Identity("host", 3, 1250)),
        ("gloo_mixed_4r/kineto_3.json.gz", Identity("device", 3, 1250)),
        ("device_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", Identity("device", 34, 1074)),
        ("device_only/rocm_mi250.json.gz", Identity("device", ABSENT, 597913)),
        ("device_only/inference_rank_1.json.gz", Identity("device", 1, ABSENT)),
    ],
)
def test_the_kind_of_a_file_follows_from_its_content(path: str, identity: Identity) -> None:
    assert identify(FOLDER / path) == identity


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"\x08\x01", "starts with b'\\x08\\x01', not with a JSON object"),
        ({"a": 1}, 'holds neither "nodes" nor "traceEvents"'),
        ([[1, 2], [3]], "cannot be read"),
        ([{"a": 1}], "is a list of something else than events"),
        ({"nodes": [{"id": 0}], "links": []}, 'its "nodes" are not those of an execution trace'),
        (b'{"schema": "1.0.1", "nodes": [{"id"', "ends in the middle"),
    ],
)
def test_any_other_file_is_identified_as_other(tmp_path: Path, content: Any, why: str) -> None:
    result = identify(written(tmp_path, content))
    assert result.kind == "other"
    assert why in result.why


def test_the_rank_counts_that_stands_behind_the_events(tmp_path: Path) -> None:
    members = {"traceEvents": [event()] * 20_000, "distributedInfo": {"backend": "nccl", "rank": 12}}
    path = written(tmp_path, members, "trace_3.json")
    assert identify(path).rank == read_device(path).rank == 12
    packed = written(tmp_path, gzip.compress(path.read_bytes()), "trace_4.json.gz")
    assert identify(packed).rank == 12


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("et_3.json", 3),
        ("kineto_12.json.gz", 12),
        ("dlrm_eg_0_plus.json", 0),
        ("worker2_step_12.1694128201554.pt.trace.json", 2),
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("sampled_rank-1.json", 1),
        ("0.json", 0),
        ("mi250_minitoy_train_ROCm6_2_kineto.json", ABSENT),
        ("benchmark_result_2869224_1695835535_trace.json", ABSENT),
        ("host.1694128201554.pt.trace.json", ABSENT),
        ("resnet_1gpu_et.json", ABSENT),
    ],
)
def test_a_name_contains_the_rank_or_none(name: str, rank: int) -> None:
    assert rank_of_name(Path("folder_5") / name) == rank


@pytest.mark.parametrize(
    ("reader", "path", "complaint"),
    [
        (read_device, HOST, "is an execution trace of PyTorch, not a Kineto timeline .*give it as --host"),
        (read_host, DEVICE, "is a Kineto timeline, not an execution trace .*--device"),
        (read_linked, DEVICE, "is a Kineto timeline, not an execution trace"),
    ],
)
def test_swapped_files_are_refused(reader: Reader, path: Path, complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        reader(path)


@pytest.mark.parametrize("reader", [read_host, read_device])
@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"a": []}, 'holds no "(nodes|traceEvents)"'),
        ([], "is a list"),
        ([[1]], "is a list|cannot be read"),
        ({"nodes": [3], "traceEvents": [3]}, r"cannot be read: Expected `object`|is an execution trace"),
        (gzip.compress(b"[" + b"{}," * 1000, mtime=0)[:-20], "the gzip data ends early .*record again"),
        (b"\x1f\x8b" + b"rest" * 20, "the gzip data is damaged"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, reader: Reader, content: Any, complaint: str) -> None:
    with pytest.raises(TraceError, match=complaint):
        reader(written(tmp_path, content))


def test_a_recording_that_was_killed_is_refused(tmp_path: Path) -> None:
    whole = gzip.decompress(DEVICE.read_bytes())
    for length in (100, len(whole) // 2, len(whole) - 5):
        with pytest.raises(TraceError, match=r"ends in the middle of .*probably stopped while writing"):
            read_device(written(tmp_path, whole[:length]))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"nowhere\.json: cannot be read: No such file"):
        read_host(tmp_path / "nowhere.json")


def test_elements_that_do_not_fit_are_named(tmp_path: Path) -> None:
    events = [event() for _ in range(3)] + [event(name=5)]
    with pytest.raises(TraceError, match=r"Expected `str`, got `int` - at `\$\[3\]\.name`"):
        read_device(written(tmp_path, {"traceEvents": events}))
    with pytest.raises(TraceError, match="missing required field `id`"):
        read_host(written(tmp_path, {"schema": "1.0.1", "nodes": [{"name": "a", "ctrl_deps": 1}]}))


def test_node_ids_are_unique(tmp_path: Path) -> None:
    nodes = [{"id": number, "name": "a", "parent": 1} for number in (1, 2, 3, 2, 3)]
    with pytest.raises(TraceError, match="2 node ids are used more than once, the first is 2"):
        read_host(written(tmp_path, {"schema": "1.0.1", "nodes": nodes}))


def test_impossible_times_are_refused(tmp_path: Path) -> None:
    for impossible in (1e300, 2**70, "soon"):
        with pytest.raises(TraceError, match='"ts" of an event is no time of the last centuries'):
            read_device(written(tmp_path, {"traceEvents": [event(ts=impossible)]}))


def test_a_list_of_events_alone_is_a_timeline(tmp_path: Path) -> None:
    trace = read_device(written(tmp_path, [event(), {"ph": "M", "name": "process_name"}]))
    assert trace.kind.tolist() == [EventKind.KERNEL]
    assert trace.dropped == {"M/": 1}


@pytest.mark.parametrize("value", [7, None, "text", [7], {"rank": []}])
def test_members_of_other_kinds_are_ignored(tmp_path: Path, value: Any) -> None:
    keys = ("deviceProperties", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit", "INFO")
    trace = read_device(written(tmp_path, {**dict.fromkeys(keys, value), "traceEvents": [event()]}))
    assert (trace.rank, trace.device_properties, trace.groups) == (ABSENT, (), ())


def test_events_without_times_are_counted(tmp_path: Path) -> None:
    events = [event(), {"ph": "X", "cat": "kernel", "name": "k"}, event(dur=None)]
    trace = read_device(written(tmp_path, {"traceEvents": events}))
    assert (len(trace), trace.dropped) == (1, {"events without a time": 2})


def test_durations_below_zero_are_none_and_counted(tmp_path: Path) -> None:
    trace = read_device(written(tmp_path, {"traceEvents": [event(dur=-3), event(dur=-0.5), event()]}))
    assert trace.dur_ns.tolist() == [0, 0, 2000]
    assert trace.dropped == {"durations below zero, taken as zero": 2}


@pytest.mark.parametrize("dims", ['[["x"]]', "[[null]]", "7", "[7]", "[{}]"])
def test_recorded_inputs_that_make_no_sense_are_left_out_and_counted(tmp_path: Path, dims: str) -> None:
    own = event(cat="cpu_op", args={"Input Dims": json.loads(dims), "Input type": ["float"]})
    trace = read_device(written(tmp_path, {"traceEvents": [own]}))
    assert trace.arguments.tolist() == [ABSENT]
    assert trace.dropped == {"kinds of recorded inputs that cannot be read": 1}


def test_arguments_of_a_node_that_are_no_list_are_refused(tmp_path: Path) -> None:
    groups = {"name": "## process_group:init ##", "inputs": 7, "input_types": []}
    for given in (groups, {"inputs": 7, "input_types": ["Tensor(float)"]}, {"inputs": [], "input_types": 7}):
        node = {"id": 2, "name": "aten::mm", "parent": 1, **given}
        with pytest.raises(TraceError):
            read_host(written(tmp_path, {"schema": "1.0.1", "nodes": [node]}))


def test_a_node_without_arguments_has_no_tensors(tmp_path: Path) -> None:
    node = {"id": 2, "name": "aten::mm", "parent": 1, "input_types": ["Tensor(float)"]}
    trace = read_host(written(tmp_path, {"schema": "1.0.1", "nodes": [node]}))
    assert len(trace) == 1


@pytest.mark.parametrize("name", ["et", "kineto"])
def test_a_file_with_any_change_is_read_or_refused(tmp_path: Path, name: str) -> None:
    whole = json.loads(gzip.decompress((FOLDER / "simple_add" / f"{name}.json.gz").read_bytes()))
    choose = random.Random(name)
    outcomes = set()
    for _ in range(150):
        path = written(tmp_path, changed(whole, 10 ** choose.uniform(-5, -2), choose))
        for reader in (read_host, read_device, read_linked):
            try:
                reader(path)
                outcomes.add("read")
            except TraceError:
                outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_absolute_times_with_decimals_are_exact(tmp_path: Path) -> None:
    content = b'{"traceEvents": [%s, %s]}' % (
        b'{"ph": "X", "cat": "kernel", "name": "a", "ts": 1712345678901234.567, "dur": 1.001}',
        b'{"ph": "X", "cat": "cpu_op", "name": "b", "ts": 1712345678901235, "dur": 0.1}',
    )
    trace = read_device(written(tmp_path, content))
    assert trace.ts_ns.tolist() == [1712345678901234567, 1712345678901235000]
    assert trace.dur_ns.tolist() == [1001, 100]


def test_almost_valid_json_is_corrected_and_counted(tmp_path: Path) -> None:
    args = b'"args": {"correlation": 3, "memory bandwidth (GB/s)": inf}'
    broken = b'{"ph": "X", "cat": "gpu_memcpy", "name": "copy \xff", "ts": 1, "dur": 2, %s}' % args
    trace = read_device(written(tmp_path, b'{"traceEvents": [%s]}' % broken))
    assert trace.names == ("copy �",)
    assert trace.correlation.tolist() == [3]
    assert trace.repaired == 1


def test_numbers_in_quotation_marks_and_without_a_sign_are_read(tmp_path: Path) -> None:
    args = {"External id": "17", "correlation": 2**64 - 1, "device": "0", "stream": 2**32 - 1}
    trace = read_device(written(tmp_path, {"traceEvents": [event(args=args), event(pid="GPU", tid="7")]}))
    assert trace.external_id.tolist() == [17, ABSENT]
    assert trace.correlation.tolist() == [ABSENT, ABSENT]
    assert [(lane.device, lane.stream) for lane in trace.lanes] == [(0, ABSENT), (-2, 7)]


def test_kernels_of_a_graph_share_a_correlation(tmp_path: Path) -> None:
    launch = event(cat="cuda_runtime", name="cudaGraphLaunch", args={"correlation": 9})
    kernels = [event(args={"correlation": 9, "stream": 7, "device": 0}) for _ in range(3)]
    trace = read_device(written(tmp_path, {"traceEvents": [launch, *kernels]}))
    assert trace.correlation.tolist() == [9] * 4


def test_a_linked_file_of_a_later_schema_is_read(tmp_path: Path) -> None:
    attributes = [
        {"name": name, "type": "uint64", "value": value} for name, value in (("rf_id", 5), ("tid", 1))
    ]
    empty: dict[str, list[Any]] = {"values": [], "shapes": [], "types": []}
    operator = {"id": 3, "name": "aten::mm", "ctrl_deps": 2, "inputs": empty, "outputs": empty}
    host = {**operator, "attrs": attributes, "ts": 10.5, "inclusive_dur": 4.25, "exclusive_dur": 4.25}
    kernel = {"cat": "kernel", "ph": "X", "ts": 12, "inclusive_dur": 7, "stream": 20}
    device = {**operator, **kernel, "id": 4, "name": "gemm", "ctrl_deps": 3}
    path = written(tmp_path, {"schema": "1.0.2-chakra.0.0.4", "nodes": [host, device]})
    assert identify(path).kind == "linked"
    nodes, events = read_linked(path)
    assert nodes.node_id.tolist() == [3, 4]
    assert events.node_id is not None
    assert events.node_id.tolist() == [3, 3]
    assert events.kind.tolist() == [EventKind.OPERATOR, EventKind.KERNEL]
    assert events.dur_ns.tolist() == [4250, 7000]
    assert events.record_function.tolist() == [5, ABSENT]
    assert events.lanes[1].stream == 20
