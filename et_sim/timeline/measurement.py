"""Sums over a run from one pass over its timeline: figures per actor, local memory over time, and coverage.

Coverage is the part of a run that was modelled, replayed, defaulted or instant, and the bytes moved. It is
counted from the nodes that ran, not from options.

Local memory changes with the tensors that nodes of rows name. `et_sim.memory` derives the lifetimes of
tensors, `out_of_memory` finds where memory does not suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import Struct, field

from et_sim.basics.uncertainty import Composition
from et_sim.basics.unique import sums_of, unique
from et_sim.basics.units import format_ranks
from et_sim.engine.outcome import Outcome
from et_sim.machine.accuracy import Accuracy
from et_sim.memory import Accesses, Changes, changes, classes_of, lifetimes, peaks
from et_sim.plan.records import LoweredPlan
from et_sim.timeline.node_columns import COMMUNICATION_KINDS, KIND_NAMES
from et_sim.timeline.power import PowerUse
from et_sim.timeline.rows import TREATMENT_NAMES, Rows, TimelineSource
from et_sim.timeline.statistics import KernelFigures, Occupation, Statistics, combine
from et_sim.trace.columns import NodeKind
from et_sim.trace.group_attributes import count_metadata
from et_sim.trace.tensors import unannotated
from et_sim.trace.workload import Workload

IS_COMMUNICATION = np.isin(KIND_NAMES, COMMUNICATION_KINDS)
FEW_ROWS = 1 << 12  # which are kept for a second use
AS_RECORDED = slice(TREATMENT_NAMES.index("replayed"), TREATMENT_NAMES.index("defaulted") + 1)


class _Counted(Struct, frozen=True):
    """Counts of some rows."""

    nodes: Any  # by treatment and kind
    bytes: Any  # by kind
    timed_by: dict[str, int]
    without_tensors: int


class CoverageCounter(Struct):
    """Sums over blocks of rows; every row counts once per rank of its actor."""

    ranks_of_actor: Any
    names_tensors: Any  # per row of the plan's table of nodes; None: memory is not tracked
    nodes: Any = field(default_factory=lambda: np.zeros((len(TREATMENT_NAMES), len(KIND_NAMES)), np.int64))
    bytes: Any = field(default_factory=lambda: np.zeros(len(KIND_NAMES), np.int64))
    without_tensors: int = 0
    timed_by: dict[str, int] = field(default_factory=dict)  # kernels by the model that timed them
    latest: tuple[Any, _Counted] | None = None  # the last block, by its rows of the plan

    def add(self, rows: Rows) -> None:
        """Count a block; parts shared with the block before are counted once."""
        if not len(rows.actor):
            return
        of_actors = self.ranks_of_actor[rows.actor[0] : rows.actor[-1] + 1]
        ranks = int(of_actors[0])
        if (of_actors != ranks).any():
            self._add(self._counted(rows, self.ranks_of_actor[rows.actor]), 1)
            return
        if self.latest is None or self.latest[0] is not rows.at:
            self.latest = rows.at, self._counted(rows, np.ones(len(rows.at), np.int64))
        self._add(self.latest[1], ranks)

    def _counted(self, rows: Rows, weight: Any) -> _Counted:
        """Return the counts of one block."""
        shape = self.nodes.shape
        nodes = sums_of(rows.treatment * np.int64(shape[1]) + rows.kind, weight, self.nodes.size)
        timed_by, without = {}, 0
        if rows.utilisation is not None:
            labels = rows.utilisation.timed_by
            counts = sums_of(labels.codes, weight, len(labels.texts)).tolist()
            timed_by = dict(zip(labels.texts[1:], counts[1:], strict=True))
        if self.names_tensors is not None:
            without = int(weight[~self.names_tensors[rows.at]].sum())
        of_kinds = sums_of(rows.kind, weight * rows.bytes, len(KIND_NAMES))
        return _Counted(nodes.reshape(shape), of_kinds, timed_by, without)

    def _add(self, counted: _Counted, times: int) -> None:
        self.nodes += counted.nodes * times
        self.bytes += counted.bytes * times
        self.without_tensors += counted.without_tensors * times
        for text, count in counted.timed_by.items():
            if count:
                self.timed_by[text] = self.timed_by.get(text, 0) + count * times

    def as_dict(self, workload: Workload, total_nodes: int) -> dict[str, Any]:
        """Return the coverage part of the summary."""
        return {
            "nodes": total_nodes,
            "executed": int(self.nodes.sum()),
            **{name: int(self.nodes[code].sum()) for code, name in enumerate(TREATMENT_NAMES)},
            "not_executed": total_nodes - int(self.nodes.sum()),
            "timed_by": dict(sorted(self.timed_by.items())),
            "nodes_by_kind": _nonzero(self.nodes.sum(axis=0)),
            "bytes_by_kind": _nonzero(self.bytes),
            "replayed_communication": int(self.nodes[AS_RECORDED, IS_COMMUNICATION].sum()),
            "without_tensors": None if self.names_tensors is None else self.without_tensors,
            "ignored_attributes": _ignored_attributes(workload, self.names_tensors is not None),
            "ignored_metadata": _ignored_metadata(workload),
        }


def _nonzero(of_kind: Any) -> dict[str, int]:
    return {name: int(of_kind[code]) for code, name in enumerate(KIND_NAMES) if of_kind[code]}


def _ranks_of_template(workload: Workload) -> Any:
    return np.bincount(workload.template_of_rank, minlength=len(workload.templates))


def _ignored_metadata(workload: Workload) -> int:
    """Return the number of METADATA nodes that describe no process groups, over all ranks."""
    ranks_of_template, count = _ranks_of_template(workload), 0
    for stack in workload.stacks():
        for at in unique(stack.of_row[stack.trace.kind == NodeKind.METADATA]).tolist():
            count += count_metadata(stack.traces[at])[1] * int(ranks_of_template[stack.number + at])
    return count


def _ignored_attributes(workload: Workload, tracks_memory: bool) -> dict[str, int]:
    """Return the attributes that no model reads, with the number of nodes that have them, over all ranks."""
    ranks_of_template = _ranks_of_template(workload)
    total: dict[str, int] = {}
    for stack in workload.stacks():
        has_tensors = not tracks_memory and not unannotated(stack.trace).all()
        for at, (number, head) in enumerate(zip(stack.numbers, stack.heads, strict=True)):
            counts = [*head.ignored_attributes.items()]
            if has_tensors and len(tensors := stack.traces[at].tensors):
                outputs = int(tensors.is_output.sum())
                counts += [("inputs", len(tensors) - outputs), ("outputs", outputs)]
            for name, count in counts:
                total[name] = total.get(name, 0) + count * int(ranks_of_template[number])
    return dict(sorted(total.items()))


def _ranks_per_actor(plan: LoweredPlan) -> Any:
    return np.bincount(plan.actor_of_rank, minlength=len(plan.actors))


def _names_tensors(plan: LoweredPlan, workload: Workload) -> Any:
    """Return which nodes of the templates name tensors; None if memory is not tracked."""
    if not plan.tensors:
        return None
    return np.concatenate([~unannotated(stack.trace) for stack in workload.stacks()])


class Measurement:
    """Rows of a run, and their sums."""

    def __init__(
        self,
        outcome: Outcome,
        workload: Workload,
        until_end: Outcome | None = None,
        accuracy: Accuracy | None = None,
    ) -> None:
        """Initialise the measurement of a run.

        `until_end`: for a stopped run, its continuation, which determines how long tensors live. `accuracy`:
        stated by the machine.
        """
        self._outcome, self._workload, self._until_end = outcome, workload, until_end
        self._accuracy = accuracy
        self._figures: tuple[Statistics, CoverageCounter, PowerUse] | None = None
        self._few: list[Rows] = []  # all rows of a short run, not counted yet

    @property
    def statistics(self) -> Statistics:
        """Return all figures, per actor."""
        return self._measured[0]

    @cached_property
    def coverage(self) -> dict[str, Any]:
        """Return the parts of the run that were modelled, replayed, defaulted, instant or not executed."""
        plan = self._outcome.plan
        total = int((plan.templates["nodes"][plan.actors["template"]] * self.ranks_per_actor).sum())
        counter = self._measured[1]
        for rows in self._few:
            counter.add(rows)
        return counter.as_dict(self._workload, total)

    @property
    def power(self) -> PowerUse:
        """Return the power of kernels, per actor."""
        return self._measured[2]

    @cached_property
    def composition(self) -> Composition | None:
        """Return the composition of the run's time; None where the machine states no accuracy."""
        if self._accuracy is None:
            return None
        from et_sim.timeline.composition import composition

        statistics = self.statistics
        return composition(self._outcome.plan, self._workload, self._accuracy, statistics, self._rows_of)

    def _rows_of(self, actor: int) -> Iterable[Rows]:
        return self._few if self.source.actors == 1 and self._few else self._pieces(actor, actor + 1)

    @property
    def has_rules(self) -> bool:
        """Return whether rules determine how kernels are timed."""
        return self._outcome.plan.has_rules

    @property
    def actor_of_rank(self) -> Any:
        """Return the actor of every rank."""
        return self._outcome.plan.actor_of_rank

    @cached_property
    def source(self) -> TimelineSource:
        """Return the source of rows."""
        return TimelineSource(self._outcome, self._workload)

    @cached_property
    def memory(self) -> MemorySource | None:
        """Return the source of changes of local memory; None if it is not tracked."""
        return self._outcome.plan.derived(MemorySource) if self._outcome.plan.tensors else None

    @cached_property
    def ranks_per_actor(self) -> Any:
        """Return the number of ranks of every actor."""
        return self._outcome.plan.derived(_ranks_per_actor)

    @cached_property
    def has_work(self) -> Any:
        """Return which ranks belong to a job."""
        jobs = self._workload.jobs
        has_work = np.full(len(self.actor_of_rank), not jobs)
        for job in jobs:
            has_work[job.npus] = True
        return has_work

    def ranks_of_actors(self) -> list[Any]:
        """Return the ranks of every actor."""
        ranks = np.argsort(self.actor_of_rank, kind="stable")
        return np.split(ranks, np.cumsum(self.ranks_per_actor)[:-1])

    def rank_texts(self) -> list[str]:
        """Return the ranks of every actor as text."""
        if self.source.actors == len(self.actor_of_rank):
            return [str(rank) for rank in np.argsort(self.actor_of_rank).tolist()]
        return [format_ranks(ranks) for ranks in self.ranks_of_actors()]

    @property
    def _measured(self) -> tuple[Statistics, CoverageCounter, PowerUse]:
        if self._figures is None:
            for _ in self.blocks():
                pass
        assert self._figures is not None
        return self._figures

    def blocks(self) -> Iterator[Rows]:
        """Yield all rows, and measure them, so that writing the timeline takes no second pass."""
        actors = self.source.actors
        tensors = self._outcome.plan.derived(_names_tensors, self._workload)
        counter = CoverageCounter(self.ranks_per_actor, tensors)
        kernels, occupation = KernelFigures.of(actors), Occupation(actors, self._outcome.end_ns)
        power = PowerUse.of(actors)
        few, is_new = list[Rows](), self._figures is None
        are_few = len(self._outcome.nodes) <= FEW_ROWS
        for first, until in self.source.spans():
            for rows in self._pieces(first, until):
                if is_new:
                    occupation.add(rows)
                    kernels.add(rows)
                    power.add(rows)
                    if are_few:
                        few.append(rows)
                    else:
                        counter.add(rows)
                yield rows
        if is_new:
            statistics = combine(self._outcome, occupation.figures(), kernels, self._peaks())
            self._figures, self._few = (statistics, counter, power), few

    def changes_of_memory(self) -> Iterator[Changes]:
        """Yield the changes of tracked local memory; their nodes are rows of the plan's table of nodes."""
        assert self.memory is not None
        outcome, last_ns = self._until_end or self._outcome, self._outcome.end_ns
        for first, until in self.source.spans():
            changes = self.memory.changes(outcome.nodes, first, until)
            yield changes if self._until_end is None else changes.where(changes.time_ns <= last_ns)

    def _peaks(self) -> Any:
        """Return the most bytes alive at any time, per actor; -1 where no node names a tensor."""
        actors = self.source.actors
        if self.memory is None or not self.memory.names:
            return np.full(actors, -1, np.int64)
        nodes = self._outcome.nodes
        if self._until_end is None and len(nodes) <= FEW_ROWS:
            times = np.stack((nodes["start_ns"], nodes["end_ns"]))
            return self._outcome.plan.derived(_peaks_in_order, self.memory, _in_order(times).tobytes())
        return sum((peaks(part, actors) for part in self.changes_of_memory()), np.zeros(actors, np.int64))

    def _pieces(self, first: int, until: int) -> Iterator[Rows]:
        """Return the rows of actors; with tracked memory all at once, because tensors live long."""
        if self.memory is None:
            return self.source.pieces(first, until)
        return iter((self.source.rows(first, until),))


