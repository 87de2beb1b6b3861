"""Removal of nodes and of the host: remaining nodes wait for each other as before, with equal delays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from edited_traces import ends, mixed_traces, recorded, waits
from hypothesis import given, settings
from hypothesis import strategies as st

from converters.cli import main
from converters.editing.files import edited
from converters.editing.remove_nodes import remove_nodes
from converters.editing.stripping import durations_ns, strip
from et_sim.basics.errors import TraceError
from et_sim.trace import (
    Trace,
    TraceBuilder,
    Workload,
    decode,
    read_workload,
    write_manifest,
    write_trace,
    write_workload,
)


def spans(trace: Trace, device: dict[int, int]) -> dict[int, int]:
    """Return the recorded time of the host, and other times for devices."""
    recorded_ns = durations_ns(trace).tolist()
    return {
        node_id: recorded_ns[row] if trace.is_cpu[row] else device[node_id]
        for row, node_id in enumerate(trace.node_id.tolist())
    }


@given(mixed_traces())
def test_devices_wait_for_each_other_as_before(trace: Trace) -> None:
    stays = set(trace.node_id[~trace.is_cpu].tolist())
    expected = {(first, second) for first, second in waits(trace) if first in stays and second in stays}
    for keep_delays in (False, True):
        left = decode(strip(recorded(trace), keep_delays=keep_delays).content)
        assert {pair for pair in waits(left) if set(pair) <= stays} == expected
        assert (set(left.node_id.tolist()) == stays) or keep_delays


@given(st.data(), mixed_traces())
@settings(max_examples=2 * settings.default.max_examples)
def test_with_delays_device_nodes_and_the_trace_end_as_before(data: st.DataObject, trace: Trace) -> None:
    stays = trace.node_id[~trace.is_cpu].tolist()
    device = {node: data.draw(st.integers(0, 9000)) for node in stays}
    left = decode(strip(recorded(trace), keep_delays=True).content)
    before, after = ends(trace, spans(trace, device)), ends(left, spans(left, device))
    assert {node: after[node] for node in stays} == {node: before[node] for node in stays}
    assert max(after.values(), default=0) == max(before.values())


def test_a_chain_of_operators_becomes_one_delay() -> None:
    build = TraceBuilder()
    host = build.compute("step", cpu=True, micros=2)
    for _ in range(4):
        host = build.compute("op", cpu=True, micros=3, num_ops=7, after=[host])
    first = build.compute("kernel", micros=50, after=[host])
    for _ in range(3):
        host = build.compute("op", cpu=True, micros=1, after=[host])
    build.compute("kernel", micros=50, after=[host, first])
    left = decode(strip(recorded(build.build()), keep_delays=True).content)
    assert [left.node_name(row) for row in range(len(left))] == ["delay: op", "kernel", "delay: op", "kernel"]
    assert durations_ns(left).tolist() == [14_000, 50_000, 3_000, 50_000]
    assert [left.parents(row).tolist() for row in range(4)] == [[], [0], [0], [1, 2]]
    assert not np.any(left.num_ops)


def test_the_report_is_data_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = TraceBuilder()
    host = build.compute("op", cpu=True, micros=1)
    build.collective("all_reduce", 64, after=[build.compute("kernel", micros=5, after=[host])])
    write_workload(Workload.of([build.build()] * 2), tmp_path / "job")
    for command, arguments in (
        ("strip", []),
        ("slice", ["--ranks", "0-1"]),
        ("scale", ["--replicas", "2"]),
        ("unjson", []),
    ):
        assert (
            main([command, str(tmp_path / "job"), "-o", str(tmp_path / command), *arguments, "--json"]) == 0
        )
        content = json.loads(capsys.readouterr().out)
        assert {Path(path).exists() for file in content["files"] for path in file["outputs"]} == {True}
        assert content["files"][0]["operations"] == {"all_reduce": {"nodes": 1, "bytes": 64}}
    assert main(["scale", str(tmp_path / "job"), "-o", str(tmp_path / "x"), "--replicas", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranks"] == 6


def test_times_beyond_64_bits_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = TraceBuilder()
    host = build.compute("a", cpu=True, micros=2**62)
    host = build.compute("b", cpu=True, micros=2**62, after=[host])
    build.compute("kernel", after=[host])
    write_trace(build.build(), tmp_path / "long.0.et")
    assert main(["strip", str(tmp_path / "long"), "-o", str(tmp_path / "out"), "--keep-delays"]) == 2
    assert "recorded durations add up to more than 64 bits hold" in capsys.readouterr().err
    assert main(["strip", str(tmp_path / "long"), "-o", str(tmp_path / "out")]) == 0
    assert main(["stats", str(tmp_path / "long")]) == 0


def test_a_manifest_stays_one(tmp_path: Path) -> None:
    build = TraceBuilder()
    build.compute("kernel", micros=5, after=[build.compute("op", cpu=True, micros=1)])
    workload = Workload((build.build(),), np.zeros(4096, np.int32))
    write_manifest(workload, tmp_path / "big.workload.json")
    assert main(["strip", str(tmp_path / "big.workload.json"), "-o", str(tmp_path / "bare")]) == 0
    bare = read_workload(tmp_path / "bare.workload.json")
    assert (bare.ranks, bare.trace(4095).names) == (4096, ("kernel",))


def test_a_circle_is_not_stripped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build = TraceBuilder()
    build.compute("a", cpu=True, after=[1], node_id=0)
    build.compute("b", after=[0], node_id=1)
    write_trace(build.build(), tmp_path / "round.0.et")
    for flags in ([], ["--keep-delays"]):
        assert main(["strip", str(tmp_path / "round"), "-o", str(tmp_path / "out"), *flags]) == 2
        assert "wait for each other in a circle" in capsys.readouterr().err
    assert list(tmp_path.glob("out*")) == []


def without(trace: Trace, keep: list[bool]) -> Trace:
    """Return the rest of the trace, read from the bytes that are written."""
    given_trace = recorded(trace)
    mask = np.array(keep, np.bool_)
    return decode(edited(given_trace, mask, remove_nodes(given_trace, mask)))


@given(st.data(), mixed_traces())
def test_nodes_that_stay_wait_for_each_other_as_before(data: st.DataObject, trace: Trace) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(trace), max_size=len(trace)))
    stays = set(trace.node_id[np.array(keep)].tolist())
    expected = {(first, second) for first, second in waits(trace) if first in stays and second in stays}
    left = without(trace, keep)
    assert set(left.node_id.tolist()) == stays
    assert waits(left) == expected


@given(st.data(), mixed_traces())
def test_dependencies_among_nodes_that_stay_are_not_touched(data: st.DataObject, trace: Trace) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(trace), max_size=len(trace)))
    left = without(trace, keep)
    stays = set(left.node_id.tolist())
    for row in np.flatnonzero(keep).tolist():
        after = int(np.searchsorted(left.node_id, trace.node_id[row]))
        for start, deps in (("data_start", "data_deps"), ("ctrl_start", "ctrl_deps")):
            old, new = (
                [int(kept.node_id[p]) for p in getattr(kept, deps)[slice(*getattr(kept, start)[at : at + 2])]]
                for kept, at in ((trace, row), (left, after))
            )
            assert set(old) & stays <= set(new)
            assert len(new) == len(set(new))


def test_known_dependencies_are_not_written_again() -> None:
    build = TraceBuilder()
    kernels = [build.compute("kernel", node_id=0)]
    host = build.compute("sync", cpu=True, after=kernels)
    for _ in range(5):
        host = build.compute("launch", cpu=True, after=[host])
        kernels.append(build.compute("kernel", after=[host, kernels[-1]]))
    trace = recorded(build.build())
    bridges = remove_nodes(trace, ~trace.trace.is_cpu)
    assert bridges.added == 0
    assert (bridges.bridged, bridges.dropped) == (5, 0)


def test_a_dependency_that_leads_to_nothing_is_dropped_and_counted() -> None:
    build = TraceBuilder()
    first = build.compute("host", cpu=True)
    build.compute("kernel", after=[first], ctrl_after=[first])
    trace = recorded(build.build())
    bridges = remove_nodes(trace, ~trace.trace.is_cpu)
    assert (bridges.bridged, bridges.dropped, bridges.added) == (0, 2, 0)
    assert (bridges.data, bridges.ctrl) == ({1: []}, {1: []})


@pytest.mark.parametrize("circle", [[(0, 1), (1, 0)], [(0, 0)]])
def test_a_circle_is_refused(circle: list[tuple[int, int]]) -> None:
    build = TraceBuilder(source="round")
    for node in range(2):
        build.compute("a", after=[after for row, after in circle if row == node], node_id=node)
    trace = recorded(build.build())
    with pytest.raises(TraceError, match="wait for each other in a circle"):
        remove_nodes(trace, np.ones(2, np.bool_))
