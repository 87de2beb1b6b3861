"""Exported timelines hold exactly the run's nodes: read with an independent schema, and as plain JSON."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import networkx as nx
import numpy as np
import pytest
from google.protobuf.internal import encoder
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given
from hypothesis import strategies as st
from perfetto_schema import trace_class
from pyarrow import feather
from runs_to_show import congested, pipeline, side_by_side, two_dimensions, written

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.basics.protobuf_fields import varint
from et_sim.basics.units import format_ranks
from et_sim.cli import main
from et_sim.timeline import OutputFilter
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.drawing import flows
from et_sim.views.drawing.nodes import ALWAYS, Nodes, shown_ranks, tracks_of
from et_sim.views.export import arrows, chrome, perfetto
from et_sim.views.export import contents as export_contents
from et_sim.views.export.arrows import arrivals_of
from et_sim.views.export.contents import MOST_RANKS, Contents, _within, contents_of

pytestmark = pytest.mark.usefixtures("warm_engine")
TRACE = trace_class()
Slice = tuple[str, str, str, int, int]  # rank, lane, name, start, end


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a pipeline with every rank simulated."""
    return pipeline(tmp_path_factory.mktemp("export") / "stages", fold=False)


def _contents(run: Path, **options: Any) -> Contents:
    window = options.pop("window", ALWAYS)
    return contents_of(open_run(run), options.pop("ranks", None), window, **options)


def _nodes(contents: Contents) -> Nodes:
    """Return the node of each slice."""
    return contents.facts(np.arange(len(contents.slices))).nodes


def _pairs(contents: Contents) -> list[tuple[int, int]]:
    """Return the slices at both ends of each message."""
    return list(zip(contents.messages.send.tolist(), contents.messages.receive.tolist(), strict=True))


def _expected(run: Path) -> Counter[Slice]:
    """Return the timeline's rows, for runs with one rank per actor."""
    ranks = {row["actor"]: row["ranks"] for row in feather.read_table(run / "actors.arrow").to_pylist()}
    rows = feather.read_table(run / "timeline.arrow").to_pylist()
    return Counter(
        (f"rank {ranks[r['actor']]}", r["lane"], r["name"], r["start_ns"], r["end_ns"]) for r in rows
    )