def _in_order(times: Any) -> Any:
    """Return the place of each time among the different ones; 0 and -1, no time, stay as they are."""
    places = np.unique(np.append(times, (-1, 0)), return_inverse=True)[1]
    return (places.reshape(-1)[:-2] - 1).reshape(times.shape)


def _peaks_in_order(plan: LoweredPlan, memory: MemorySource, places: bytes) -> Any:
    """Return the most bytes alive, per actor, which follow from the order of times."""
    start, end = np.frombuffer(places, np.int64).reshape(2, -1)
    return peaks(memory.changes({"start_ns": start, "end_ns": end}, 0, len(plan.actors)), len(plan.actors))


EVENTS = ("given", "written", "released")
GIVEN, WRITTEN, RELEASED = range(3)


class MemorySource:
    """Changes of memory from the times of nodes."""

    def __init__(self, plan: LoweredPlan) -> None:
        self._actors = plan.actors
        number: dict[str, int] = {}
        tensor, sizes, is_write, rows = [], [], [], []
        first_rows = plan.templates["node_first"][: len(plan.tensors)]
        for uses, first_row in zip(plan.tensors, first_rows.tolist(), strict=True):
            of_text = np.zeros(len(uses.names), np.int32)
            for text in unique(uses.tensor).tolist():
                of_text[text] = number.setdefault(uses.names[text], len(number))
            tensor.append(of_text[uses.tensor])
            sizes.append(uses.bytes)
            is_write.append(uses.is_write)
            rows.append(first_row + uses.row)
        self.names = tuple(number)
        self.classes = classes_of(self.names)  # indices into CLASSES
        self._tensor, self._bytes, self._is_write = (np.concatenate(c) for c in (tensor, sizes, is_write))
        self._node = np.concatenate(rows)  # of each use: a row of the plan's table of nodes
        self._place = _places(plan)[self._node]
        self._first_row = first_rows
        self._uses = np.array(list(map(len, rows)))  # of each template
        self._first = np.cumsum(self._uses) - self._uses

    def changes(self, nodes: Any, first: int, until: int) -> Changes:
        """Return the allocations and releases on some actors, from the states of their nodes.

        The nodes of the changes are rows of the plan's table.
        """
        owner, use, state = self._uses_of(first, until)
        end = nodes["end_ns"][state]
        if (end < 0).any():
            done = np.flatnonzero(end >= 0)
            owner, use, state, end = owner[done], use[done], state[done], end[done]
        accesses = Accesses(
            owner=owner,
            tensor=self._tensor[use],
            bytes=self._bytes[use],
            is_write=self._is_write[use],
            node=self._node[use],
            start_ns=nodes["start_ns"][state],
            end_ns=end,
            place=self._place[use],
        )
        return changes(lifetimes(accesses))

    def _uses_of(self, first: int, until: int) -> tuple[Any, Any, Any]:
        """Return the actors of the uses of some actors, the uses, and the rows of the node state."""
        template = self._actors["template"][first:until]
        count = self._uses[template]
        use = np.arange(count.sum()) + np.repeat(self._first[template] - (np.cumsum(count) - count), count)
        shift = self._actors["node_first"][first:until] - self._first_row[template]
        state = np.repeat(shift, count) + self._node[use]
        return np.repeat(np.arange(first, until, dtype=np.int32), count), use, state


