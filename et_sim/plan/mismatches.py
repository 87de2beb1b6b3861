"""Checks of a workload that depend on the machine, and those that explain a run that got stuck."""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.errors import TraceError
from et_sim.basics.group_names import group_key
from et_sim.basics.unique import unique
from et_sim.basics.units import format_ranks, plural
from et_sim.collectives import PhaseOperation
from et_sim.machine.corrections import Correction
from et_sim.machine.model import System
from et_sim.plan.records import Action, LoweredPlan
from et_sim.trace.columns import RowColumn
from et_sim.trace.preflight import CorrectionEffects, Problem, find_problems
from et_sim.trace.preflight.problem import of_ranks, ordinal
from et_sim.trace.workload import Workload

_ONE_WAY = (PhaseOperation.BROADCAST, PhaseOperation.REDUCE, PhaseOperation.GATHER, PhaseOperation.SCATTER)


def rules_of(system: System) -> CorrectionEffects:
    """Return the rules of a system for collectives, by its corrections."""
    communicates = not (system.replay_only or system.replay_communication)
    return _rules(system.behaviour.corrections, communicates=communicates)


def _rules(corrections: frozenset[Correction], *, communicates: bool) -> CorrectionEffects:
    return CorrectionEffects(
        side_by_side=Correction.CONCURRENT_COMMUNICATION in corrections,
        any_order=Correction.MATCH_BY_PROGRAM in corrections,
        simulates_broadcast=Correction.SIMULATED_BROADCAST in corrections,
        communicates=communicates,
    )


def find_mistakes(plan: LoweredPlan, workload: Workload) -> list[Problem]:
    """Return the problems of a workload that can explain why a run of the plan got stuck, certain ones first.

    These are findings of `et-sim check` about dependencies, messages and collectives.
    """
    communicates = np.isin(plan.nodes["action"], (Action.SEND, Action.RECEIVE, Action.COLLECTIVE)).any()
    groups = {
        group_key(name): tuple(plan.group_ranks[first : first + members].tolist())
        for name, first, members in zip(
            plan.group_names, plan.groups["members_first"], plan.groups["members"], strict=True
        )
        if name
    }
    rules = _rules(plan.corrections, communicates=bool(communicates))
    problems = find_problems(workload, groups=groups, rules=rules)
    if not any(problem.severity == "error" for problem in problems):
        problems += find_renumbered(plan, workload)
    return [p for p in problems if p.severity == "error" or p.kind.startswith("collective")]


def refuse_mismatches(problems: list[Problem]) -> None:
    """Raise if messages or collectives of ranks do not match."""
    if problems:
        more = f"; et-sim check lists {plural(len(problems) - 1, 'more problem')}" if problems[1:] else ""
        raise TraceError(problems[0].text + more, remedy=problems[0].remedy)


def find_renumbered(plan: LoweredPlan, workload: Workload) -> list[Problem]:
    """Return collectives of all ranks whose numbers differ between ranks, without `GROUP_COUNTERS`.

    Ranks wait for ever where the numbers are certain.
    """
    if plan.corrections & {Correction.GROUP_COUNTERS, Correction.MATCH_BY_PROGRAM}:
        return []
    numbers: dict[bytes, list[int]] = {}  # numbers of a rank's collectives of all -> ranks
    first: dict[bytes, tuple[Any, RowColumn, int]] = {}
    is_certain = True
    for template, ranks in enumerate(_ranks_of_templates(workload)):
        if len(ranks):
            sequence, rows, is_forced = _numbers(plan, workload, template, int(ranks[0]))
            key = sequence.tobytes()
            numbers.setdefault(key, []).extend(ranks.tolist())
            first.setdefault(key, (sequence, rows, int(ranks[0])))
            is_certain &= is_forced
    if len(numbers) < 2:
        return []
    usual, other = sorted(numbers, key=lambda key: -len(numbers[key]))[:2]
    (common, rows, rank), (another, _, _) = first[usual], first[other]
    shorter = min(len(common), len(another))
    differing = np.flatnonzero(common[:shorter] != another[:shorter])
    if not len(differing):
        return []  # a rank has fewer: reported where collectives are compared
    at = int(differing[0])
    node = workload.trace(rank).describe(int(rows[at]))
    text = (
        f"the {ordinal(at + 1)} collective of all ranks ({node} on rank {rank}) is number {common[at]} on"
        f" {of_ranks(numbers[usual])} and number {another[at]} on {of_ranks(numbers[other])}, because"
        " collectives of groups take numbers from the count of all ranks in this profile; they hang"
    )
    remedy = (
        f'simulate with --profile corrected, or switch the correction "{Correction.GROUP_COUNTERS.value}" on;'
        " or list all ranks as a group of their own"
    )
    who = format_ranks(sorted(numbers[other]))
    return [Problem("error" if is_certain else "warning", "collective-numbers", who, text, remedy)]


def _ranks_of_templates(workload: Workload) -> list[Any]:
    order = np.argsort(workload.template_of_rank, kind="stable")
    return np.split(order, np.cumsum(workload.ranks_per_template)[:-1])


def _numbers(plan: LoweredPlan, workload: Workload, template: int, rank: int) -> tuple[Any, RowColumn, bool]:
    """Return numbers and rows of a rank's collectives of all ranks, and whether the numbers are certain."""
    from et_sim.trace.order import issue_order

    node_first, count = (int(plan.templates[name][template]) for name in ("node_first", "nodes"))
    nodes = plan.nodes[node_first : node_first + count]
    rows = np.flatnonzero(nodes["action"] == Action.COLLECTIVE).astype(np.int32)
    if not len(rows):
        return np.empty(0, np.int64), rows, True
    rows, is_forced = issue_order(workload.templates[template], rows)
    usages = int(plan.actors["first_member"][plan.actor_of_rank[rank]]) + nodes["member"][rows]
    of_all = plan.members["group"][plan.actor_members[usages]] == 0
    chunks = plan.collectives["chunks"][nodes["detail"][rows]].astype(np.int64)
    numbers = np.cumsum(chunks) - chunks
    meet = all(_all_meet(plan, row) for row in unique(nodes["detail"][rows[of_all]]).tolist())
    return numbers[of_all], rows[of_all], is_forced and meet


def _all_meet(plan: LoweredPlan, row: int) -> bool:
    """Return whether every rank waits for every other one in a collective, directly or indirectly."""
    collective = plan.collectives[row]
    if int(collective["kind"]) in _ONE_WAY:
        return False
    first = int(plan.chunk_plans["phase_first"][collective["chunk_plan_first"]])
    axes = unique(plan.phases["axis"][first : first + int(collective["phases"])])
    return bool((axes >= 0).all() and plan.axes["members"][axes].prod() >= plan.ranks)
