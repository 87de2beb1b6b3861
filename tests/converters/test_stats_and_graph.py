"""`et-convert stats` and `graph`: figures equal an independent recount; graphs are read by other programs."""

from __future__ import annotations

import json
from pathlib import Path

import networkx
import pytest
from edited_traces import ends, mixed_traces, recorded, waits
from hypothesis import given
from others_files import PATHS, PYTORCH, content_of

from converters.cli import main
from converters.editing.drawing import as_graphml, draw, near
from converters.editing.figures import figures_of, merged
from converters.editing.stripping import durations_ns
from converters.records import parse, split
from et_sim.trace import Trace, TraceBuilder, Workload, write_trace, write_workload

pytestmark = pytest.mark.usefixtures("in_a_folder")


def step(rank: int) -> Trace:
    build = TraceBuilder()
    load = build.load(1 << 20, name="weights")
    host = build.compute("launch", cpu=True, micros=3)
    kernel = build.compute(
        "kernel", micros=40 + rank, after=[load, host], inputs={"w": 4096}, outputs={"x": 64}
    )
    build.collective("all_reduce", 3 << 20, "2", after=[kernel], micros=7)
    build.collective("barrier", 0, ctrl_after=[kernel])
    build.send(1 - rank, 512, 7, after=[kernel])
    build.receive(1 - rank, 512, 7)
    return build.build()