class Read:
    """A Perfetto trace as read: begins and ends matched by track, numbers looked up."""

    def __init__(self, content: bytes) -> None:
        trace = TRACE.FromString(content)
        self.processes: dict[int, str] = {}
        self.threads: dict[int, tuple[int, str]] = {}
        self.counters: dict[int, tuple[int, str]] = {}
        self.slices: list[tuple[int, dict[str, Any]]] = []
        self.values: dict[int, list[tuple[int, int]]] = {}
        self.outgoing: dict[int, tuple[int, dict[str, Any]]] = {}
        self.arrows: list[tuple[str, str]] = []
        self.within: list[tuple[dict[str, Any], dict[str, Any]]] = []  # slices that were added to others
        self.arrived: set[str] = set()
        self._words: dict[str, dict[int, str]] = {}
        open_on: dict[int, list[dict[str, Any]]] = {}
        events: list[Any] = []
        for packet in trace.packet:
            assert not len(UnknownFieldSet(packet))
            assert packet.trusted_packet_sequence_id == 1
            if packet.HasField("track_descriptor"):
                self._describe(packet.track_descriptor)
            elif packet.HasField("interned_data"):
                assert packet.sequence_flags == (
                    2 if self._words else 1
                )  # the first makes all before unknown
                for field in ("event_categories", "event_names", "debug_annotation_names"):
                    known = self._words.setdefault(field, {})
                    for entry in getattr(packet.interned_data, field):
                        assert entry.iid not in known
                        known[entry.iid] = entry.name
            else:
                assert packet.sequence_flags == 2
                self._check_words(packet.track_event)
                events.append(packet)
        # The trace processor does so, too: events by time, and in their order at one time.
        for packet in sorted(events, key=lambda packet_: packet_.timestamp):
            self._event(packet.track_event, packet.timestamp, open_on)
        assert not any(open_on.values())

    def _check_words(self, event: Any) -> None:
        """Check that the names and categories of an event are defined before it."""
        assert not event.name_iid or event.name_iid in self._words["event_names"]
        assert all(category in self._words["event_categories"] for category in event.category_iids)

    def _describe(self, track: Any) -> None:
        if track.HasField("process"):
            self.processes[track.uuid] = track.process.process_name
        elif track.HasField("thread"):
            process = self.processes[track.parent_uuid]
            assert process == "critical path" or track.thread.pid - 1 == int(process.split()[1])
            self.threads[track.uuid] = track.parent_uuid, track.thread.thread_name
        else:
            self.counters[track.uuid] = track.parent_uuid, track.name

    def _event(self, event: Any, now: int, open_on: dict[int, list[dict[str, Any]]]) -> None:
        stack = open_on.setdefault(event.track_uuid, [])
        if event.type == 4:
            self.values.setdefault(event.track_uuid, []).append((now, event.counter_value))
            return
        if event.type == 2:
            done = stack.pop()
            done["end"] = now
        else:
            name = event.name or self._words["event_names"][event.name_iid]
            known = self._words["debug_annotation_names"]
            notes = {n.name or known[n.name_iid]: n.uint_value for n in event.debug_annotations}
            done = {"name": name, "start": now, "end": now, **notes}
            if list(event.categories) == ["from another rank"]:
                assert len(stack) == 1
                self.within.append((stack[0], done))
                self.arrived.add(name)
                done["name"] = stack[0]["name"]
            else:
                assert event.type == 3 or not stack, "lanes are laid out in rows, so that nothing nests"
                self.slices.append((event.track_uuid, done))
            if event.type == 1:
                stack.append(done)
        for flow in (*event.flow_ids, *event.terminating_flow_ids):
            if flow in self.outgoing:
                since, other = self.outgoing[flow]
                assert since <= now
                # The trace processor lets an arrow lead from the slice that begins first.
                pair = (done, other) if done["start"] < other["start"] else (other, done)
                self.arrows.append((pair[0]["name"], pair[1]["name"]))
            else:
                assert flow not in event.terminating_flow_ids
            self.outgoing[flow] = now, done

    def all(self) -> Counter[Slice]:
        """Return slices in the form of the timeline."""
        counted = Counter()
        for track, event in self.slices:
            process, lane = self.threads[track]
            if lane == "critical path":
                continue
            lane = lane.rstrip("0123456789 ")
            counted[self.processes[process], lane, event["name"], event["start"], event["end"]] += 1
        return counted


def _perfetto(contents: Contents) -> Read:
    return Read(b"".join(perfetto.packets(contents)))


def test_perfetto_gets_every_node_of_the_demo(demo: Path) -> None:
    read = _perfetto(_contents(demo))
    assert read.all() == _expected(demo)
    assert list(read.processes.values()) == [f"rank {rank}" for rank in range(8)]


def test_perfetto_gets_every_node_of_a_pipeline(stages: Path) -> None:
    assert _perfetto(_contents(stages)).all() == _expected(stages)


def test_chrome_gets_the_same_with_every_nanosecond(stages: Path) -> None:
    content = json.loads(b"".join(chrome.pieces(_contents(stages), {"et_sim": "x"})), parse_float=str)
    names: dict[tuple[int, int], str] = {}
    for event in content["traceEvents"]:
        if event["name"] == "thread_name":
            names[event["pid"], event["tid"]] = event["args"]["name"].rstrip("0123456789 ")
    counted = Counter()
    for event in content["traceEvents"]:
        if event["ph"] == "X" and event["cat"] != "from another rank":
            start, length = (int(event[key].replace(".", "")) for key in ("ts", "dur"))
            lane = names[event["pid"], event["tid"]]
            counted[f"rank {event['pid']}", lane, event["name"], start, start + length] += 1
    assert counted == _expected(stages)


