"""Near misses: what a rank did that is almost, but not quite, what another one waits for.

Not here: who waits (`waits`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from et_sim.basics.units import exact_bytes
from et_sim.engine.stall.collectives import Lag
from et_sim.engine.stall.graph import WaitGraph
from et_sim.engine.stall.state import NodeAt, operation, ranks_text


class _Signature(NamedTuple):
    """What makes a collective the same for all its members."""

    operation: str
    size: int
    sequence: int
    priority: int
    dims: int


class _Side(NamedTuple):
    signature: _Signature
    group: str


def nearest_mismatches(graph: WaitGraph) -> tuple[str, ...]:
    """All near misses, each once: messages, then collectives."""
    messages = graph.messages
    found = [messages.nearest(node) for node in messages.waiting if messages.send_for(node) is None]
    return tuple(dict.fromkeys([*filter(None, found), *_collectives(graph)]))


def _collectives(graph: WaitGraph) -> Iterator[str]:
    pairs: dict[tuple[_Side, _Side], tuple[set[NodeAt], set[NodeAt]]] = {}
    for shared in graph.laggards:
        for laggard in graph.laggards[shared]:
            if laggard.node and laggard.peer:
                sides = sorted(
                    (_side(graph, node), node.actor, node.row) for node in (laggard.node, laggard.peer)
                )
                first, second = (NodeAt(actor, row) for _, actor, row in sides)
                entry = pairs.setdefault((sides[0][0], sides[1][0]), (set(), set()))
                entry[0].add(first)
                entry[1].add(second)
            elif laggard.lag is Lag.ELSEWHERE and isinstance(laggard.vertex, NodeAt):
                yield from _next_differs(graph, laggard.vertex, shared.collective)
    for (one, other), (ones, others) in pairs.items():
        yield _sentence(graph, one, other, ones, others)


def _side(graph: WaitGraph, node: NodeAt) -> _Side:
    trace = graph.still.trace(node.actor)
    signature = _Signature(
        operation=operation(trace, node.row),
        size=int(trace.comm_bytes[node.row]),
        sequence=graph.collectives.sequence(node),
        priority=int(trace.comm_priority[node.row]),
        dims=int(trace.involved_dims[node.row]),
    )
    return _Side(signature, graph.collectives.group_name(node))


def _sentence(graph: WaitGraph, one: _Side, other: _Side, ones: set[NodeAt], others: set[NodeAt]) -> str:
    here, there = _who(graph, ones), _who(graph, others)
    a, b = one.signature, other.signature
    where = f"in group {one.group}" if one.group else "over all ranks"
    if a[:2] != b[:2]:
        sides = ", ".join(
            f"{who} {_verb(nodes)} {sig.operation} of {exact_bytes(sig.size)}{_node(graph, nodes)}"
            for who, nodes, sig in ((here, ones, a), (there, others, b))
        )
        return f"collectives {where} differ: {sides}"
    what = f"{a.operation} of {exact_bytes(a.size)} {where}"
    if a.sequence != b.sequence:
        return (
            f"{what} is number {a.sequence} on {here} and number {b.sequence} on {there}: "
            "collectives of other groups also take numbers from the whole system's count"
        )
    return f"{what} names other dimensions or priorities on {here} than on {there}"


def _who(graph: WaitGraph, nodes: set[NodeAt]) -> str:
    return ranks_text(graph.still.ranks_of({node.actor for node in nodes}))


def _verb(nodes: set[NodeAt]) -> str:
    return "runs" if len({node.actor for node in nodes}) == 1 else "run"


def _node(graph: WaitGraph, nodes: set[NodeAt]) -> str:
    ids = {int(graph.still.trace(node.actor).node_id[node.row]) for node in nodes}
    return f" (node {ids.pop()})" if len(ids) == 1 else ""


def _next_differs(graph: WaitGraph, pending: NodeAt, collective: int) -> Iterator[str]:
    """A member has yet to issue a collective in this group, but another one than it is waited for with."""
    if graph.collectives.collective(pending) == collective:
        return
    trace = graph.still.trace(pending.actor)
    yield (
        f"the next collective of {ranks_text([int(graph.still.rank[pending.actor])])} in that group is "
        f"{operation(trace, pending.row)} of {exact_bytes(int(trace.comm_bytes[pending.row]))} "
        f"(node {int(trace.node_id[pending.row])}), not the one the others are in"
    )
