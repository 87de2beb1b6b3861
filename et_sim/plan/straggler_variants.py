"""The effects of a system's stragglers and time factors on the programs of their ranks.

Ranks of one template that have different factors of kinds of work get templates of their own here, which
share the trace. Slow ranks have a pace (`paces`); where there is jitter, every rank has one of its own. Late
starts are a column of the actors. The kind of a node follows from what its trace records of it, never from
its name.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import MachineError, did_you_mean
from et_sim.basics.unique import unique
from et_sim.basics.units import LONGEST_NS, format_ns, rank_mask
from et_sim.machine.model import Notice, Straggler, TimeFactors, WorkKind
from et_sim.plan.paces import OWN_PACE, OpenPaces, Paces, ranks_by_pace
from et_sim.plan.records import Action
from et_sim.plan.splitmix import splitmix64, uniform
from et_sim.plan.streams import is_named
from et_sim.trace.columns import BoolColumn, NodeKind, RowColumn, Trace
from et_sim.trace.workload import Workload

KEY = "time-factors"
_COMMUNICATION = (int(NodeKind.COLL), int(NodeKind.SEND), int(NodeKind.RECV))
_SUGGESTED = 1000  # names that are searched for a similar one


class _Met(Struct):
    """The effects of one factor of an entry, over all traces of its ranks."""

    changed: int = 0
    simulated: int = 0  # communication whose time the network model gives


class FactorTable:
    """The factors of all entries, by kind of work, name and rank."""

    def __init__(self, entries: tuple[TimeFactors, ...], ranks: int) -> None:
        self.entries = entries
        self._concerned = [rank_mask(entry.ranks, ranks) for entry in entries]
        self._met = [{kind: _Met() for kind in entry.factors} for entry in entries]
        self._names: list[set[str]] = [set() for _ in entries]  # of nodes of the kinds of an entry
        self._ranks = ranks

    @property
    def are_any(self) -> bool:
        """Return whether there are any."""
        return bool(self.entries)

    def classes(self) -> Any | None:
        """Return a number per rank, equal where all factors are; None if all ranks have equal factors."""
        factors: dict[tuple[WorkKind, str | None], Any] = {}
        for entry, concerned in zip(self.entries, self._concerned, strict=True):
            for kind, factor in entry.factors.items():
                column = factors.setdefault((kind, entry.name), np.ones(self._ranks))
                column[concerned] *= factor
        uneven = [column for column in factors.values() if (column != column[0]).any()]
        return np.unique(np.stack(uneven), axis=1, return_inverse=True)[1].reshape(-1) if uneven else None

    def of(self, nodes: Any, trace: Trace, rank: int) -> Any | None:
        """Return the factor of the time of each node on a rank; None if no entry concerns the rank."""
        factors = None
        for entry, concerned, met, names in zip(
            self.entries, self._concerned, self._met, self._names, strict=True
        ):
            if not concerned[rank]:
                continue
            factors = np.ones(len(trace)) if factors is None else factors
            fits = is_named(trace, entry.name)
            for kind, factor in entry.factors.items():
                is_kind = of_kind(trace, kind)
                takes_time = is_kind & (nodes["action"] == Action.DELAY)
                if entry.name is not None:
                    names.update(trace.names[name] for name in unique(trace.name[takes_time]).tolist())
                rows = takes_time & fits
                factors[rows] *= factor
                met[kind].changed += int(rows.sum())
                if kind is WorkKind.COMMUNICATION:
                    met[kind].simulated += int((is_kind & fits & ~takes_time).sum())
        return factors

    def check_all_met(self) -> list[Notice]:
        """Refuse names that no node has, and factors of simulated nodes; return notices of others without
        effect.
        """
        notices = []
        for entry, met, names in zip(self.entries, self._met, self._names, strict=True):
            _refuse_simulated(entry, met.get(WorkKind.COMMUNICATION))
            if entry.name is not None and not any(effect.changed for effect in met.values()):
                raise _no_such_name(entry, names)
            for kind, effect in met.items():
                if text := _without_effect(entry, kind, effect):
                    notices.append(Notice(entry.place, kind.value, text))
        return notices


def of_kind(trace: Trace, kind: WorkKind) -> BoolColumn:
    """Return which nodes are of a kind of work; each is of one at most."""
    computes, on_host = trace.kind == NodeKind.COMP, trace.is_cpu
    works = computes & ~trace.is_gap
    match kind:
        case WorkKind.KERNELS:
            is_of_kind = works & ~on_host & ~trace.is_copy
        case WorkKind.COPIES:
            is_of_kind = works & ~on_host & trace.is_copy
        case WorkKind.OPERATORS:
            is_of_kind = works & on_host & ~trace.is_launch
        case WorkKind.LAUNCHES:
            is_of_kind = works & on_host & trace.is_launch
        case WorkKind.GAPS:
            is_of_kind = computes & trace.is_gap
        case WorkKind.COMMUNICATION:
            is_of_kind = np.isin(trace.kind, _COMMUNICATION)
    return is_of_kind


def _refuse_simulated(entry: TimeFactors, met: _Met | None) -> None:
    if met is not None and met.simulated and not met.changed:
        raise MachineError(
            'key "communication" has no effect: all communication of these ranks is simulated; the '
            "network sets its time",
            place=entry.place,
            remedy='change the network file, or set "replay-only": 1 to take recorded times',
        )


def _no_such_name(entry: TimeFactors, names: set[str]) -> MachineError:
    kinds = " and ".join(entry.factors)
    wanted = (entry.name or "").strip("*")
    known = sorted(names)[:_SUGGESTED]
    examples = ", ".join(f'"{name[:60]}"' for name in known[:3])
    remedy = did_you_mean(wanted, known) or (f"there are {examples}" if known else f"they have no {kinds}")
    return MachineError(
        f'key "name" is "{entry.name}", but none of the {kinds} of these ranks has that name',
        place=entry.place,
        remedy=f"{remedy}; * stands for any text" if "*" not in (entry.name or "") else remedy,
    )


def _without_effect(entry: TimeFactors, kind: WorkKind, met: _Met) -> str:
    """Return why a factor changes less than expected; empty if it changes all."""
    if entry.factors[kind] == 1:
        return ""
    if not met.changed:
        named = "" if entry.name is None else f' named "{entry.name}"'
        return f"no effect: these ranks have no {kind}{named}"
    if met.simulated:
        return (
            f"changes {met.changed:,} that are replayed; {met.simulated:,} are simulated, and the network "
            "sets their time"
        )
    return ""


PLACE = "system configuration"
MOST_RETIMED = 1 << 20  # nodes whose times before the factors are kept


class StragglerVariants:
    """The workload with a template for every class of ranks, and the paces of ranks."""

    def __init__(
        self,
        workload: Workload,
        stragglers: tuple[Straggler, ...],
        time_factors: tuple[TimeFactors, ...] = (),
        classes: Sequence[RowColumn] = (),
    ) -> None:
        """Split the templates of a workload; each of `classes` has a number per rank, which splits templates,
        too.
        """
        self.workload = workload
        self.start_ns: Any | None = None  # per rank; None: all start at once
        self._jittery: list[tuple[Straggler, Any]] = []  # with a mask of its ranks
        self._delayed_nodes: list[tuple[Straggler, Any]] = []
        self._met: set[int] = set()  # nodes that were found
        self._factor: Any | None = None  # per rank
        self.paces = Paces(workload.ranks)
        self._paced: dict[int, list[Any]] = {}  # by template: the ranks of each pace
        self._before: dict[int, Any] = {}  # by template: durations before the factors
        self._time_factors = FactorTable(time_factors, workload.ranks)
        self._keeps_before = bool(time_factors) and int(workload.nodes_per_template.sum()) <= MOST_RETIMED
        of_factors = self._time_factors.classes()
        start = workload.starts_ns
        if start.any():
            self.start_ns = start[workload.template_of_rank]
        if stragglers:
            self._read(stragglers)
        if classes or of_factors is not None:
            self._divide_templates(classes, of_factors)
        if self._factor is not None:
            self._divide_paces(self._factor)

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
        for column in (*classes, of_factors):
            code = code if column is None else _refined(code, column)
        _, lowest, of_rank = np.unique(code, return_index=True, return_inverse=True)
        template = workload.template_of_rank[lowest].tolist()
        relative = workload.relative_peers
        self.workload = replace(
            workload,
            templates=workload.templates
            if template == [*range(len(workload.templates))]
            else tuple(workload.templates[old] for old in template),
            template_of_rank=of_rank.reshape(-1).astype(np.int32),
            relative_peers=tuple(relative[old] for old in template) if relative else (),
        )

    def _divide_paces(self, factor: Any) -> None:
        """Find the ranks of each pace; those that nothing slows keep the durations of their template."""
        code, is_slow = np.zeros(len(factor), np.int64), factor != 1
        code = _refined(code, factor)
        for _, concerned in self._delayed_nodes:
            code, is_slow = _refined(code, concerned), is_slow | concerned
        for _, concerned in self._jittery:
            code = _refined(code, np.where(concerned, np.arange(len(code)), -1))
            is_slow |= concerned
        code[~is_slow] = OWN_PACE
        for template, ranks in ranks_by_pace(self.workload.template_of_rank, code):
            self._paced.setdefault(template, []).append(ranks)

    def vary(self, classes: Any) -> None:
        """Set durations for each run; ranks with the same number in `classes` have equal ones."""
        self.paces = OpenPaces(classes)

    def with_factors(self, time_factors: tuple[TimeFactors, ...]) -> StragglerVariants | None:
        """Return the same variants with other factors; None unless each entry concerns all ranks, and they
        alone change times.
        """
        former = self._time_factors.entries
        if self.change_paces or [*map(_without_values, former)] != [*map(_without_values, time_factors)]:
            return None
        if any(entry.ranks is not None for entry in time_factors):
            return None
        again = copy.copy(self)
        again._time_factors = FactorTable(time_factors, self.workload.ranks)
        return again

    def apply_again(self, nodes: Any, trace: Trace, template: int, rank: int) -> bool:
        """Set the durations that these factors give to the nodes of a template; return whether those before
        the factors are known.
        """
        if template not in self._before:
            return False
        nodes["duration_ns"] = self._before[template]
        self.apply(nodes, trace, template, rank)
        return True

    @property
    def change_paces(self) -> bool:
        """Return whether ranks of a template may take other times than it."""
        return self._factor is not None or isinstance(self.paces, OpenPaces)

    @property
    def are_even(self) -> bool:
        """Return whether all ranks of a template take equal times."""
        if isinstance(self.paces, OpenPaces):
            return False
        return self._factor is None or not any(
            len(ranks[0]) < np.count_nonzero(self.workload.template_of_rank == template)
            for template, ranks in self._paced.items()
        )

    @property
    def change_times(self) -> bool:
        """Return whether stragglers or factors may change the time of a node."""
        return self.change_paces or self._time_factors.are_any

    def apply(self, nodes: Any, trace: Trace, template: int, rank: int) -> None:
        """Change the durations of the lowered nodes of a template, and set those of its paces.

        `rank` is any rank of the template.
        """
        factor, before = self._time_factors.of(nodes, trace, rank), nodes["duration_ns"].copy()
        if factor is not None:
            nodes["duration_ns"] = _scaled(before, factor)
            if self._keeps_before:
                self._before[template] = before
            _refuse_longer(nodes["duration_ns"].max(initial=0), f"a node of rank {rank} would last longer")
        computes = np.flatnonzero((trace.kind == NodeKind.COMP) & (nodes["action"] == Action.DELAY))
        for ranks in self._paced.get(template, ()):
            each = np.ones(len(trace)) if factor is None else factor.copy()
            durations = self._at_pace(nodes, trace, int(ranks[0]), each, computes, before)
            self.paces.put(ranks, durations, nodes["duration_ns"])

    def _at_pace(
        self, nodes: Any, trace: Trace, rank: int, factor: Any, computes: Any, before: Any
    ) -> RowColumn:
        """Return the durations of nodes on a rank, which `factor` changes on all ranks alike."""
        assert self._factor is not None
        factor[computes] *= self._factor[rank]
        for straggler, concerned in self._jittery:
            if concerned[rank]:
                factor[computes] *= _drawn(straggler, rank, trace.node_id[computes])
        durations = _scaled(before, factor)
        for straggler, concerned in self._delayed_nodes:
            if concerned[rank]:
                self._delay(durations, nodes, trace, straggler, rank)
        _refuse_longer(durations.max(initial=0), f"a node of rank {rank} would last longer")
        return durations

    def longest(self, template: int, durations: Any) -> Any:
        """Return the longest duration of each node of a template on any rank; `durations` are its own."""
        ranks = self._paced.get(template)
        return durations if ranks is None else self.paces.longest(np.concatenate(ranks), durations)

    def _delay(self, durations: Any, nodes: Any, trace: Trace, straggler: Straggler, rank: int) -> None:
        row = int(np.searchsorted(trace.node_id, np.array(straggler.node, np.uint64)))
        if row == len(trace) or trace.node_id[row] != straggler.node:
            return
        if nodes["action"][row] != Action.DELAY:
            raise MachineError(
                f"{trace.describe(row)} of rank {rank} cannot be delayed: "
                "it is not a computation, or takes no time",
                place=PLACE,
                remedy='name a compute node in "stragglers", or delay the rank',
            )
        self._met.add(int(trace.node_id[row]))
        durations[row] += straggler.delay_ns

    def check_all_met(self) -> list[Notice]:
        """Refuse nodes that none of their ranks has; to be called after all templates."""
        for straggler, _ in self._delayed_nodes:
            if straggler.node not in self._met:
                raise MachineError(
                    f'"stragglers" delays node {straggler.node}, which none of its ranks has',
                    place=PLACE,
                    remedy="correct its id, or the ranks",
                )
        return self._time_factors.check_all_met()


def _without_values(entry: TimeFactors) -> tuple[Any, ...]:
    """Return all of an entry but its factors."""
    return entry.ranks, entry.name, tuple(entry.factors)


def _scaled(before: Any, factor: Any) -> Any:
    """Return durations times factors, in whole nanoseconds; what took time takes at least one."""
    rows = np.flatnonzero(factor != 1)
    after, factor = before.copy(), factor[rows]
    with np.errstate(over="ignore"):
        scaled = np.minimum(np.floor(before[rows] * factor), 2.0 * LONGEST_NS).astype(np.int64)
    after[rows] = np.maximum(scaled, (before[rows] > 0) & (factor > 0))
    return after


def _refined(code: Any, column: Any) -> Any:
    """Return a number for each distinct pair, in the order of the codes."""
    values, inverse = np.unique(column, return_inverse=True)
    pairs = np.asarray(code, np.int64) * len(values) + inverse.reshape(-1)
    return np.unique(pairs, return_inverse=True)[1].reshape(-1)


def _drawn(straggler: Straggler, rank: int, node_id: Any) -> Any:
    """Return the factors of nodes, which depend on nothing but seed, rank and node."""
    of_rank = splitmix64(
        splitmix64(rank, straggler.seed), 0
    )  # in two steps, so that no two pairs of rank and seed collide
    drawn = uniform(splitmix64(node_id ^ of_rank, 1))
    return 1 - straggler.jitter + 2 * straggler.jitter * drawn


def _refuse_longer(longest: Any, subject: str) -> None:
    if longest > LONGEST_NS:
        raise MachineError(
            f"with its stragglers and time factors, {subject} than {format_ns(LONGEST_NS)}",
            place=PLACE,
            remedy='correct "compute" or "delay" in "stragglers", or "time-factors"',
        )