def test_overlapping_nodes_lie_in_rows_and_nodes_without_time_are_instants(tmp_path: Path) -> None:
    run = side_by_side(tmp_path / "run")
    read = _perfetto(_contents(run, ranks="0-1"))
    rows = {name for _, name in read.threads.values()}
    assert {"compute", "compute 2", "compute 3"} <= rows
    mark = next(event for _, event in read.slices if event["name"] == "mark")
    assert mark["start"] == mark["end"] == 1000
    assert any(event["name"] == 'sum "<b>" ∑' for _, event in read.slices)
    assert json.loads(b"".join(chrome.pieces(_contents(run), {})))


def test_counters_show_memory_in_use_and_running_collectives(tmp_path: Path) -> None:
    run = side_by_side(tmp_path / "run")
    read = _perfetto(_contents(run))
    values = {name: read.values[track] for track, (_, name) in read.counters.items()}
    memory = feather.read_table(run / "memory.arrow").to_pylist()
    assert dict(values["local memory"]) == {row["time_ns"]: row["alive_bytes"] for row in memory}
    start, end = (
        next(
            row
            for row in feather.read_table(run / "timeline.arrow").to_pylist()
            if row["kind"] == "all_reduce"
        )[key]
        for key in ("start_ns", "end_ns")
    )
    assert values["collectives under way"] == [(0, 0), (start, 1), (end, 0)]


def test_counters_show_the_chunks_of_a_dimension(tmp_path: Path) -> None:
    run = pipeline(tmp_path / "run", detail="phases")
    read = _perfetto(_contents(run))
    phases = feather.read_table(run / "phases.arrow").to_pylist()
    counters = {place: t for t, (place, name) in read.counters.items() if name == "chunks in dimension 0"}
    assert sorted(read.processes[place] for place in counters) == ["rank 0", "rank 4"]
    for actor, place in enumerate(sorted(counters)):
        for moment, value in read.values[counters[place]]:
            mine = (row for row in phases if row["actor"] == actor)
            assert value == sum(row["start_ns"] <= moment < row["end_ns"] for row in mine)


def test_chunks_that_cross_several_dimensions_at_once_are_counted_apart(tmp_path: Path) -> None:
    run = two_dimensions(tmp_path / "run", detail="phases", fold=False)
    read = _perfetto(_contents(run))
    phases = feather.read_table(run / "phases.arrow").to_pylist()
    named = {"chunks in several dimensions at once": None}
    named |= {f"chunks in dimension {dimension}": dimension for dimension in range(2)}
    counters = [(t, read.processes[at], name) for t, (at, name) in read.counters.items() if "chunks" in name]
    assert {name for _, _, name in counters} == set(named)
    for track, process, name in counters:
        mine = [r for r in phases if f"rank {r['actor']}" == process and r["dimension"] == named[name]]
        assert mine
        for moment, value in read.values[track]:
            assert value == sum(row["start_ns"] <= moment < row["end_ns"] for row in mine)


