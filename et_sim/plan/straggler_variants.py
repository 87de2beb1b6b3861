"""StragglerVariants: what the stragglers and time factors of a system do to the programs of their ranks.

Ranks of one template that have different paces get templates of their own here, which share the trace; where
there is jitter, every rank has a pace of its own. Late starts need no template: they are a column of the
actors.

Not here: how stragglers are described (`et_sim.machine.system`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from et_sim.basics.errors import MachineError
from et_sim.basics.units import LONGEST_NS, format_ns, rank_mask
from et_sim.machine.model import Notice, Straggler, TimeFactors
from et_sim.plan.splitmix import splitmix64, uniform
from et_sim.plan.tables import Action
from et_sim.plan.time_factors import FactorTable
from et_sim.trace.columns import NodeKind, RowColumn, Trace
from et_sim.trace.workload import Workload

PLACE = "system configuration"


class StragglerVariants:
    """The workload with a template for every pace, and what makes the paces."""

    def __init__(
        self,
        workload: Workload,
        stragglers: tuple[Straggler, ...],
        time_factors: tuple[TimeFactors, ...] = (),
        classes: Sequence[RowColumn] = (),
    ) -> None:
        """`classes`: numbers per rank; ranks with different ones do not do or take the same either."""
        self.workload = workload
        self.start_ns: Any | None = None  # per rank; None: everybody starts at once
        self._jittery: list[tuple[Straggler, Any]] = []  # with the ranks it is about, as a mask
        self._delayed_nodes: list[tuple[Straggler, Any]] = []
        self._met: set[int] = set()  # nodes that were found
        self._factor: Any | None = None  # per rank
        self._time_factors = FactorTable(time_factors, workload.ranks)
        of_factors = self._time_factors.classes()
        start = np.array([trace.start_ns for trace in workload.templates], np.int64)
        if start.any():
            self.start_ns = start[workload.template_of_rank]
        if stragglers:
            self._read(stragglers)
        if stragglers or classes or of_factors is not None:
            self._divide_templates(classes, of_factors)

    def _read(self, stragglers: tuple[Straggler, ...]) -> None:
        ranks = self.workload.ranks
        start = np.zeros(ranks, np.int64) if self.start_ns is None else self.start_ns
        self._factor = np.ones(ranks)
        for straggler in stragglers:
            concerned = rank_mask(straggler.ranks, ranks)
            self._factor[concerned] *= straggler.compute
            if straggler.jitter:
                self._jittery.append((straggler, concerned))
            if straggler.node is not None:
                self._delayed_nodes.append((straggler, concerned))
            else:
                start[concerned] += straggler.delay_ns
                _refuse_longer(start.max(initial=0), "a rank would start later")
        if start.any():
            self.start_ns = start

    def _divide_templates(self, classes: Sequence[RowColumn], of_factors: Any | None) -> None:
        workload = self.workload
        code: Any = workload.template_of_rank
        for column in (self._factor, *classes, of_factors):
            code = code if column is None else _refined(code, column)
        for _, concerned in self._delayed_nodes:
            code = _refined(code, concerned)
        for _, concerned in self._jittery:
            code = _refined(code, np.where(concerned, np.arange(workload.ranks), -1))
        _, lowest, of_rank = np.unique(code, return_index=True, return_inverse=True)
        template = workload.template_of_rank[lowest].tolist()
        relative = workload.relative_peers
        self.workload = replace(
            workload,
            templates=tuple(workload.templates[old] for old in template),
            template_of_rank=of_rank.reshape(-1).astype(np.int32),
            relative_peers=tuple(relative[old] for old in template) if relative else (),
        )

    def apply(self, nodes: Any, trace: Trace, rank: int) -> None:
        """Change the durations of lowered nodes to those of a rank, and so of all ranks of its template."""
        factor = self._time_factors.of(nodes, trace, rank)
        if self._factor is None and factor is None:
            return
        factor = np.ones(len(trace)) if factor is None else factor
        computes = np.flatnonzero((trace.kind == NodeKind.COMP) & (nodes["action"] == Action.DELAY))
        if self._factor is not None:
            factor[computes] *= self._factor[rank]
        for straggler, concerned in self._jittery:
            if concerned[rank]:
                factor[computes] *= _drawn(straggler, rank, trace.node_id[computes])
        rows = np.flatnonzero(factor != 1)
        before, factor = nodes["duration_ns"][rows], factor[rows]
        with np.errstate(over="ignore"):
            after = np.minimum(np.floor(before * factor), 2.0 * LONGEST_NS).astype(np.int64)
        nodes["duration_ns"][rows] = np.maximum(after, (before > 0) & (factor > 0))
        for straggler, concerned in self._delayed_nodes:
            if concerned[rank]:
                self._delay(nodes, trace, straggler, rank)
        _refuse_longer(nodes["duration_ns"].max(initial=0), f"a node of rank {rank} would last longer")

    def _delay(self, nodes: Any, trace: Trace, straggler: Straggler, rank: int) -> None:
        row = int(np.searchsorted(trace.node_id, np.array(straggler.node, np.uint64)))
        if row == len(trace) or trace.node_id[row] != straggler.node:
            return
        if nodes["action"][row] != Action.DELAY:
            raise MachineError(
                f"{trace.describe(row)} of rank {rank} cannot be delayed: "
                "it is no computation, or takes no time",
                place=PLACE,
                remedy='name a compute node in "stragglers", or delay the rank',
            )
        self._met.add(int(trace.node_id[row]))
        nodes["duration_ns"][row] += straggler.delay_ns

    def check_all_met(self) -> list[Notice]:
        """Refuse what is about nodes that no rank concerned has; to be called after all templates."""
        for straggler, _ in self._delayed_nodes:
            if straggler.node not in self._met:
                raise MachineError(
                    f'"stragglers" delays node {straggler.node}, which none of the ranks it names has',
                    place=PLACE,
                    remedy="correct its id, or the ranks",
                )
        return self._time_factors.check_all_met()


def _refined(code: Any, column: Any) -> Any:
    """A number for each distinct pair, in the order of the codes."""
    values, inverse = np.unique(column, return_inverse=True)
    pairs = np.asarray(code, np.int64) * len(values) + inverse.reshape(-1)
    return np.unique(pairs, return_inverse=True)[1].reshape(-1)


def _drawn(straggler: Straggler, rank: int, node_id: Any) -> Any:
    """The factors of nodes, from nothing but seed, rank and node."""
    of_rank = splitmix64(
        splitmix64(rank, straggler.seed), 0
    )  # one after the other, so that none can stand for another
    drawn = uniform(splitmix64(node_id ^ of_rank, 1))
    return 1 - straggler.jitter + 2 * straggler.jitter * drawn


def _refuse_longer(longest: Any, what: str) -> None:
    if longest > LONGEST_NS:
        raise MachineError(
            f"with its stragglers and time factors, {what} than {format_ns(LONGEST_NS)}",
            place=PLACE,
            remedy='correct "compute" or "delay" in "stragglers", or "time-factors"',
        )
