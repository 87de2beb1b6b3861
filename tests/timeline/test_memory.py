"""Tracking of local memory, from traces to tables: tracked tensors, refusals, and folding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import FIFO_RING, ring

import et_sim
from et_sim.api import run
from et_sim.basics.errors import TraceError
from et_sim.cli import main
from et_sim.timeline import OutputFilter, write_run
from et_sim.trace import decode
from et_sim.trace.schema import messages
from et_sim.views import open_run
from et_sim.views.summary.memory import memory_peaks
from et_sim.views.view import view_text

NETWORK = ring(4, "50GB/s")
TRACKING = {**FIFO_RING, "track-local-mem": 1}


def simulated(traces: list[et_sim.Trace], system: dict[str, Any] = TRACKING, **options: Any) -> et_sim.Result:
    return run(et_sim.Workload.of(traces), system=system, network=NETWORK, **options)


def chain(size: int = 1000) -> et_sim.Trace:
    build = et_sim.TraceBuilder()
    first = build.compute("first", micros=5, inputs={"x": 10}, outputs={"y": size, "unread": 1})
    build.compute("second", micros=3, inputs={"y": size}, outputs={}, after=[first])
    return build.build()


def with_lists(inputs: list[str]) -> et_sim.Trace:
    node = messages().Node(id=7, name="odd", type=4, duration_micros=1)
    node.attr.add(name="is_cpu_op", bool_val=False)
    node.attr.add(name="inputs").string_list.values.extend(inputs)
    records = [messages().GlobalMetadata(version="v"), node]
    content = b"".join(bytes([r.ByteSize()]) + r.SerializeToString() for r in records)
    return decode(content, "odd.0.et")


def test_the_table_lists_changes_of_memory_in_order() -> None:
    result = simulated([chain()] * 4, fold=False)
    story = [tuple(row.values()) for row in result.memory.to_pylist() if row["actor"] == 2]
    assert story == [
        (2, 0, "given", "x", "unknown", None, 10, 1011),
        (2, 0, "written", "y", "unknown", 0, 1000, 1011),
        (2, 0, "written", "unread", "unknown", 0, 1, 1011),
        (2, 5000, "released", "x", "unknown", 0, -10, 1001),
        (2, 8000, "released", "y", "unknown", 1, -1000, 1),
    ]
    assert result.peak_memory_bytes.tolist() == [1011] * 4
    assert [entry["peak_memory_bytes"] for entry in result.summary()["per_rank"]] == [1011]
    assert result.coverage["without_tensors"] == 0
    assert result.coverage["ignored_attributes"] == {}
    assert not any(warning["key"] == "track-local-mem" for warning in result.manifest["warnings"])


def test_without_the_key_nothing_is_tracked_and_the_lists_are_counted_as_ignored() -> None:
    result = simulated([chain()] * 4, FIFO_RING)
    assert result.memory is None
    assert result.peak_memory_bytes is None
    assert result.summary()["per_rank"][0]["peak_memory_bytes"] is None
    assert result.coverage["without_tensors"] is None
    assert result.coverage["ignored_attributes"] == {"inputs": 8, "outputs": 8}


def test_nodes_that_name_no_tensors_are_counted_and_warned_of() -> None:
    build = et_sim.TraceBuilder()
    build.compute("silent", micros=5)
    build.compute("speaks", micros=5, outputs={"y": 3})
    result = simulated([build.build(), *[chain()] * 3])
    assert result.coverage["without_tensors"] == 1
    [warning] = [warning for warning in result.manifest["warnings"] if warning["key"] == "track-local-mem"]
    assert warning["text"].startswith("1 of 8 nodes name no tensors")
    assert result.peak_memory_bytes.tolist() == [3, 1011, 1011, 1011]


def test_a_workload_without_tensors_is_reported(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    build.compute("silent", micros=5)
    result = simulated([build.build()] * 4)
    assert result.peak_memory_bytes.tolist() == [-1] * 4
    assert "there is no memory to track" in result.manifest["warnings"][-1]["text"]
    assert result.manifest["warnings"][-1]["key"] == "track-local-mem"
    write_run(result, tmp_path / "run")
    assert view_text("memory", tmp_path / "run") == "no tensor is ever alive"


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        (["x"], "odd length"),
        (["x", "8", "y"], "odd length"),
        (["x", "many"], "'x': 'many'"),
        (["x", "8", "y", "1.5"], "'y': '1.5'"),
        (["x", "-8"], "not a whole number of bytes"),
        (["x", ""], "not a whole number of bytes"),
        (["x", "1e9"], "not a whole number of bytes"),
        (["x", "9" * 25], "more than 8 PiB"),
        (["x", "9" * 40], "not a whole number of bytes"),
        ([word for n in range(3) for word in (f"x{n}", str(2**52))], "all tensors together"),
    ],
)
def test_lists_that_make_no_sense_are_refused_where_memory_is_tracked(lists: list[str], words: str) -> None:
    trace = with_lists(lists)
    simulated([trace] * 4, FIFO_RING)
    with pytest.raises(TraceError) as caught:
        simulated([trace] * 4)
    assert words in str(caught.value)
    assert caught.value.place == "odd.0.et"
    assert "without track-local-mem" in str(caught.value.remedy)
    if "together" not in words:
        assert "the attribute 'inputs' of node 7 \"odd\"" in str(caught.value)


def test_whole_sizes_written_as_decimal_fractions_and_empty_tensors_are_fine() -> None:
    result = simulated([with_lists(["x", "4096.0", "none", "0", "y", "7."])] * 4)
    assert result.peak_memory_bytes.tolist() == [4103] * 4


def test_a_trace_of_another_tool_is_tracked() -> None:
    path = Path(__file__).parents[1] / "trace" / "data" / "stage_dense_dp2tp4pp2.0.et"
    lists = decode(path.read_bytes()).tensors
    from et_sim.trace.tensors import tensor_uses

    uses = tensor_uses(decode(path.read_bytes()), "a file")
    assert len(uses.tensor) == len(lists.words) // 2
    assert int(uses.bytes.min()) > 0


def test_ranks_that_differ_only_in_memory_are_not_folded_together() -> None:
    result = simulated([chain(1000), chain(2000), chain(1000), chain(3000)])
    assert result.peak_memory_bytes.tolist() == [1011, 2011, 1011, 3011]


def test_ranks_that_differ_only_in_operations_are_not_folded_together() -> None:
    system = {**FIFO_RING, "roofline-enabled": 1, "peak-perf": 100}
    traces = []
    for rank in range(4):
        build = et_sim.TraceBuilder()
        build.compute("bound by memory", num_ops=1 + rank, tensor_bytes=1 << 30)
        traces.append(build.build())
    result = simulated(traces, system)
    intensity = result.statistics.operational_intensity[result.outcome.plan.actor_of_rank]
    assert intensity.tolist() == [(1 + rank) / 2**30 for rank in range(4)]


tensors = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 100), max_size=3)


@st.composite
def traces(draw: st.DrawFn) -> et_sim.Trace:
    build = et_sim.TraceBuilder()
    ids: list[int] = []
    for _ in range(draw(st.integers(1, 5))):
        after = draw(st.lists(st.sampled_from(ids), max_size=2)) if ids else []
        named = {"inputs": draw(tensors), "outputs": draw(tensors)} if draw(st.integers(0, 4)) else {}
        ops, size = draw(st.integers(0, 10**10)), draw(st.integers(0, 10**7))
        cpu = draw(st.booleans())
        ids.append(
            build.compute("n", num_ops=ops, tensor_bytes=size, cpu=cpu, micros=2, after=after, **named)
        )
    build.collective("all_reduce", 4096, after=ids[-1:], inputs=draw(tensors), outputs=draw(tensors))
    return build.build()


@given(st.lists(traces(), min_size=1, max_size=2))
def test_folding_changes_no_figure(given_traces: list[et_sim.Trace]) -> None:
    all_ranks = [given_traces[rank % len(given_traces)] for rank in range(4)]
    system = {**TRACKING, "roofline-enabled": 1, "peak-perf": 1}
    folded, alone = simulated(all_ranks, system), simulated(all_ranks, system, fold=False)
    assert folded.summary()["per_rank"] == alone.summary()["per_rank"]
    assert folded.coverage == alone.coverage
    assert folded.peak_memory_bytes.tolist() == alone.peak_memory_bytes.tolist()


def test_the_view_names_tensors_alive_at_the_peak(tmp_path: Path) -> None:
    write_run(simulated([chain(1000), chain(2000), chain(1000), chain(3000)]), tmp_path / "run")
    peaks = memory_peaks(open_run(tmp_path / "run"))
    assert peaks is not None
    assert [(peak.ranks, peak.bytes, peak.at_ns, peak.tensors) for peak in peaks] == [
        ("3", 3011, 0, 3),
        ("1", 2011, 0, 3),
        ("0,2", 1011, 0, 3),
    ]
    named = [(tensor.tensor, tensor.bytes, tensor.since_ns, tensor.node) for tensor in peaks[2].largest]
    assert named == [("y", 1000, 0, 0), ("x", 10, 0, None), ("unread", 1, 0, 0)]
    lines = view_text("memory", tmp_path / "run").splitlines()
    assert lines[1].split() == ["3", "2.94", "KiB", "0", "ns", "3"]
    assert lines[5:8] == ["at the peak of rank 3:", "class        size", "unknown  2.94 KiB  100 %"]
    assert lines[9] == "largest tensors then:"
    assert "no node: there from the start" in lines[12]
    assert "peak 2.94 KiB on rank 3; the lowest is 1011 B" in view_text("summary", tmp_path / "run")


def test_a_tensor_released_before_the_peak_is_not_alive_at_it(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    last: list[int] = []
    for number in range(30):
        inputs = {f"t{number - 1}": number} if number else {}
        last = [build.compute("n", micros=1, inputs=inputs, outputs={f"t{number}": number + 1}, after=last)]
    write_run(simulated([build.build()] * 4), tmp_path / "run")
    [peak] = memory_peaks(open_run(tmp_path / "run")) or []
    assert (peak.ranks, peak.bytes, peak.at_ns, peak.tensors) == ("0-3", 59, 29_000, 2)
    assert [tensor.tensor for tensor in peak.largest] == ["t29", "t28"]


def test_a_stalled_run_tracks_completed_nodes() -> None:
    build = et_sim.TraceBuilder()
    first = build.compute("first", micros=5, outputs={"y": 8})
    build.receive(1, 64, inputs={"y": 8}, outputs={"z": 64}, after=[first])
    result = simulated([build.build(), *[chain()] * 3])
    assert not result.is_complete
    assert result.peak_memory_bytes[0] == 8


def test_a_window_keeps_its_changes_and_the_use_at_its_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = simulated([chain()] * 4, fold=False)
    whole = result.memory.to_pylist()

    def kept(folder: str, output_filter: OutputFilter) -> list[dict[str, Any]]:
        write_run(result, tmp_path / folder, output_filter=output_filter)
        return list(open_run(tmp_path / folder).table("memory").to_pylist())

    def times(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
        return [(row["actor"], row["time_ns"], row["alive_bytes"]) for row in rows]

    assert times(kept("some", OutputFilter((range(1, 2),)))) == times(
        [row for row in whole if row["actor"] == 1]
    )
    late = OutputFilter(window=(6000, 9000))
    assert times(kept("late", late)) == [(a, t, n) for a in range(4) for t, n in ((5000, 1001), (8000, 1))]
    after = OutputFilter(window=(9000, 10_000))
    assert times(kept("after", after)) == [(actor, 8000, 1) for actor in range(4)]
    assert times(kept("early", OutputFilter(window=(0, 4000)))) == times(
        [row for row in whole if row["time_ns"] < 4000]
    )
    assert main(["inspect", str(tmp_path / "late"), "memory"]) == 0
    assert capsys.readouterr().out.startswith(
        "only of the recorded part: from 6 µs to 9 µs; tensors that were alive"
    )
