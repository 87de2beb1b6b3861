"""Explaining a run that got stuck: who cannot finish, who waits for whom, and what would help.

`explain_stall` reads the state a run left behind, builds the wait-for graph and tells it in a report
whose length does not depend on the number of ranks. Not here: finding such trouble before a run
(`trace.preflight`), or deciding what the process returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.errors import StallError
from et_sim.basics.units import format_ranks
from et_sim.engine.outcome import Outcome
from et_sim.engine.stall.graph import WaitGraph
from et_sim.engine.stall.mismatches import nearest_mismatches
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
from et_sim.engine.stall.state import Chunk, StalledState, Vertex
from et_sim.engine.stall.waits import Hop, Wait, WaitDescriber
from et_sim.trace.workload import Job, Workload


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
