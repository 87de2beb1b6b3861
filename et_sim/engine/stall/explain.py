"""Explaining a run that got stuck: which ranks cannot finish, what they wait for, and what would help.

`explain_stall` reads the state at the end of a run, builds the wait-for graph and describes it in a report
whose length does not depend on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from et_sim.basics.units import exact_bytes
from et_sim.engine.outcome import Outcome
from et_sim.engine.stall.graph import WaitGraph
from et_sim.engine.stall.laggards import Lag
from et_sim.engine.stall.report import Stall, actors_note, dead_end_lines, job_lines, remedies
from et_sim.engine.stall.state import Chunk, NodeAt, StalledState, Vertex, operation, ranks_text
from et_sim.engine.stall.waits import KnotHop, Wait, WaitDescriber
from et_sim.trace.workload import Job, Workload


class _Signature(NamedTuple):
    """The properties in which all members of a collective must agree."""

    operation: str
    size: int
    sequence: int
    priority: int
    dims: int


class _Side(NamedTuple):
    signature: _Signature
    group: str


def nearest_mismatches(graph: WaitGraph) -> tuple[str, ...]:
    """Return all near misses, each once: messages, then collectives."""
    messages = graph.messages
    sentences = [messages.nearest(node) for node in messages.waiting if messages.send_for(node) is None]
    return tuple(dict.fromkeys([*filter(None, sentences), *_collectives(graph)]))


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
    for (one_side, other_side), (ones, others) in pairs.items():
        yield _sentence(graph, one_side, other_side, ones, others)


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


def _sentence(graph: WaitGraph, first: _Side, second: _Side, ones: set[NodeAt], others: set[NodeAt]) -> str:
    here, there = _ranks_text(graph, ones), _ranks_text(graph, others)
    a, b = first.signature, second.signature
    where = f"in group {first.group}" if first.group else "over all ranks"
    if a[:2] != b[:2]:
        sides = ", ".join(
            f"{who} {_verb(nodes)} {sig.operation} of {exact_bytes(sig.size)}{_node(graph, nodes)}"
            for who, nodes, sig in ((here, ones, a), (there, others, b))
        )
        return f"collectives {where} differ: {sides}"
    subject = f"{a.operation} of {exact_bytes(a.size)} {where}"
    if a.sequence != b.sequence:
        return (
            f"{subject} is number {a.sequence} on {here} and number {b.sequence} on {there}: "
            "collectives of other groups also take numbers from the whole system's count"
        )
    return f"{subject} names other dimensions or priorities on {here} than on {there}"


def _ranks_text(graph: WaitGraph, nodes: set[NodeAt]) -> str:
    return ranks_text(graph.still.ranks_of({node.actor for node in nodes}))


def _verb(nodes: set[NodeAt]) -> str:
    return "runs" if len({node.actor for node in nodes}) == 1 else "run"


def _node(graph: WaitGraph, nodes: set[NodeAt]) -> str:
    ids = {int(graph.still.trace(node.actor).node_id[node.row]) for node in nodes}
    return f" (node {ids.pop()})" if len(ids) == 1 else ""


def _next_differs(graph: WaitGraph, pending: NodeAt, collective: int) -> Iterator[str]:
    """Yield a sentence if a member will next issue another collective in this group than the others run."""
    if graph.collectives.collective(pending) == collective:
        return
    trace = graph.still.trace(pending.actor)
    yield (
        f"the next collective of {ranks_text([int(graph.still.rank[pending.actor])])} in that group is "
        f"{operation(trace, pending.row)} of {exact_bytes(int(trace.comm_bytes[pending.row]))} "
        f"(node {int(trace.node_id[pending.row])}), not the one the others are in"
    )


def explain_stall(outcome: Outcome, workload: Workload, cures: Sequence[str] = ()) -> Stall:
    """Return why a run is not complete. An error in the explanation becomes part of the report.

    `cures` are remedies that are certain to work.
    """
    rank_finish = outcome.finish_ns[outcome.plan.actor_of_rank]
    unfinished = tuple(np.flatnonzero(rank_finish < 0).tolist())
    stall = Stall(
        ranks=outcome.plan.ranks,
        alike=actors_note(len(outcome.plan.actors), outcome.plan.ranks),
        end_ns=outcome.end_ns,
        unfinished=unfinished,
        cause=f"{len(unfinished):,} of {outcome.plan.ranks:,} ranks cannot finish",
        remedies=tuple(cures),
    )
    try:
        return _explained(stall, outcome, workload)
    except Exception as error:  # a broken explanation must not hide the stall itself
        return replace(stall, failure=f"the explanation itself failed: {type(error).__name__}: {error}")


def _explained(stall: Stall, outcome: Outcome, workload: Workload) -> Stall:
    graph = WaitGraph(StalledState(outcome, workload))
    describer = WaitDescriber(graph)
    waits = tuple(describer.waits())
    cycles = graph.knots()
    hops = tuple(describer.hops(cycles[0])) if cycles else ()
    nearest = nearest_mismatches(graph)
    lost = graph.still.undelivered
    hints = remedies(
        {wait.kind for wait in waits},
        nearest,
        hops,
        queue_in_knot=any(_is_queued(graph, vertex) for cycle in cycles for vertex in cycle),
        misplaced=outcome.plan.misplaced_programs and any(wait.is_within_collective for wait in waits),
    )
    reason = f": {lost.cause}" if lost.cause else _reason(waits, hops, workload.jobs)
    return replace(
        stall,
        jobs=tuple(job_lines(workload.jobs, stall.unfinished)),
        waits=waits,
        knot=hops,
        knots=len(cycles),
        dead_ends=tuple(dead_end_lines(describer.dead_ends())),
        nearest=nearest,
        remedies=(*((lost.remedy,) if lost.remedy else ()), *stall.remedies, *hints),
        cause=stall.cause + reason,
    )


def _is_queued(graph: WaitGraph, vertex: Vertex) -> bool:
    return isinstance(vertex, Chunk) and not graph.collectives.is_started(vertex)


def _reason(waits: tuple[Wait, ...], knot: tuple[KnotHop, ...], jobs: tuple[Job, ...]) -> str:
    """Return the reason as `: rank 3 waits for …`; with several jobs, it has the job and its rank, too."""
    wait = _main_wait(waits, knot)
    if wait is None:
        return ""
    node = f' ({wait.operation} "{wait.node_name}", node {wait.node_id})' if wait.operation else ""
    name_in_job = next((f" ({name})" for name in (job.named(wait.rank) for job in jobs) if name), "")
    return f": rank {wait.rank}{name_in_job} waits for {wait.text}{node}"


def _main_wait(waits: tuple[Wait, ...], knot: tuple[KnotHop, ...]) -> Wait | None:
    """Return the most informative wait: one in the knot, else one that nothing can end."""
    final = (
        "send-missing",
        "receive-missing",
        "member-mismatch",
        "member-renumbered",
        "member-absent",
        "member-turned",
        "cycle",
        "queue-closed",
    )
    if knot:
        in_knot = {(hop.rank, hop.waits_for) for hop in knot}
        for wait in waits:
            if any((wait.rank, provider) in in_knot for provider in wait.provider):
                return wait
    for wait in waits:
        if wait.kind in final:
            return wait
    return waits[0] if waits else None


__all__ = ["KnotHop", "Stall", "Wait", "explain_stall"]
