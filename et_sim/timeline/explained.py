"""Explained part of a run's longest path, where the traces are recordings with gaps.

The path is walked back over the nodes from the last one that ended: to the cause of a node's start or, where
it waited for another rank, to the node that this rank had issued last. Gaps keep their recorded length on any
machine, so the more of them are on the path, the less a changed machine changes.

`et_sim.views.critical` finds the path through messages and links.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from et_sim.basics.unique import groups_of, sums_of, unique
from et_sim.basics.units import format_ranks
from et_sim.compute import Treatment
from et_sim.engine.outcome import Outcome
from et_sim.machine.model import System, WorkKind
from et_sim.plan.straggler_variants import of_kind
from et_sim.timeline.waiting.waits import Waits
from et_sim.trace.columns import NodeKind
from et_sim.trace.workload import Workload

if TYPE_CHECKING:
    from et_sim.timeline.waiting.walk import Hops


WANTED = 0.75  # the share of the path that should be explained on a changed machine
OTHER = "other"  # remote memory, late starts
LANES_SHOWN, GAPS_SHOWN = 20, 5
_GAPS = list(WorkKind).index(WorkKind.GAPS)


def explained(outcome: Outcome, workload: Workload, waits: Waits) -> dict[str, Any] | None:
    """Return the composition of the longest path; None where no trace has gaps, or the run did not
    complete.
    """
    if not outcome.is_complete or not any(stack.trace.is_gap.any() for stack in workload.stacks()):
        return None
    from et_sim.timeline.waiting.walk import Walk

    hops, end = Walk(outcome, waits).hops(), int(outcome.finish_ns.max())
    took = hops.until_ns - hops.since_ns
    kind, word, name = _described(outcome, workload, hops)
    spent = sums_of(kind, took, len(WorkKind) + 1)
    spent[-1] += end - int(took.sum())  # the time between them
    gaps = np.flatnonzero((kind == _GAPS) & (took > 0))
    gaps = gaps[np.lexsort((hops.since_ns[gaps], -took[gaps]))]
    named = groups_of(hops.actor[gaps], word[gaps])
    firsts, sums = gaps[named.first].tolist(), named.sums(took[gaps]).tolist()
    lanes = {(int(hops.actor[at]), name(at)): ns for at, ns in zip(firsts, sums, strict=True)}
    order = sorted(lanes, key=lambda lane: (-lanes[lane], *lane))
    return {
        "path_ns": end,
        "gaps_ns": int(spent[_GAPS]),
        "spent_ns": {kind: ns for kind, ns in zip((*WorkKind, OTHER), spent.tolist(), strict=True) if ns},
        "gaps": [
            {"ranks": _ranks(outcome, actor), "name": called, "ns": lanes[actor, called]}
            for actor, called in order[:LANES_SHOWN]
        ],
        "longest": [
            {
                "ranks": _ranks(outcome, int(hops.actor[at])),
                "name": name(at),
                "ns": int(took[at]),
                "start_ns": int(hops.since_ns[at]),
                "before": name(at - 1) if at else "",
            }
            for at in gaps[:GAPS_SHOWN].tolist()
        ],
    }


def doubt(figures: dict[str, Any] | None, *, is_changed: bool) -> str:
    """Return a warning if too much of a run on a changed machine is unexplained; else an empty text."""
    if figures is None or not is_changed or figures["gaps_ns"] <= (1 - WANTED) * figures["path_ns"]:
        return ""
    longest = figures["longest"][0]
    before = f' before "{longest["before"][:60]}"' if longest["before"] else ""
    share = 100 * figures["gaps_ns"] / figures["path_ns"]
    return (
        f"{share:.0f} % of the longest path are gaps that the recording does not explain, and that stay "
        "as long as they were on any machine: results for a "
        f"changed machine are doubtful (the longest: {longest['name']}{before} of rank {longest['ranks']})"
    )


def is_changed(outcome: Outcome, workload: Workload, system: System) -> bool:
    """Return whether some work takes other times than recorded.

    Examples are work with a factor, modelled kernels and communication, and collectives of a single rank,
    which take no time.
    """
    factors = any(factor != 1 for entry in system.time_factors for factor in entry.factors.values())
    is_modelled = outcome.plan.nodes["treatment"] == Treatment.MODELLED
    if factors or system.stragglers or outcome.plan.slow or is_modelled.any():
        return True
    if system.replay_only or system.replay_communication:
        return False
    traces = (stack.trace for stack in workload.stacks())
    return any(((trace.kind == NodeKind.COLL) & ~trace.is_unsized).any() for trace in traces)


def _described(outcome: Outcome, workload: Workload, hops: Hops) -> tuple[Any, Any, Callable[[int], str]]:
    """Return for every hop the kind of work as an index (the last: others), an index of its name, and a
    namer.
    """
    kinds, words = np.full(len(hops.row), len(WorkKind), np.int64), np.zeros(len(hops.row), np.int64)
    template = outcome.plan.actors["template"][hops.actor]
    for number in unique(template).tolist():
        trace, here = workload.templates[number], np.flatnonzero(template == number)
        words[here] = trace.name[hops.row[here]]
        for code, kind in enumerate(WorkKind):
            kinds[here[of_kind(trace, kind)[hops.row[here]]]] = code

    def name(at: int) -> str:
        return workload.templates[int(template[at])].node_name(int(hops.row[at]))

    return kinds, words, name


def _ranks(outcome: Outcome, actor: int) -> str:
    return format_ranks(np.flatnonzero(outcome.plan.actor_of_rank == actor))
