"""Blame: what makes the slowest samples slower than the others.

Each sample has a longest path, and every nanosecond of the step is on it once: the time that work takes
without variation, what its factors add or save, communication, and other times. The mean of the slowest tenth
less that of the others is divided in the same way, so the parts add up to the difference in every view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.group_names import shown_group
from et_sim.basics.unique import groups_of, unique
from et_sim.basics.units import format_ranks
from et_sim.engine.outcome import Outcome
from et_sim.plan.records import Action
from et_sim.plan.straggler_variants import of_kind
from et_sim.samples.plans import SampledPlan
from et_sim.samples.work import WORK
from et_sim.timeline.waiting.waits import Waits
from et_sim.timeline.waiting.walk import Hops, Walk

WAY, COMMUNICATION, OTHER = "work of other ways", "communication", "other times"
NOT_VARIED = "other work"
KINDS = (*(kind.value for kind in WORK), NOT_VARIED)
SLOWEST_SHARE = 10  # one in so many samples is among the slowest
MOST_NAMED = 10  # parts of a view; the rest are added up


class PathTimes(Struct, frozen=True):
    """The times on the longest path of a sample, which add up to the step."""

    step_ns: int
    varied_ns: dict[tuple[int, str], int]  # by rank and kind: actual less nominal times
    exchanges_ns: dict[str, int]  # communication: by group, or pair of ranks
    nominal_ns: int  # of its work without variation
    other_ns: int


class PathReader:
    """A reader of the longest paths of the samples of a plan."""

    def __init__(self, plan: SampledPlan) -> None:
        self._plan = plan
        self._kinds: dict[int, Any] = {}  # by template

    def of(self, outcome: Outcome) -> PathTimes:
        """Return the times on the path of an outcome."""
        hops = Walk(outcome, Waits(outcome)).hops()
        plan, step_ns = outcome.plan, int(outcome.finish_ns.max())
        template = plan.actors["template"][hops.actor]
        at = plan.templates["node_first"][template] + hops.row
        took = hops.until_ns - hops.since_ns
        action = np.asarray(plan.nodes)["action"][at]
        works = np.flatnonzero(action == Action.DELAY)
        nominal = self._plan.nominal_ns(
            template[works], hops.row[works], self._plan.ranks_of(hops.actor[works], hops.row[works])
        )
        exchanged = np.flatnonzero(np.isin(action, (Action.COLLECTIVE, Action.SEND, Action.RECEIVE)))
        return PathTimes(
            step_ns,
            self._varied(outcome, hops, works, took[works] - nominal),
            _exchanges(outcome, hops, exchanged, took[exchanged], at),
            int(nominal.sum()),
            step_ns - int(took[works].sum()) - int(took[exchanged].sum()),
        )

    def _varied(self, outcome: Outcome, hops: Hops, works: Any, more: Any) -> dict[tuple[int, str], int]:
        """Return what factors add to the work on a path, by rank and kind."""
        actors = np.asarray(outcome.plan.actors)
        rank = self._plan.ranks_of(hops.actor[works], hops.row[works]).astype(np.int64)
        template = actors["template"][hops.actor[works]].astype(np.int64)
        kinds = np.zeros(len(works), np.int64)
        for number in unique(template).tolist():
            here = template == number
            kinds[here] = self._kinds_of(number)[hops.row[works][here]]
        alike = groups_of(rank, kinds)
        sums = alike.sums(more).tolist()
        keys = zip(rank[alike.first].tolist(), kinds[alike.first].tolist(), strict=True)
        return {(of_rank, KINDS[kind]): ns for (of_rank, kind), ns in zip(keys, sums, strict=True)}

    def _kinds_of(self, template: int) -> Any:
        """Return the kind of each node of a template, as an index of `KINDS`."""
        if template not in self._kinds:
            trace = self._plan.workload.templates[template]
            kinds = np.full(len(trace), KINDS.index(NOT_VARIED))
            for varied, works in WORK.items():
                for work in works:
                    kinds[of_kind(trace, work)] = KINDS.index(varied.value)
            self._kinds[template] = kinds
        return self._kinds[template]


def _exchanges(outcome: Outcome, hops: Hops, which: Any, took: Any, at: Any) -> dict[str, int]:
    """Return the time of communication on a path, by its group or its pair of ranks."""
    plan, exchanges = outcome.plan, dict[str, int]()
    nodes, actors, members = np.asarray(plan.nodes), np.asarray(plan.actors), np.asarray(plan.members)
    is_joint = nodes["action"][at[which]] == Action.COLLECTIVE
    for some, joint in ((which[is_joint], True), (which[~is_joint], False)):
        actor, node = hops.actor[some], at[some]
        if joint:
            member = plan.actor_members[actors["first_member"][actor] + nodes["member"][node]]
            columns: tuple[Any, ...] = (members["group"][member].astype(np.int64),)
        else:
            own = actors["channel_first"][actor] + nodes["detail"][node]
            channels = np.asarray(plan.channels)[plan.actor_channels[own]]
            columns = (channels["source"].astype(np.int64), channels["target"].astype(np.int64))
        alike = groups_of(*columns)
        sums = alike.sums(took[is_joint if joint else ~is_joint]).tolist()
        keys = zip(*(column[alike.first].tolist() for column in columns), strict=True)
        for key, ns in zip(keys, sums, strict=True):
            name = f"group {shown_group(plan.group_names[key[0]])}" if joint else f"rank {key[0]} to {key[1]}"
            exchanges[name] = exchanges.get(name, 0) + ns
    return exchanges


def slowest_of(paths: Sequence[PathTimes]) -> list[int]:
    """Return the numbers of the slowest tenth of the samples, at least one; of equal ones, the first."""
    count = -(-len(paths) // SLOWEST_SHARE)
    return sorted(range(len(paths)), key=lambda number: (-paths[number].step_ns, number))[:count]


def blame(paths: Sequence[PathTimes], stages: Sequence[Any]) -> dict[str, Any]:
    """Return the parts of the difference between the slowest samples and the others, by several views.

    `stages` are the ranks of each program.
    """
    slowest = set(slowest_of(paths))
    stage_of = {int(rank): _named(ranks) for ranks in stages for rank in ranks}
    views: dict[str, Callable[[PathTimes], dict[str, int]]] = {
        "by_kind": lambda path: _summed((kind, ns) for (_, kind), ns in path.varied_ns.items()),
        "by_rank": lambda path: _summed((f"rank {rank}", ns) for (rank, _), ns in path.varied_ns.items()),
        "by_stage": lambda path: _summed((stage_of[rank], ns) for (rank, _), ns in path.varied_ns.items()),
    }
    difference = _Difference(len(paths), slowest)
    return {
        "slowest": len(slowest),
        "rest": len(paths) - len(slowest),
        "difference_ns": difference.of([path.step_ns for path in paths]),
        **{name: _parts(paths, view, difference, joint=True) for name, view in views.items()},
        "by_link": _parts(paths, lambda path: path.exchanges_ns, difference, joint=False),
    }


def _named(ranks: Any) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}"


class _Difference:
    """The mean of some samples less that of the others."""

    def __init__(self, count: int, slowest: set[int]) -> None:
        self._slowest, self._rest = sorted(slowest), sorted(set(range(count)) - slowest)

    def of(self, values: Sequence[int]) -> float:
        """Return the difference of one figure of all samples."""
        many, few = len(self._rest), len(self._slowest)
        if not many:
            return 0.0
        slow, others = (sum(values[number] for number in some) for some in (self._slowest, self._rest))
        return (slow * many - others * few) / (many * few)


def _parts(
    paths: Sequence[PathTimes],
    view: Callable[[PathTimes], dict[str, int]],
    difference: _Difference,
    *,
    joint: bool,
) -> list[dict[str, Any]]:
    """Return the parts of a view, the largest first; `joint`: it divides what factors add to work, else
    communication.
    """
    every = [view(path) for path in paths]
    names = dict.fromkeys(name for times in every for name in times)
    found = [(name, difference.of([times.get(name, 0) for times in every])) for name in names]
    found.sort(key=lambda part: (-abs(part[1]), part[0]))
    shown, others = found[:MOST_NAMED], found[MOST_NAMED:]
    if others:
        shown.append((f"{len(others)} others", sum(ns for _, ns in others)))
    exchanges = [sum(path.exchanges_ns.values()) for path in paths]
    varied = [sum(path.varied_ns.values()) for path in paths]
    rest = (COMMUNICATION, exchanges) if joint else ("factors of work", varied)
    for name, figures in (
        rest,
        (WAY, [path.nominal_ns for path in paths]),
        (OTHER, [path.other_ns for path in paths]),
    ):
        shown.append((name, difference.of(figures)))
    return [{"name": name, "ns": ns} for name, ns in shown if ns]


def _summed(pairs: Any) -> dict[str, int]:
    """Return the sum of each name."""
    sums: Counter[str] = Counter()
    for name, ns in pairs:
        sums[name] += ns
    return dict(sums)
