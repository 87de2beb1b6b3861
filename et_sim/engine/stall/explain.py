"""Explaining a run that got stuck: who cannot finish, who waits for whom, and what would help.

`explain_stall` reads the state a run left behind, builds the wait-for graph and tells it in a report
whose length does not depend on the number of ranks. Not here: finding such trouble before a run
(`trace.preflight`), or deciding what the process returns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from et_sim.basics.errors import StallError
from et_sim.basics.units import exact_bytes, format_ranks
from et_sim.engine.outcome import Outcome
from et_sim.engine.stall.collectives import Lag
from et_sim.engine.stall.graph import WaitGraph
from et_sim.engine.stall.report import (
    chain_lines,
    dead_end_lines,
    grouped_waits,
    job_lines,
    remedies,
    report,
    told_together,
    wait_lines,
)
from et_sim.engine.stall.state import Chunk, NodeAt, StalledState, Vertex, operation, ranks_text
from et_sim.engine.stall.waits import Hop, Wait, WaitDescriber
from et_sim.trace.workload import Job, Workload


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


@dataclass(frozen=True, slots=True)
class Stall:
    """Why a run could not complete."""

    ranks: int
    alike: str  # what to know about ranks that were simulated together, if any were
    jobs: tuple[str, ...]  # of several workloads side by side, which ranks of which cannot finish
    end_ns: int
    unfinished: tuple[int, ...]
    waits: tuple[Wait, ...]
    knot: tuple[Hop, ...]  # the wait-for cycle, rank by rank; empty: nobody waits in a circle
    knots: int  # how many such cycles there are
    dead_ends: tuple[str, ...]  # what nobody will ever provide
    nearest: tuple[str, ...]  # near misses
    remedies: tuple[str, ...]
    cause: str  # the stall in one sentence
    text: str

    def as_error(self) -> StallError:
        """The stall as the exception that ends a run."""
        return StallError(self.cause, report=self.text, remedy=self.remedies[0] if self.remedies else "")

    def as_dict(self) -> dict[str, Any]:
        """The stall as plain values: like waits are one entry, ranks are texts such as 0-3,6."""
        return {
            "ranks": self.ranks,
            "alike": self.alike,
            "jobs": list(self.jobs),
            "end_ns": self.end_ns,
            "unfinished": format_ranks(self.unfinished),
            "cause": self.cause,
            "waits": [
                {
                    "ranks": format_ranks(group.ranks),
                    "kind": group.kind,
                    "operation": group.operation,
                    "node_name": group.node_name,
                    "node_ids": list(group.node_ids),
                    "waits_for": group.what,
                    "provider": format_ranks(group.provider),
                    "since_ns": group.since_ns,
                }
                for group in grouped_waits(self.waits)
            ],
            "knot": [hop._asdict() for hop in self.knot],
            "dead_ends": list(self.dead_ends),
            "nearest": list(self.nearest),
            "remedies": list(self.remedies),
        }


def explain_stall(outcome: Outcome, workload: Workload, cures: Sequence[str] = ()) -> Stall:
    """Say why a run is not complete. Never raises: a failure to explain becomes part of the report.

    `cures` are remedies that are known to work.
    """
    rank_finish = outcome.finish_ns[outcome.plan.actor_of_rank]
    unfinished = tuple(np.flatnonzero(rank_finish < 0).tolist())
    alike = told_together(len(outcome.plan.actors), outcome.plan.ranks)
    try:
        return _explain(outcome, workload, unfinished, alike, cures)
    except Exception as error:  # a broken explanation must not hide the stall itself
        note = f"the explanation itself failed: {type(error).__name__}: {error}"
        head = _cause(outcome.plan.ranks, unfinished, (), (), ())
        return Stall(
            ranks=outcome.plan.ranks,
            alike=alike,
            jobs=(),
            end_ns=outcome.end_ns,
            unfinished=unfinished,
            waits=(),
            knot=(),
            knots=0,
            dead_ends=(),
            nearest=(),
            remedies=tuple(cures),
            cause=head,
            text=f"{head}\n{note}",
        )


def _explain(
    outcome: Outcome, workload: Workload, unfinished: tuple[int, ...], alike: str, cures: Sequence[str]
) -> Stall:
    graph = WaitGraph(StalledState(outcome, workload))
    describer = WaitDescriber(graph)
    waits = tuple(describer.waits())
    jobs = tuple(job_lines(workload.jobs, unfinished))
    cycles = graph.knots()
    hops = tuple(describer.hops(cycles[0])) if cycles else ()
    dead_ends = tuple(dead_end_lines(describer.dead_ends()))
    nearest = nearest_mismatches(graph)
    queue_in_knot = any(_is_queued(graph, vertex) for cycle in cycles for vertex in cycle)
    lost = graph.still.undelivered
    help_texts = (
        *((lost.remedy,) if lost.remedy else ()),
        *cures,
        *remedies(
            {wait.kind for wait in waits},
            nearest,
            hops,
            queue_in_knot=queue_in_knot,
            misplaced=outcome.plan.misplaced_programs and any(wait.is_within_collective for wait in waits),
        ),
    )
    cause = _cause(outcome.plan.ranks, unfinished, waits, hops, workload.jobs)
    if lost.cause:
        cause = f"{_cause(outcome.plan.ranks, unfinished, (), (), ())}: {lost.cause}"
    text = report(
        head=cause,
        end_ns=outcome.end_ns,
        alike=alike,
        jobs=jobs,
        waits=wait_lines(grouped_waits(waits)),
        chain=chain_lines(hops),
        knots=len(cycles),
        dead_ends=list(dead_ends),
        nearest=list(nearest),
        remedies=list(help_texts),
    )
    return Stall(
        ranks=outcome.plan.ranks,
        alike=alike,
        jobs=jobs,
        end_ns=outcome.end_ns,
        unfinished=unfinished,
        waits=waits,
        knot=hops,
        knots=len(cycles),
        dead_ends=dead_ends,
        nearest=nearest,
        remedies=help_texts,
        cause=cause,
        text=text,
    )


def _is_queued(graph: WaitGraph, vertex: Vertex) -> bool:
    return isinstance(vertex, Chunk) and not graph.collectives.is_started(vertex)


def _cause(
    ranks: int,
    unfinished: tuple[int, ...],
    waits: tuple[Wait, ...],
    knot: tuple[Hop, ...],
    jobs: tuple[Job, ...],
) -> str:
    """`4 of 8 ranks cannot finish: rank 3 waits for …`; of several jobs, which rank of which it is."""
    head = f"{len(unfinished):,} of {ranks:,} ranks cannot finish"
    wait = _telling_wait(waits, knot)
    if wait is None:
        return head
    node = f' ({wait.operation} "{wait.node_name}", node {wait.node_id})' if wait.operation else ""
    own = next((f" ({one})" for one in (job.named(wait.rank) for job in jobs) if one), "")
    return f"{head}: rank {wait.rank}{own} waits for {wait.what}{node}"


def _telling_wait(waits: tuple[Wait, ...], knot: tuple[Hop, ...]) -> Wait | None:
    """A wait at the heart of the matter: one that nothing can end, else one in the knot."""
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


__all__ = ["Hop", "Stall", "Wait", "explain_stall"]
