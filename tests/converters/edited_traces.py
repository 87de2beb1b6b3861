"""Random traces for the tests of editing, and their waits and ends by slow methods."""

from __future__ import annotations

import networkx
from hypothesis import strategies as st

from converters.editing.files import RecordedTrace, recorded_as
from et_sim.trace import Trace, TraceBuilder, decode, encode_trace


@st.composite
def mixed_traces(draw: st.DrawFn, most: int = 14) -> Trace:
    """Draw host and device computation with data and control dependencies, ids in any order."""
    count = draw(st.integers(1, most))
    ids = draw(st.permutations(range(3, 3 + count)))
    build = TraceBuilder(source="random")
    for at in range(count):
        parents = st.lists(st.sampled_from(ids[:at]), max_size=4, unique=True) if at else st.just([])
        build.compute(
            f"op {at}",
            micros=draw(st.integers(0, 5)),
            cpu=draw(st.booleans()),
            after=draw(parents),
            ctrl_after=draw(parents),
            node_id=ids[at],
        )
    return build.build()


def recorded(trace: Trace) -> RecordedTrace:
    """Return the trace as an edit reads it."""
    content = encode_trace(trace)
    return recorded_as(decode(content, trace.source), content)


def waits(trace: Trace) -> set[tuple[int, int]]:
    """Return (earlier id, later id) of all nodes that wait for each other, directly or not."""
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    ids = trace.node_id.tolist()
    graph.add_nodes_from(ids)
    for row, node_id in enumerate(ids):
        graph.add_edges_from((ids[parent], node_id) for parent in trace.parents(row).tolist())
    return set(networkx.transitive_closure_dag(graph).edges)


def ends(trace: Trace, lasts: dict[int, int]) -> dict[int, int]:
    """Return the end of each node, by id, if it starts as soon as its dependencies have ended."""
    graph: networkx.DiGraph[int] = networkx.DiGraph()
    ids = trace.node_id.tolist()
    graph.add_nodes_from(ids)
    for row, node_id in enumerate(ids):
        graph.add_edges_from((ids[parent], node_id) for parent in trace.parents(row).tolist())
    results: dict[int, int] = {}
    for node_id in networkx.topological_sort(graph):
        results[node_id] = lasts[node_id] + max(
            (results[predecessor] for predecessor in graph.predecessors(node_id)), default=0
        )
    return results
