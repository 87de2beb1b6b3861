"""`et-convert slice`: parts of a workload without references to the rest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from edited_traces import mixed_traces, recorded, waits
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from converters.cli import main
from converters.editing.files import Input
from converters.editing.slicing import Wanted, cut, iteration_of_rows, parse_window
from converters.records import frame, parse, split
from et_sim.basics.errors import EtSimError
from et_sim.trace import (
    Trace,
    TraceBuilder,
    Workload,
    read_trace,
    read_workload,
    write_manifest,
    write_trace,
    write_workload,
)
from et_sim.trace.group_attributes import read_process_groups
from et_sim.trace.preflight import find_problems


def steps(rank: int, ranks: int, *, iterations: int = 3, group: str = "") -> Trace:
    """Write iterations of host, kernel, all-reduce and a message to the next rank, after a warm-up."""
    build = TraceBuilder()
    build.process_groups({"1": range(ranks // 2), "2": range(ranks // 2, ranks)})
    host = build.compute("warm-up", cpu=True, micros=1)
    reduced: list[int] = []
    for number in range(4, 4 + iterations):
        host = build.compute(f"ProfilerStep#{number}", cpu=True, micros=1, after=[host])
        host = build.compute("launch", cpu=True, micros=1, after=[host])
        kernel = build.compute("kernel", micros=50, after=[host, *reduced])
        reduced = [build.collective("all_reduce", 1 << 20, group, after=[kernel])]
        build.send((rank + 1) % ranks, 64, number, after=[kernel])
        build.receive((rank - 1) % ranks, 64, number, after=[host])
    return build.build()


def write_steps(prefix: str, ranks: int = 4, *, by_half: bool = False) -> None:
    group = [("1" if rank < ranks // 2 else "2") if by_half else "" for rank in range(ranks)]
    write_workload(Workload.of([steps(rank, ranks, group=group[rank]) for rank in range(ranks)]), prefix)


def with_starts(path: Path, starts: list[int]) -> None:
    """Give the nodes of a file their recorded starts."""
    header, *nodes = parse(split(path.read_bytes()), str(path))
    for node, start in zip(nodes, starts, strict=True):
        node.start_time_micros = start
    path.write_bytes(frame([header, *nodes]))


pytestmark = pytest.mark.usefixtures("in_a_folder")


def names(path: str) -> list[str]:
    trace = read_trace(path)
    return [trace.node_name(row) for row in range(len(trace))]


def test_an_iteration_holds_exactly_its_launched_work(capsys: pytest.CaptureFixture[str]) -> None:
    write_steps("job")
    assert main(["slice", "job", "-o", "one", "--iterations", "5"]) == 0
    assert names("one.0.et") == [
        "process_group:init",
        "ProfilerStep#5",
        "launch",
        "kernel",
        "all_reduce",
        "send",
        "receive",
    ]
    assert capsys.readouterr().out.splitlines()[:6] == [
        "job.0.et to job.3.et (4) (sliced) -> one.0.et to one.3.et (4)",
        "  nodes          7 in each file: 1 METADATA, 3 COMP, 1 SEND, 1 RECV, 1 COLL",
        "  all_reduce     1 MiB in 1 node",
        "  send           64 B in 1 node",
        "  receive        64 B in 1 node",
        "  no iteration   1 node before the first marker",
    ]
    assert find_problems(read_workload("one")) == []


def test_iterations_can_be_named_by_any_marker() -> None:
    build = TraceBuilder()
    for _ in range(3):
        build.compute("forward", after=[build.compute("batch")])
    write_trace(build.build(), "plain.0.et")
    assert main(["slice", "plain", "-o", "part", "--iterations", "0,2", "--marker", "batch"]) == 0
    assert read_trace("part.0.et").node_id.tolist() == [0, 1, 4, 5]


def test_the_number_of_a_marker_may_stand_anywhere() -> None:
    build = TraceBuilder()
    for number in range(3):
        build.compute("work", after=[build.compute(f"batch {number} begin")])
    write_trace(build.build(), "plain.0.et")
    assert main(["slice", "plain", "-o", "part", "--iterations", "1", "--marker", "batch # begin"]) == 0
    assert read_trace("part.0.et").node_id.tolist() == [2, 3]


def test_every_trace_uses_the_first_marker_that_it_contains() -> None:
    traces = []
    for name in ("embed", "receive"):
        build = TraceBuilder()
        for number in range(3):
            build.compute("layer", after=[build.compute(f"{name} {number}")])
        traces.append(build.build())
    write_workload(Workload.of(traces), "stages")
    call = ["slice", "stages", "-o", "part", "--iterations", "2", "--marker", "embed", "--marker", "receive"]
    assert main(call) == 0
    assert names("part.0.et") == ["embed 2", "layer"]
    assert names("part.1.et") == ["receive 2", "layer"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--iterations", "4"], 'no node is called "ProfilerStep", alone or with a number behind it'),
        (["--iterations", "4"], "(numbered here: step #)"),
        (["--iterations", "9", "--marker", "step"], "there is no iteration 9 (there are 0-1: correct"),
        (["--window", "1ms:2ms"], "no node has a start (start_time_micros)"),
        (["--window", "2ms:1ms"], "--window 2ms:1ms ends before it begins"),
        (["--window", "2ms"], "give BEGIN:END with units"),
        (["--ranks", "0-4"], "--ranks names rank 4, and there are ranks 0 to 1"),
        (
            ["--ranks", "1"],
            "ranks 1 alone would leave gaps, and files are numbered from 0 on (add --renumber",
        ),
        (["--iterations", "-1"], "--iterations '-1' cannot be understood (give numbers and ranges"),
        (["--iterations", "0-99999999999999", "--marker", "step"], "there is no iteration 2"),
        ([], "the slice has no limits"),
        (["--marker", "x", "--ranks", "0"], "--marker requires --iterations"),
    ],
)
def test_impossible_slices_are_refused_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    build = TraceBuilder()
    build.compute("step 1", after=[build.compute("step 0")])
    write_workload(Workload.of([build.build()] * 2), "two")
    assert main(["slice", "two", "-o", "out", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert list(Path().glob("out*")) == []


def test_a_window_of_time_counts_from_the_earliest_start_of_all_ranks() -> None:
    build = TraceBuilder()
    for number in range(4):
        build.compute(f"op {number}", after=[number - 1] if number else [])
    for rank, begin in ((0, 1_000_500), (1, 1_000_000)):
        write_trace(build.build(), f"timed.{rank}.et")
        with_starts(Path(f"timed.{rank}.et"), [begin + 1000 * step for step in range(4)])
    assert main(["slice", "timed", "-o", "part", "--window", "1ms:2500us"]) == 0
    assert names("part.0.et") == ["op 1"]
    assert names("part.1.et") == ["op 1", "op 2"]


@pytest.mark.parametrize("text", ["10ms:20ms", ":20ms", "10ms:"])
def test_either_end_of_a_window_may_be_open(text: str) -> None:
    assert parse_window(text) == (
        0.0 if text.startswith(":") else 10_000.0,
        float("inf") if text.endswith(":") else 20_000.0,
    )


def test_ranks_with_complete_groups_are_renumbered(capsys: pytest.CaptureFixture[str]) -> None:
    build = [TraceBuilder() for _ in range(6)]
    for rank, builder in enumerate(build):
        builder.process_groups({"7": [0, 2, 4], "8": [1, 3, 5]})
        builder.send((rank + 2) % 6, 64)
        builder.receive((rank - 2) % 6, 64)
        builder.collective("broadcast", 64, "8" if rank % 2 else "7", root=rank % 2 + 2)
    write_workload(Workload.of([builder.build() for builder in build]), "six")
    assert main(["slice", "six", "-o", "odd", "--ranks", "1,3,5"]) == 2
    assert "--renumber" in capsys.readouterr().err
    assert main(["slice", "six", "-o", "odd", "--ranks", "1,3,5", "--renumber"]) == 0
    odd = read_workload("odd")
    assert [odd.trace(rank).comm_dst[1].item() for rank in range(3)] == [1, 2, 0]
    assert [odd.trace(rank).comm_src[2].item() for rank in range(3)] == [2, 0, 1]
    assert [odd.trace(rank).comm_src[3].item() for rank in range(3)] == [1, 1, 1]
    assert read_process_groups(odd.trace(0)) == {"8": (0, 1, 2)}
    assert find_problems(odd) == []
    printed = capsys.readouterr().out
    assert "groups         1 description of groups with members outside left out" in printed
    assert "note: ranks 1,3,5 are ranks 0-2 of the slice" in printed


def test_a_groups_file_follows_the_ranks() -> None:
    traces = []
    for rank in range(4):
        build = TraceBuilder()
        build.collective("all_reduce", 64, "1" if rank < 2 else "2")
        traces.append(build.build())
    write_workload(Workload.of(traces), "four")
    Path("groups.json").write_text('{"1": [0, 1], "2": [3, 2]}', encoding="utf-8")
    call = ["slice", "four", "-o", "half", "--ranks", "2-3", "--renumber", "--groups", "groups.json"]
    assert main(call) == 0
    assert json.loads(Path("half.groups.json").read_text(encoding="utf-8")) == {"2": [1, 0]}


def test_a_missing_groups_file_is_requested(capsys: pytest.CaptureFixture[str]) -> None:
    traces = []
    for rank in range(4):
        build = TraceBuilder()
        build.collective("all_reduce", 64, "1" if rank < 2 else "2")
        traces.append(build.build())
    write_workload(Workload.of(traces), "four")
    assert main(["slice", "four", "-o", "half", "--ranks", "2-3", "--renumber"]) == 0
    printed = capsys.readouterr().out
    assert "note: the members of groups 1, 2 are unknown: give a groups file with --groups" in printed


def test_communication_with_partners_outside_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    write_steps("job")
    assert main(["slice", "job", "-o", "half", "--ranks", "0-1"]) == 2
    assert (
        'node 5 "all_reduce" of rank 0 is in the slice, and meets node 5 "all_reduce" of rank 2'
        " (the group of all ranks), whose rank is not;"
    ) in capsys.readouterr().err
    write_steps("halves", by_half=True)
    assert main(["slice", "halves", "-o", "half", "--ranks", "0-1"]) == 2
    assert "(message from rank 3 to rank 0), whose rank is not; 5 more" in capsys.readouterr().err


def test_communication_with_partners_outside_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    write_steps("halves", by_half=True)
    assert main(["slice", "halves", "-o", "half", "--ranks", "0-1", "--drop-open"]) == 0
    assert "note: 6 communication nodes with partners outside were left out" in capsys.readouterr().out
    half = read_workload("half")
    assert find_problems(half) == []
    assert names("half.0.et").count("send") == 3
    assert names("half.0.et").count("receive") == 0
    assert names("half.0.et").count("all_reduce") == 3


def test_a_window_that_cuts_through_a_collective_drops_it_everywhere() -> None:
    traces = []
    for _ in range(2):
        build = TraceBuilder()
        first = build.compute("a")
        first = build.collective("all_reduce", 64, after=[first])
        first = build.compute("b", after=[first])
        build.compute("c", after=[build.collective("all_reduce", 64, after=[first])])
        traces.append(build.build())
    write_workload(Workload.of(traces), "cut")
    with_starts(Path("cut.0.et"), [1, 10, 20, 30, 40])
    with_starts(Path("cut.1.et"), [1, 8, 20, 30, 40])
    assert main(["slice", "cut", "-o", "part", "--window", "8us:", "--drop-open"]) == 0
    assert names("part.0.et") == ["b", "all_reduce", "c"]
    assert names("part.1.et") == ["b", "all_reduce", "c"]


def test_the_slice_of_a_manifest_is_a_manifest() -> None:
    write_manifest(
        Workload((steps(0, 1),), np.zeros(64, np.int32), relative_peers=(True,)), "big.workload.json"
    )
    assert main(["slice", "big.workload.json", "-o", "part", "--iterations", "4-5"]) == 0
    part = read_workload("part.workload.json")
    assert (part.ranks, len(part.trace(63))) == (64, 13)
    assert main(["slice", "big.workload.json", "-o", "part", "--ranks", "0"]) == 2


def test_an_input_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    write_steps("job")
    assert main(["slice", "job", "-o", "job", "--iterations", "4"]) == 2
    assert "would be overwritten, and it is an input" in capsys.readouterr().err


@given(st.data(), mixed_traces())
def test_an_iteration_number_is_the_largest_before_a_node(data: st.DataObject, trace: Trace) -> None:
    marked = data.draw(st.lists(st.sampled_from(trace.names), min_size=1, unique=True))
    numbers = {name: data.draw(st.integers(0, 5)) for name in marked}
    renamed = tuple(f"mark #{numbers[name]}" if name in numbers else name for name in trace.names)
    marked_trace = recorded(replace(trace, names=renamed))
    result = dict(
        zip(trace.node_id.tolist(), iteration_of_rows(marked_trace, ["mark "]).tolist(), strict=True)
    )
    own = {
        int(trace.node_id[row]): numbers[trace.node_name(row)]
        for row in range(len(trace))
        if trace.node_name(row) in numbers
    }
    for node in result:
        before = [own[parent] for parent, after in waits(trace) if after == node and parent in own]
        assert result[node] == max([*before, own.get(node, -1)], default=-1)


@given(st.data(), st.integers(2, 4))
def test_any_slice_is_consistent(data: st.DataObject, ranks: int) -> None:
    """Cut random windows of random communication; after --drop-open, the pre-flight finds no fault."""
    events = data.draw(
        st.lists(st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1), st.booleans()), max_size=8)
    )
    built = [TraceBuilder(source=f"random.{rank}") for rank in range(ranks)]
    for source, target, is_message in events:
        if not is_message:
            for build in built:
                build.collective("all_reduce", 64)
        elif source != target:
            built[source].send(target, 64)
            built[target].receive(source, 64)
    given_traces = tuple(recorded(build.build()) for build in built)
    for at, recording in enumerate(given_traces):
        size = len(recording.trace)
        starts = data.draw(st.lists(st.integers(1, 20), min_size=size, max_size=size))
        for number, (record, start) in enumerate(zip(recording.nodes(), starts, strict=True)):
            record.start_time_micros = start
            recording.records[number] = record.SerializeToString()
        assert at < ranks
    workload = Workload.of([trace.trace for trace in given_traces])
    workload = Workload(
        workload.templates,
        workload.template_of_rank,
        inputs=tuple((f"random.{rank}", "") for rank in range(ranks)),
        has_file_per_rank=True,
    )
    wanted = Wanted(window_us=(data.draw(st.integers(0, 10)), 30.0), drop_open=True)
    try:
        edit = cut(Input(workload, given_traces, False), wanted, "out")
    except EtSimError as error:
        sentence = str(error)
        assume("no node has a start" not in sentence)
        raise
    from converters.editing.files import decoded

    left = Workload.of(decoded([(content, str(at)) for at, content in enumerate(edit.contents)]))
    assert [problem for problem in find_problems(left) if problem.severity == "error"] == []


def test_everything_that_stays_keeps_its_bytes() -> None:
    write_steps("job")
    assert main(["slice", "job", "-o", "all", "--iterations", "4-6", "--ranks", "0-3"]) == 0
    old = list(split(Path("job.1.et").read_bytes()))
    new = list(split(Path("all.1.et").read_bytes()))
    assert [*new[:2], *new[3:]] == [*old[:2], *old[4:]]  # the first marker has lost the warm-up