@pytest.mark.parametrize("model", ["analytical", "link"])
def test_counters_show_the_use_of_links(tmp_path: Path, model: str) -> None:
    run = pipeline(tmp_path / "run", detail="links", model=model, fold=False)
    read = _perfetto(_contents(run))
    slices = feather.read_table(run / "links.arrow").to_pylist()
    tracks = {place: name for _, (place, name) in read.counters.items() if "busy" in name}
    assert len(tracks) == len({row["actor"] for row in slices}) == 8
    for track, (place, name) in read.counters.items():
        if "busy" not in name:
            continue
        rank, link = int(read.processes[place].removeprefix("rank ")), name.split(", ")[1].split(":")[0]
        mine = [row for row in slices if row["actor"] == rank and row["link"] == link]
        assert mine
        for moment, value in read.values[track]:
            now = [row for row in mine if row["start_ns"] <= moment < row["end_ns"]]
            share = sum(row["busy_ns"] * 1000 // (row["end_ns"] - row["start_ns"]) for row in now)
            assert value == share


def test_counters_of_the_network_show_the_depth_of_queues(tmp_path: Path) -> None:
    run = congested(tmp_path / "run")
    read = _perfetto(_contents(run))
    slices = feather.read_table(run / "queues.arrow").to_pylist()
    tracks = {name: (read.processes[place], track) for track, (place, name) in read.counters.items()}
    assert {name for name, (process, _) in tracks.items() if process == "network"} == {
        f"{row['link']}: waiting" for row in slices
    }
    _, track = tracks["leaf1->npu4: waiting"]
    mine = {row["start_ns"]: row["deepest_bytes"] for row in slices if row["link"] == "leaf1->npu4"}
    assert max(value for _, value in read.values[track]) == max(mine.values())
    assert all(mine[moment] == value for moment, value in read.values[track] if value)
    events = json.loads(b"".join(chrome.pieces(_contents(run), {})))
    queues = [event for event in events["traceEvents"] if event["name"] == "leaf1->npu4: waiting"]
    assert [event["args"]["bytes"] for event in queues] == [value for _, value in read.values[track]]


@pytest.mark.deep
def test_recorded_messages_lead_from_collective_to_collective(tmp_path: Path, stages: Path) -> None:
    run = pipeline(tmp_path / "run", detail="messages", fold=False)
    contents, plain = _contents(run), _contents(stages)
    assert len(contents.collectives) == 0
    assert len(contents.messages) > len(plain.messages)
    nodes = _nodes(contents)
    sent_between = set()
    for source, target in _pairs(contents):
        if nodes.kinds[nodes.kind[source]] == "all_reduce":
            assert nodes.sequence[source] == nodes.sequence[target]
            assert nodes.group[source] == nodes.group[target]
            sent_between.add((nodes.actor[source], nodes.node[source], nodes.actor[target]))
    sent = feather.read_table(run / "messages.arrow").to_pylist()
    assert sent_between == {
        (row["actor"], row["node"], row["peer"]) for row in sent if row["kind"] == "collective"
    }
    assert len(_perfetto(contents).arrows) == len(contents.messages)
    few = _contents(run, limit=20)
    assert len(few.messages) <= 20
    folded = _contents(pipeline(tmp_path / "folded", detail="messages"))
    assert len(folded.messages)
    assert all(source != target for source, target in _pairs(folded))


def test_a_send_leads_to_the_receive_of_its_message(stages: Path) -> None:
    contents = _contents(stages)
    nodes = _nodes(contents)
    assert len(contents.messages) == 2 * 4 * 4
    for send, receive in _pairs(contents):
        assert nodes.peer[send] == nodes.actor[receive]
        assert nodes.peer[receive] == nodes.actor[send]
        assert nodes.tag[send] == nodes.tag[receive]
        assert nodes.names[nodes.name[send]].replace("send", "receive") == nodes.names[nodes.name[receive]]
    arrows = Counter(_perfetto(contents).arrows)
    assert arrows["forward 0 send", "forward 0 receive"] == 4


def test_folded_ranks_lead_to_the_ranks_that_stand_for_the_others(tmp_path: Path, stages: Path) -> None:
    folded = _contents(pipeline(tmp_path / "folded"))
    assert folded.shown.ranks == (0, 4)
    assert "shows one rank of each actor" in folded.left_out[0]
    assert len(folded.messages) == len(_contents(stages).messages) // 4
    every = _contents(tmp_path / "folded", ranks="0-7")
    assert _perfetto(every).all() == _expected(stages)
    assert len(every.messages) == 0
    assert "draws no arrows at 8 ranks" in every.left_out[0]


def test_a_run_with_a_recorded_part_shows_that_part_and_names_it(tmp_path: Path) -> None:
    output_filter = OutputFilter((range(2, 4),), (0, 2_000_000))
    run = pipeline(tmp_path / "part", fold=False, output_filter=output_filter)
    contents = _contents(run)
    assert contents.shown.ranks == (2, 3)
    assert contents.left_out[0] == "holds only nodes of ranks 2-3 from 0 ns to 2 ms"
    assert _perfetto(contents).all() == _expected(run)


@pytest.mark.deep
def test_arrows_lead_from_the_earlier_slice_in_both_formats(tmp_path: Path, stages: Path) -> None:
    """Check that a waiting receive has a slice within it that begins with the send, in both formats."""
    recorded = pipeline(tmp_path / "run", detail="messages", fold=False)
    for run in (stages, recorded):
        contents = _contents(run)
        read = _perfetto(contents)
        nodes, messages = _nodes(contents), contents.messages
        names = [nodes.names[code] for code in nodes.name.tolist()]
        wanted = Counter((names[source], names[target]) for source, target in _pairs(contents))
        for chain in contents.collectives:
            wanted.update((names[earlier], names[later]) for earlier, later in pairwise(chain))
        assert Counter(read.arrows) == wanted
        late = contents.start_ns[messages.send] > contents.start_ns[messages.receive]
        assert late.any()
        assert (messages.arrival[late] >= 0).all()
        for parent, part in read.within:
            assert parent["start"] < part["start"] < part["end"] <= parent["end"]
        events = json.loads(b"".join(chrome.pieces(contents, {})))["traceEvents"]
        parts = [event for event in events if event.get("cat") == "from another rank"]
        assert [round(event["ts"] * 1000) for event in parts] == contents.arrivals.start_ns.tolist()
        assert {event["name"] for event in parts} == read.arrived


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 5)), min_size=1), st.data())
def test_each_arrow_ends_in_a_slice_that_begins_no_sooner(
    placed: list[tuple[int, int, int]], data: Any
) -> None:
    """Check for any begins that added slices lie side by side in their slice, and begin with a send."""
    start = np.array([node[0] for node in placed], np.int64)
    end = start + np.array([node[1] for node in placed], np.int64)
    ranks = np.array([node[2] for node in placed], np.int64)
    numbers = st.integers(0, len(placed) - 1)
    pairs = np.array(data.draw(st.lists(st.tuples(numbers, numbers), max_size=30)), np.int64).reshape(-1, 2)
    added, found_arrows = arrivals_of(pairs, start, end, ranks)
    kept = [(source, target) for source, target in pairs.tolist() if start[source] < end[target]]
    assert list(zip(found_arrows.send.tolist(), found_arrows.receive.tolist(), strict=True)) == kept
    senders: dict[int, set[int]] = {}
    for (send, receive), arrival in zip(kept, found_arrows.arrival.tolist(), strict=True):
        begins = start[receive] if arrival < 0 else added.start_ns[arrival]
        assert begins == max(start[send], start[receive])
        if arrival >= 0:
            assert added.parent[arrival] == receive
            senders.setdefault(arrival, set()).add(int(ranks[send]))
    for earlier, later in pairwise(range(len(added))):
        assert added.parent[earlier] < added.parent[later] or added.end_ns[earlier] == added.start_ns[later]
    inside = added.parent
    assert (start[inside] < added.start_ns).all()
    assert (added.start_ns < added.end_ns).all()
    assert (added.end_ns <= end[inside]).all()
    for at in range(len(added)):
        several = "s" if len(senders[at]) > 1 else ""
        assert added.name(at) == f"from rank{several} {format_ranks(sorted(senders[at]))}"


