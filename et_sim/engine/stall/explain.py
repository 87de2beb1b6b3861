"""Explaining a run that got stuck: which ranks cannot finish, what they wait for, and what would help.

`explain_stall` names the mistakes of the traces in the words of `et-sim check`. For causes that only a run
shows, it reads the state at the end of the run, builds the wait-for graph and describes it. The length of the
report does not depend on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from et_sim.engine.outcome import Outcome
from et_sim.engine.stall.graph import WaitGraph
from et_sim.engine.stall.report import FINAL, Stall, actors_note, job_lines, remedies
from et_sim.engine.stall.state import Chunk, StalledState, Vertex
from et_sim.engine.stall.waits import KnotHop, Wait, WaitDescriber
from et_sim.plan.mismatches import find_mistakes
from et_sim.trace.workload import Job, Workload


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
    mistakes = find_mistakes(outcome.plan, workload)
    certain = [mistake.text for mistake in mistakes if mistake.severity == "error"]
    lost = graph.still.undelivered
    of_waits = not lost.cause  # else messages that never arrive explain all waits
    hints = remedies(
        {wait.kind for wait in waits if of_waits},
        mistakes,
        hops if of_waits else (),
        queue_in_knot=of_waits and any(_is_queued(graph, vertex) for cycle in cycles for vertex in cycle),
        misplaced=of_waits
        and outcome.plan.misplaced_programs
        and any(wait.is_within_collective for wait in waits),
    )
    reasons = [*filter(None, [lost.cause]), *certain]
    reason = f": {reasons[0]}" if reasons else _reason(waits, hops, workload.jobs)
    return replace(
        stall,
        jobs=tuple(job_lines(workload.jobs, stall.unfinished)),
        waits=waits,
        knot=hops,
        knots=len(cycles),
        nearest=tuple(mistake.text for mistake in mistakes),
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
    if knot:
        in_knot = {(hop.rank, hop.waits_for) for hop in knot}
        for wait in waits:
            if any((wait.rank, provider) in in_knot for provider in wait.provider):
                return wait
    for wait in waits:
        if wait.kind in FINAL:
            return wait
    return waits[0] if waits else None


__all__ = ["KnotHop", "Stall", "Wait", "explain_stall"]