def _places(plan: LoweredPlan) -> Any:
    """Return for each node of a template its place in an order that fits dependencies, mostly that
    of rows.
    """
    from et_sim.trace.order import settle

    places = []
    for template in plan.templates[: len(plan.tensors)]:
        nodes = plan.nodes[template.node_first : template.node_first + template.nodes]
        place = np.arange(template.nodes)
        parent = np.repeat(place, nodes["children"])
        first = int(nodes["children_first"][0]) if len(nodes) else 0
        child = plan.children[first : first + len(parent)]
        if (parent > child).any():
            order, _ = settle(parent, child, np.zeros(template.nodes, np.uint8))
            place[order] = np.arange(len(order))
        places.append(place)
    return np.concatenate(places)


def until_next(memory_changes: Changes) -> Any:
    """Return how long each change is the last one of its owner; -1: for ever."""
    until = np.full(len(memory_changes.time_ns), -1, np.int64)
    until[:-1] = np.where(
        memory_changes.owner[1:] == memory_changes.owner[:-1], memory_changes.time_ns[1:], -1
    )
    return until


def events_of(memory_changes: Changes) -> Any:
    """Return the event of each change, as an index into EVENTS."""
    alive = np.where(memory_changes.node < 0, GIVEN, WRITTEN)
    return np.where(memory_changes.delta_bytes < 0, RELEASED, alive).astype(np.int8)