@pytest.mark.parametrize("detail", [None, "messages"])
def test_arrows_do_not_depend_on_the_number_of_nodes_in_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detail: str | None
) -> None:
    run = pipeline(tmp_path / "run", fold=False, **({"detail": detail} if detail else {}))
    whole = _contents(run)
    monkeypatch.setattr(arrows, "AT_A_TIME", 3)
    parts = _contents(run)
    assert len(whole.messages)
    assert _pairs(parts) == _pairs(whole)
    assert [chain.tolist() for chain in parts.collectives] == [chain.tolist() for chain in whole.collectives]
    assert (len(whole.collectives) == 0) is (detail is not None)


@pytest.mark.deep
@pytest.mark.parametrize("ranks", [None, "0-7"])
def test_files_do_not_depend_on_the_size_of_written_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: str | None
) -> None:
    """Check also several ranks that are one actor."""
    contents = _contents(pipeline(tmp_path / "run", detail="path,messages"), ranks=ranks)
    whole = b"".join(chrome.pieces(contents, {})), _perfetto(contents)
    for module in (chrome, perfetto, export_contents):
        monkeypatch.setattr(module, "AT_ONCE", 7)
    parts = b"".join(chrome.pieces(contents, {})), _perfetto(contents)
    assert parts[0] == whole[0]
    assert parts[1].all() == whole[1].all()
    assert parts[1].arrows == whole[1].arrows
    assert parts[1].slices == whole[1].slices


