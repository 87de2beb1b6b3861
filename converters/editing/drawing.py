"""Some nodes of a trace as a graph for other programs: GraphViz's DOT, or GraphML.

Dependencies on nodes that are not drawn are counted at each node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from converters.editing.stripping import durations_ns
from et_sim.basics.units import exact_bytes, format_ns
from et_sim.trace import Trace
from et_sim.trace.columns import collective_name, kind_name
from et_sim.trace.order import dependency_lists, edges

_LONGEST_LABEL = 40
_COLOURS = {  # of colour-blind friendly tables: computation blue, communication orange, memory green
    "COMP": "#9ecae1",
    "COLL": "#fdae6b",
    "SEND": "#fdd0a2",
    "RECV": "#fdd0a2",
    "MEM_LOAD": "#a1d99b",
    "MEM_STORE": "#a1d99b",
}
_OTHER, _HOST = "#d9d9d9", "#ffffff"


class Drawing(Struct, frozen=True):
    """Rows and the dependencies among them, as (parent, child, "data" or "control")."""

    trace: Trace
    rows: list[int]
    edges: list[tuple[int, int, str]]
    outside: dict[int, int]  # row -> dependencies on rows that are not drawn


def draw(trace: Trace, rows: Any) -> Drawing:
    """Return the graph of these rows; a dependency that is both data and control is drawn twice."""
    shown = set(rows.tolist())
    edges: list[tuple[int, int, str]] = []
    outside: dict[int, int] = {}
    lists = list(zip(("data", "control"), dependency_lists(trace), strict=True))
    for row in rows.tolist():
        for kind, parents in lists:
            for parent in dict.fromkeys(parents.of(row)):
                if parent in shown:
                    edges.append((parent, row, kind))
                else:
                    outside[row] = outside.get(row, 0) + 1
    return Drawing(trace, rows.tolist(), edges, outside)


def near(trace: Trace, start: int, steps: int) -> Any:
    """Return the rows at most `steps` dependencies away from a row, in either direction."""
    parent, child = edges(trace)
    reached = np.zeros(len(trace), np.bool_)
    reached[start] = True
    for _ in range(steps):
        now = reached.copy()
        now[parent[reached[child]]] = True
        now[child[reached[parent]]] = True
        if np.array_equal(now, reached):
            break
        reached = now
    return np.flatnonzero(reached)


def as_dot(drawing: Drawing) -> str:
    """Return the drawing as DOT text of GraphViz."""
    lines = ["digraph trace {", '  node [shape=box, style="filled,rounded", fontname="sans-serif"];']
    for row, facts in _facts(drawing):
        label = "\\n".join(line.replace("\\", "\\\\").replace('"', '\\"') for line in _label(facts))
        colour = _HOST if facts["place"] == "host" else _COLOURS.get(facts["kind"], _OTHER)
        lines.append(f'  n{int(drawing.trace.node_id[row])} [label="{label}", fillcolor="{colour}"];')
    ids = drawing.trace.node_id
    for parent, child, kind in drawing.edges:
        style = " [style=dashed]" if kind == "control" else ""
        lines.append(f"  n{int(ids[parent])} -> n{int(ids[child])}{style};")
    return "\n".join([*lines, "}", ""])


def as_graphml(drawing: Drawing) -> str:
    """Return the drawing as GraphML, with all facts of a node as data."""
    import networkx

    graph: networkx.MultiDiGraph[str] = networkx.MultiDiGraph()
    ids = [str(int(node_id)) for node_id in drawing.trace.node_id]
    for row, facts in _facts(drawing):
        graph.add_node(ids[row], **facts)
    for parent, child, kind in drawing.edges:
        graph.add_edge(ids[parent], ids[child], dependency=kind)
    return "\n".join([*networkx.generate_graphml(graph), ""])


def _facts(drawing: Drawing) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row with its facts, as values that GraphML supports."""
    trace = drawing.trace
    spans = durations_ns(trace)
    for row in drawing.rows:
        facts: dict[str, Any] = {
            "name": _printable(trace.node_name(row)),
            "kind": kind_name(int(trace.kind[row])),
            "place": "host" if trace.is_cpu[row] else "device",
            "duration_ns": int(spans[row]),
        }
        if trace.has("comm_type", row):
            facts["collective"] = collective_name(int(trace.comm_type[row]))
        for attribute, name, column in (
            ("comm_size", "bytes", trace.comm_bytes),
            ("tensor_size", "tensor_bytes", trace.tensor_bytes),
            ("comm_src", "source", trace.comm_src),
            ("comm_dst", "target", trace.comm_dst),
        ):
            if trace.has(attribute, row):
                facts[name] = int(column[row])
        if trace.has("pg_name", row):
            facts["group"] = _printable(trace.group_names[int(trace.group[row])])
        if row in drawing.outside:
            facts["dependencies_outside"] = drawing.outside[row]
        yield row, facts


def _label(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a label: name, kind and size, duration, dependencies outside the drawing."""
    name = facts["name"]
    yield name if len(name) <= _LONGEST_LABEL else f"{name[: _LONGEST_LABEL - 1]}…"
    words = [facts.get("collective", facts["kind"].lower())]
    words += [exact_bytes(facts["bytes"])] if "bytes" in facts else []
    words += [format_ns(facts["duration_ns"])] if facts["duration_ns"] else []
    yield " ".join(words)
    if "dependencies_outside" in facts:
        yield f"+{facts['dependencies_outside']} not drawn"


def _printable(text: str) -> str:
    """Replace control characters: XML 1.0 forbids them, even as references."""
    return "".join(character if character.isprintable() else "�" for character in text)
