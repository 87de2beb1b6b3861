"""Explained part of a run's longest path, where the traces are recordings with gaps.

The path is walked back over the nodes from the last one that ended: to the cause of a node's start or, where
it waited for another rank, to the node that this rank had issued last. Gaps keep their recorded length on any
machine, so the more of them are on the path, the less a changed machine changes.

`et_sim.views.critical` finds the path through messages and links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import groups_of, sums_of, unique
from et_sim.basics.units import format_ranks
from et_sim.compute import Treatment
from et_sim.engine.outcome import Outcome
from et_sim.engine.state.run import NONE
from et_sim.machine.model import System, WorkKind
from et_sim.plan.records import Action
from et_sim.plan.straggler_variants import of_kind
from et_sim.timeline.waiting.arrivals import Issued, issued
from et_sim.timeline.waiting.waits import COMMUNICATION, Waited, Waits
from et_sim.trace.columns import NodeKind
from et_sim.trace.workload import Workload

WANTED = 0.75  # the share of the path that should be explained on a changed machine
OTHER = "other"  # remote memory, late starts
LANES_SHOWN, GAPS_SHOWN = 20, 5
_GAPS = list(WorkKind).index(WorkKind.GAPS)


class Hops(Struct, frozen=True, eq=False):
    """Nodes of the path, the last first, and their times on it."""

    actor: Any
    row: Any
    since_ns: Any
    until_ns: Any


def explained(outcome: Outcome, workload: Workload, waits: Waits) -> dict[str, Any] | None:
    """Return the composition of the longest path; None where no trace has gaps, or the run did not
    complete.
    """
    if not outcome.is_complete or not any(stack.trace.is_gap.any() for stack in workload.stacks()):
        return None
    hops, end = _Walk(outcome, waits).hops(), int(outcome.finish_ns.max())
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
    if factors or system.stragglers or is_modelled.any():
        return True
    if system.replay_only or system.replay_communication:
        return False
    traces = (stack.trace for stack in workload.stacks())
    return any(((trace.kind == NodeKind.COLL) & ~trace.is_unsized).any() for trace in traces)


class _Walk:
    """A walk over the path, from its end to its begin."""

    def __init__(self, outcome: Outcome, waits: Waits) -> None:
        self._outcome = outcome
        self._actors: dict[int, _Nodes] = {}
        self._waits: dict[tuple[int, int], tuple[int, int, int]] = {}  # of communication that waited
        self._coming: dict[tuple[int, int, int], int] = {}  # node by actor, sequence number, time
        for nodes in issued(outcome, COMMUNICATION):
            self._read(nodes, waits.of(nodes))

    def _read(self, nodes: Issued, waits: Waited) -> None:
        """Read the waits of communication, and the times at which collectives were issued."""
        state = self._outcome.nodes
        row = nodes.state_row - self._outcome.plan.actors["node_first"][nodes.actor]
        came = state["start_ns"][nodes.state_row] + np.maximum(waits.queued_ns, 0)
        of_group = np.flatnonzero(self._outcome.plan.nodes["action"][nodes.at] == Action.COLLECTIVE)
        keys = nodes.actor, state["sequence"][nodes.state_row], came
        self._coming.update(_pairs([key[of_group] for key in keys], [row[of_group]], single=True))
        waited = np.flatnonzero(waits.waiting_ns > 0)
        values = came + waits.waiting_ns, waits.waits_for, state["sequence"][nodes.state_row]
        self._waits.update(_pairs([nodes.actor[waited], row[waited]], [column[waited] for column in values]))

    def hops(self) -> Hops:
        """Return the nodes of the path."""
        hops: list[tuple[int, int, int, int]] = []
        actor = int(np.argmax(self._outcome.finish_ns))
        nodes = self._nodes(actor)
        row = int(np.argmax(np.asarray(nodes.end)))
        until = nodes.end[row]
        while row != NONE and until > 0:
            waited = self._waits.get((actor, row))
            awaited = self._awaited(actor, row, nodes, *waited) if waited is not None else None
            if waited is not None and awaited is not None and waited[0] < until:
                hops.append((actor, row, waited[0], until))
                (actor, row), until = awaited, waited[0]
                nodes = self._nodes(actor)
                continue
            begin = nodes.start[row]
            hops.append((actor, row, begin if begin < until else until, until))
            freed = nodes.freed_by[row]
            row = freed if freed != NONE else nodes.released_by[row]
            until = nodes.end[row] if row != NONE else 0
        return Hops(*np.array(hops, np.int64).reshape(-1, 4).T)

    def _awaited(
        self, actor: int, row: int, nodes: _Nodes, since: int, awaited: int, sequence: int
    ) -> tuple[int, int] | None:
        """Return the actor and the node that a node waited for until then; None if unknown."""
        if nodes.message_node[row] != NONE:  # a receive waits for its send
            return nodes.message_from[row], nodes.message_node[row]
        other = self._coming.get((awaited, sequence, since))
        return None if other is None or awaited == actor else (awaited, other)

    def _nodes(self, actor: int) -> _Nodes:
        """Return the nodes of an actor, cached for the actors of the path."""
        if actor not in self._actors:
            plan = self._outcome.plan
            first = int(plan.actors["node_first"][actor])
            count = int(plan.templates["nodes"][plan.actors["template"][actor]])
            rows = self._outcome.nodes[first : first + count]
            columns = ("start_ns", "end_ns", "released_by", "freed_by", "message_from", "message_node")
            self._actors[actor] = _Nodes(*(np.ascontiguousarray(rows[name]).data for name in columns))
        return self._actors[actor]


class _Nodes(Struct, frozen=True):
    """Columns of an actor's nodes that yield Python's numbers."""

    start: Any
    end: Any
    released_by: Any
    freed_by: Any
    message_from: Any
    message_node: Any


def _pairs(keys: list[Any], values: list[Any], *, single: bool = False) -> Iterator[tuple[Any, Any]]:
    """Return pairs of rows of the keys and rows of the values."""
    rows = values[0].tolist() if single else zip(*(column.tolist() for column in values), strict=True)
    return zip(zip(*(key.tolist() for key in keys), strict=True), rows, strict=True)


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