@pytest.mark.parametrize("module", [chrome, perfetto])
def test_the_events_of_a_file_are_as_many_as_progress_counts(tmp_path: Path, module: Any) -> None:
    contents = _contents(side_by_side(tmp_path / "run"))
    if module is perfetto:
        packets = TRACE.FromString(b"".join(perfetto.packets(contents))).packet
        count = sum(packet.HasField("track_event") for packet in packets)
    else:
        events = json.loads(b"".join(chrome.pieces(contents, {})))["traceEvents"]
        count = sum(event["ph"] != "M" for event in events)
    assert module.count(contents) == count > 0


@pytest.mark.deep
def test_an_export_of_everything_takes_less_than_90_bytes_a_slice(tmp_path: Path) -> None:
    """Check the memory for each slice, so that twelve million fit into a gigabyte."""
    peaks = []
    for turns in (2_000, 10_000):
        build = et_sim.TraceBuilder()
        last: list[int] = []
        for number in range(turns):
            work = [build.compute(f"layer {at}", micros=1 + number % 13, after=last) for at in range(9)]
            last = [build.collective("all_reduce", 1 << 16, after=work)]
        run = written(et_sim.Workload.of([build.build()] * 4), tmp_path / str(turns), fold=False)
        opened = open_run(run)
        tracemalloc.start()
        contents = contents_of(opened, None, ALWAYS, 10**9)
        size = sum(map(len, perfetto.packets(contents)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(contents.slices) == 4 * 10 * turns
        assert size > 20 * len(contents.slices)
    assert (peaks[1] - peaks[0]) / (4 * 10 * 8_000) < 90


@pytest.mark.deep
def test_the_critical_path_is_a_track_that_adds_up_to_the_makespan(tmp_path: Path) -> None:
    run = pipeline(tmp_path / "run", detail="path", fold=False)
    contents = _contents(run)
    read = _perfetto(contents)
    assert read.all() == _expected(run)
    [track] = [track for track, (_, name) in read.threads.items() if name == "critical path"]
    steps = [event for at, event in read.slices if at == track]
    assert all(earlier["end"] == later["start"] for earlier, later in pairwise(steps))
    assert (steps[0]["start"], steps[-1]["end"]) == (0, open_run(run).summary["makespan_ns"])
    spent = Counter()
    for step in steps:
        spent.update({name: ns for name, ns in step.items() if name.endswith("_ns")})
        assert step["end"] - step["start"] == sum(ns for name, ns in step.items() if name.endswith("_ns"))
    wanted = CriticalPath(PathRecord(open_run(run))).by_cause()
    assert spent == {f"{cause}_ns": ns for cause, ns in wanted.items()}
    few = _contents(run, limit=5)
    assert len(few.path) == 5
    assert any("the longest 5 of" in sentence for sentence in few.left_out)


def test_members_of_a_collective_are_one_chain(demo: Path, stages: Path) -> None:
    chains = _contents(demo).collectives
    assert [len(chain) for chain in chains] == [8] * 13
    contents = _contents(stages)
    nodes = _nodes(contents)
    assert len(contents.collectives)
    firsts = [int(contents.start_ns[chain[0]]) for chain in contents.collectives]
    assert firsts == sorted(firsts)
    for chain in contents.collectives:
        same = {(nodes.group[s], nodes.sequence[s], nodes.name[s]) for s in chain}
        assert len(same) == 1
        assert contents.start_ns[chain].tolist() == sorted(contents.start_ns[chain].tolist())
        group = nodes.groups[next(iter(same))[0]]
        ranks = {contents.shown.ranks[place] for place in contents.slices.place[chain].tolist()}
        apart = {"tensor": 1, "data": 2}[str(group)]
        assert len(ranks) == 2
        assert max(ranks) - min(ranks) == apart


def test_a_window_holds_the_nodes_under_way_in_it(demo: Path) -> None:
    first, last = 10_000_000, 20_000_000
    slices = _perfetto(_contents(demo, window=(first, last))).all()
    assert slices == Counter(
        {slice_: n for slice_, n in _expected(demo).items() if slice_[3] < last and slice_[4] > first}
    )


def test_a_limit_keeps_some_of_every_rank_and_kind_and_counts_all(demo: Path) -> None:
    contents = _contents(demo, limit=50)
    assert "shows 50 of 328 nodes, in proportion" in contents.left_out[0]
    kept = _perfetto(contents).all()
    assert kept.total() == 50
    assert kept <= _expected(demo)
    assert {slice_[0] for slice_ in kept} == {slice_[0] for slice_ in _expected(demo)}


def test_more_actors_than_fit_are_the_slowest(tmp_path: Path) -> None:
    def trace(micros: int) -> et_sim.Trace:
        build = et_sim.TraceBuilder()
        build.compute("work", micros=micros)
        return build.build()

    run = written(et_sim.Workload.of([trace(1 + rank) for rank in range(MOST_RANKS + 3)]), tmp_path / "run")
    shown = shown_ranks(open_run(run), None, MOST_RANKS)
    assert shown.ranks == tuple(range(3, MOST_RANKS + 3))
    assert "the 64 slowest of 67 actors" in shown.left_out[0]


@pytest.mark.parametrize(
    ("ranks_text", "refusal_text"), [("0-8", "there is no rank 8"), ("x", "cannot be understood")]
)
def test_ranks_that_do_not_exist_are_refused(demo: Path, ranks_text: str, refusal_text: str) -> None:
    with pytest.raises(UsageError, match=refusal_text):
        _contents(demo, ranks=ranks_text)


def test_the_command_writes_the_same_bytes_each_time(
    demo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = []
    for turn in ("first", "second"):
        files = [tmp_path / f"{turn}{ending}" for ending in (".pftrace", ".json.gz")]
        assert main(["export", str(demo), "--perfetto", str(files[0]), "--chrome", str(files[1])]) == 0
        contents.append([file.read_bytes() for file in files])
    assert contents[0] == contents[1]
    assert json.loads(gzip.decompress(contents[0][1]))["otherData"] == {"et_sim": "0.1.0", "left_out": []}
    printed = capsys.readouterr().out.splitlines()
    assert (
        printed[0]
        == "the timeline shows 328 nodes of 8 ranks, 0 messages, 13 collectives across ranks, 8 counters"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        f"{turn}{ending}" for turn in ("first", "second") for ending in (".pftrace", ".json.gz")
    )


@pytest.mark.parametrize(
    ("options", "refusal_text"),
    [
        ([], "no file to write is named"),
        (["--perfetto", "x", "--limit", "0"], "--limit is 0"),
        (["--perfetto", "x", "--window", "z"], "window 'z' cannot be understood"),
        (["--perfetto", "no/such/folder/x"], "cannot be written"),
    ],
)
def test_bad_calls_are_refused_in_one_sentence(
    demo: Path,
    tmp_path: Path,
    options: list[str],
    refusal_text: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(demo), *options]) == 2
    refusal = capsys.readouterr().err
    assert refusal_text in refusal
    assert refusal.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@given(st.integers(0, 2**64 - 1))
def test_varints_are_those_of_the_protobuf_library(value: int) -> None:
    parts: list[bytes] = []
    encoder._EncodeVarint(parts.append, value)
    assert varint(value) == b"".join(parts)


spans = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 12)), max_size=40)