def test_the_figures_of_all_ranks_together(capsys: pytest.CaptureFixture[str]) -> None:
    write_workload(Workload.of([step(0), step(1)]), "step")
    assert main(["stats", "step"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "step: 2 ranks, 2 distinct traces",
        "  nodes          14: 2 MEM_LOAD, 4 COMP, 2 SEND, 2 RECV, 4 COLL; 2 on the host",
        "  dependencies   8 data, 2 control; 6 nodes at the beginning, 8 at the end",
        "  depth          3 nodes one after the other; longest way by recorded durations 51 µs",
        '  time           COMP on the host: 6 µs in 2 nodes; longest 3 µs, node 1 "launch" in step.0.et',
        '  time           COMP: 81 µs in 2 nodes; longest 41 µs, node 2 "kernel" in step.1.et',
        '  time           COLL: 14 µs in 2 nodes; longest 7 µs, node 3 "all_reduce" in step.0.et',
        "  memory         2 MiB loaded, 0 B stored",
        "  tensors        2, 4.06 KiB in all on the rank with most",
        "  group      collective  nodes   each  together",
        "  2          all_reduce      2  3 MiB     6 MiB",
        "  all ranks  barrier         2    0 B       0 B",
        "  sends   each  together",
        "      2  512 B     1 KiB",
        "  name        nodes   time     mean  longest",
        "  kernel          2  81 µs  40.5 µs    41 µs",
        "  all_reduce      2  14 µs     7 µs     7 µs",
        "  launch          2   6 µs     3 µs     3 µs",
    ]


def test_the_figures_of_each_rank(capsys: pytest.CaptureFixture[str]) -> None:
    traces = [step(0), step(1)]
    write_workload(Workload.of([traces[0], traces[1], traces[1], traces[0]]), "step")
    assert main(["stats", "step", "--per-rank", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [part["of_ranks"] for part in content["figures"]] == ["0,3", "1-2"]
    assert [part["nodes"]["COLL"] for part in content["figures"]] == [4, 4]
    assert main(["stats", "step", "--ranks", "1,3", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["distinct_traces"], content["figures"][0]["of_ranks"]) == (2, "1,3")
    assert content["figures"][0]["messages"] == [{"bytes": 512, "sends": 2}]
    assert main(["stats", "step", "--top", "1", "--per-rank", "--ranks", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == ("step.2.et", "  … 2 more")


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_counts_equal_those_of_the_records(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(path), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"][0]
    _, *nodes = parse(split(content_of(path)), "f")
    kinds = [node.type for node in nodes]
    assert sum(figures["nodes"].values()) == len(nodes)
    assert figures["nodes"].get("COLL", 0) == kinds.count(7)
    assert sum(figure["nodes"] for figure in figures["collectives"]) == kinds.count(7)
    assert sum(figure["sends"] for figure in figures["messages"]) == kinds.count(5)
    edges = sum(len(node.data_deps) + len(node.ctrl_deps) for node in nodes)
    assert sum(figures["dependencies"].values()) == edges
    assert (figures["dependencies"].get("dangling", 0) > 0) == (path == PYTORCH)
    spent = sum(node.duration_micros for node in nodes)
    assert sum(figure["total_ns"] for figure in figures["names"].values()) == 1000 * spent
    assert sum(figure["total_ns"] for figure in figures["durations"].values()) == 1000 * spent


@given(mixed_traces())
def test_depth_and_longest_way_equal_those_of_another_library(trace: Trace) -> None:
    figures = figures_of(recorded(trace))
    graph = networkx.DiGraph(list(waits(trace)))
    assert figures.depth == max(networkx.dag_longest_path_length(graph) + 1, 1)
    lasts = dict(zip(trace.node_id.tolist(), durations_ns(trace).tolist(), strict=True))
    assert figures.path_ns == max(ends(trace, lasts).values())
    assert merged([(figures, 3)]).nodes.total() == 3 * len(trace)


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("kind", ["ctrl_deps", "data_deps"])
def test_a_node_that_waits_for_itself_is_a_circle(
    kind: str, others: int, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [{"id": 0, "kind": "COMP", "name": "first", "duration_us": 1}][:others]
    itself = {"id": 1, "kind": "COMP", "name": "a", "duration_us": 1, kind: [0, 1][1 - others :]}
    lines = [{"et_sim_trace": 1, "version": ""}, *nodes, itself]
    Path("itself.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert main(["json", "itself.jsonl", "-o", "itself"]) == 0
    assert main(["stats", "itself"]) == 0
    assert "none: nodes wait for each other in a circle" in capsys.readouterr().out


def test_a_circle_has_no_depth(capsys: pytest.CaptureFixture[str]) -> None:
    build = TraceBuilder()
    build.compute("a", after=[1], node_id=0)
    build.compute("b", after=[0], node_id=1)
    write_trace(build.build(), "circle.0.et")
    assert main(["stats", "circle"]) == 0
    assert "none: nodes wait for each other in a circle" in capsys.readouterr().out


def test_a_dot_file_has_the_chosen_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    write_workload(Workload.of([step(0), step(1)]), "step")
    assert main(["graph", "step", "--rank", "1", "--nodes", "1-3", "-o", "part.dot"]) == 0
    assert capsys.readouterr().out == (
        "step.1.et -> part.dot: 3 nodes of 7, 2 dependencies, 1 more on nodes that are not drawn\n"
    )
    assert Path("part.dot").read_text(encoding="utf-8").splitlines() == [
        "digraph trace {",
        '  node [shape=box, style="filled,rounded", fontname="sans-serif"];',
        '  n1 [label="launch\\ncomp 3 µs", fillcolor="#ffffff"];',
        '  n2 [label="kernel\\ncomp 41 µs\\n+1 not drawn", fillcolor="#9ecae1"];',
        '  n3 [label="all_reduce\\nall_reduce 3 MiB 7 µs", fillcolor="#fdae6b"];',
        "  n1 -> n2;",
        "  n2 -> n3;",
        "}",
    ]


def test_networkx_reads_the_graphml_file() -> None:
    write_workload(Workload.of([step(0), step(1)]), "step")
    assert main(["graph", "step", "--around", "3", "--steps", "1", "-o", "part.graphml"]) == 0
    graph = networkx.read_graphml("part.graphml")
    assert dict(graph.nodes["3"]) == {
        "name": "all_reduce",
        "kind": "COLL",
        "place": "device",
        "duration_ns": 7000,
        "collective": "all_reduce",
        "bytes": 3 << 20,
        "group": "2",
    }
    assert set(graph.nodes) == {"2", "3"}
    assert [(*ends, facts["dependency"]) for *ends, facts in graph.edges(data=True)] == [("2", "3", "data")]


@given(mixed_traces())
def test_every_dependency_is_in_the_graph_once(trace: Trace) -> None:
    given_trace = recorded(trace)
    rows = near(given_trace.trace, 0, len(trace))
    graph = networkx.parse_graphml(as_graphml(draw(given_trace.trace, rows)), force_multigraph=True)
    reachable = networkx.node_connected_component(
        networkx.Graph([(node, node) for node in trace.node_id.tolist()] + list(waits(trace))),
        int(trace.node_id[0]),
    )
    assert {int(node) for node in graph.nodes} == reachable
    shown = set(rows.tolist())
    data = int(sum(trace.data_start[row + 1] - trace.data_start[row] for row in shown))
    ctrl = int(sum(trace.ctrl_start[row + 1] - trace.ctrl_start[row] for row in shown))
    assert graph.number_of_edges() == data + ctrl


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-o", "x.png"], "-o x.png is neither .dot nor .graphml"),
        (["-o", "x.dot", "--rank", "2"], "--rank is 2 (there are ranks 0 to 1)"),
        (["-o", "x.dot", "--most", "6"], "the choice has 7 nodes, and at most 6 are drawn"),
        (["-o", "x.dot", "--nodes", "9"], "there is no node 9"),
        (["-o", "x.dot", "--nodes", "9-12"], "no node has an id from 9 to 12"),
        (["-o", "x.dot", "--around", "9"], "there is no node 9"),
        (["-o", "x.dot", "--around", str(2**70)], "there is no node 1180591620717411303424"),
        (["-o", "x.dot", "--nodes", str(2**64 + 7)], "there is no node 18446744073709551615"),
        (["-o", "x.dot", "--nodes", "a"], "--nodes 'a' cannot be understood"),
        (["-o", "x.dot", "--window", "0us:1us"], "no node has a start"),
    ],
)
def test_impossible_drawings_are_refused_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_workload(Workload.of([step(0), step(1)]), "step")
    assert main(["graph", "step", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert list(Path().glob("x.*")) == []


def test_names_that_xml_cannot_hold_are_drawn_all_the_same() -> None:
    build = TraceBuilder()
    build.compute('a "quoted"\\ \x01 name')
    write_trace(build.build(), "odd.0.et")
    for name in ("odd.graphml", "odd.dot"):
        assert main(["graph", "odd", "-o", name]) == 0
    assert "�" in networkx.read_graphml("odd.graphml").nodes["0"]["name"]
    assert 'label="a \\"quoted\\"\\\\ � name' in Path("odd.dot").read_text(encoding="utf-8")