@given(spans)
def test_rows_never_overlap_and_are_no_more_than_needed(placed: list[tuple[int, int, int]]) -> None:
    lane, start, length = (np.array([node[at] for node in placed], np.int64) for at in range(3))
    end = start + length
    tracks = tracks_of(np.zeros(len(lane), np.int64), lane, ("cpu", "compute", "x", None), start, end)
    for track in range(len(tracks.lane)):
        inside = sorted(
            (s, e) for s, e, at in zip(start, end, tracks.of_slice, strict=True) if at == track and e > s
        )
        assert all(earlier[1] <= later[0] for earlier, later in pairwise(inside))
    for name in set(tracks.lane):
        code = ("cpu", "compute", "x").index(name)
        moments = [
            sum(s <= t < e for k, s, e in zip(lane, start, end, strict=True) if k == code) for t in range(50)
        ]
        assert tracks.lane.count(name) == max(1, *moments)


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2)))
    )
)
def test_joined_things_get_the_number_of_the_least(given_: tuple[int, list[tuple[int, int]]]) -> None:
    count, boundaries = given_
    first, second = (np.array([edge[at] for edge in boundaries], np.int64) for at in range(2))
    graph = nx.Graph(boundaries)
    graph.add_nodes_from(range(count))
    wanted = [min(nx.node_connected_component(graph, node)) for node in range(count)]
    assert flows._components(count, first, second).tolist() == wanted


@given(st.data())
def test_messages_that_were_there_already_are_paired_in_order(data: Any) -> None:
    """Pair channels of sends and receives in order, without pairs in the timeline."""
    nodes = nodes_of_channels(
        data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1))))
    )
    sends, receives = flows.messages(nodes)
    matched = {(int(nodes.node[s]), int(nodes.node[r])) for s, r in zip(sends, receives, strict=True)}
    assert matched == {(number, 1000 + number) for number in range(len(nodes) // 2)}


def nodes_of_channels(messages: list[tuple[int, int, int]]) -> Any:
    """Return nodes in which message n (source, target, tag) is sent at n and received at n + 100."""
    from et_sim.views.drawing.nodes import NUMBERS

    count = len(messages)
    source, target, tag = (np.array([message[at] for message in messages], np.int64) for at in range(3))
    order = np.arange(count)
    columns = {
        "actor": np.append(source, target),
        "peer": np.append(target, source),
        "tag": np.append(tag, tag),
        "node": np.append(order, 1000 + order),
        "start_ns": np.append(order, order + 100),
        "end_ns": np.append(order + 1, order + 101),
        "kind": np.repeat([0, 1], count),
    }
    none = np.full(2 * count, -1)
    causes = dict.fromkeys(("end_cause_actor", "end_cause_node", "start_cause_node"), none)
    texts = {name: np.zeros(2 * count, np.int64) for name in ("name", "lane", "group")}
    words = {
        "names": ("", None),
        "kinds": ("send", "receive", None),
        "lanes": ("x", None),
        "groups": ("", None),
    }
    rest = {name: none for name in NUMBERS if name not in columns}
    return Nodes(**columns, **rest, **causes, **texts, **words, completed=np.ones(2 * count, np.bool_))


def test_perfettos_own_schema_reads_it(stages: Path) -> None:
    """Check with the package `perfetto`, if it is installed: pip install perfetto."""
    schema = pytest.importorskip(
        "perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason="perfetto is not installed"
    )
    content = b"".join(perfetto.packets(_contents(stages)))
    trace = schema.Trace.FromString(content)
    kinds = Counter(packet.WhichOneof("data") for packet in trace.packet)
    assert not any(len(UnknownFieldSet(packet)) for packet in trace.packet)
    assert kinds["track_event"] > 2 * len(_expected(stages))


def test_counters_are_kept_if_they_fit_beside_those_before() -> None:
    """Leave out the second column of six values where ten fit, and keep a later one of four."""
    lengths = (6, 6, 4, 1)
    counters = [cast(Any, SimpleNamespace(time_ns=range(length))) for length in lengths]
    kept, note = _within(counters, 10)
    assert kept == [counters[0], counters[2]]
    assert note == "has no room for 2 counters of 4"
    assert _within(counters, 17) == (counters, "")
