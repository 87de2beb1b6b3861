"""Composition of a run's time, in parts whose errors differ.

It is that of the rank that waits least, the first of several, because others wait for it: kernels by shape,
exposed transfers by kind, group size and size to a power of two, remote memory, and the host. While this rank
waits or is idle, others do such work, so that time counts as the same composition. No recorded causes are
needed.

`et_sim.machine.accuracy` states the error of each part; `basics.uncertainty` combines them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from et_sim.basics.intervals import COMPUTE, COPY, TRANSFER, union
from et_sim.basics.uncertainty import Composition, Trait
from et_sim.basics.unique import groups_of
from et_sim.compute import Treatment
from et_sim.compute.model import Labels
from et_sim.machine.accuracy import (
    HOST,
    KERNELS,
    MEMORY,
    RECORDED,
    TABLES,
    Accuracy,
)
from et_sim.machine.datatypes import datatype_named
from et_sim.plan.records import Action, LoweredPlan
from et_sim.timeline.node_columns import KIND_NAMES, SharedColumns
from et_sim.timeline.rows import Rows
from et_sim.timeline.statistics import Statistics
from et_sim.trace.columns import Trace
from et_sim.trace.workload import Workload

MEASURED = "measured"  # the bound of a kernel of a table, in the words of `Utilisation`
GATHERED = "all_gather"  # traces give the bytes that a rank contributes
POINT_TO_POINT = 2  # ranks
_PARTS = ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "host_ns")
Amounts = dict[tuple[str, str], float]
_SHAPED, _NAMED, _RECORDED, _OF_TABLE = range(4)
_NETWORK, _LIBRARY, _LIBRARY_BETWEEN, _RECORDING = range(4)  # source of a transfer's time
_BITS, _BITS_OF_POWER = 32, 8  # of numbers of shapes, names and members; of powers of two
_BITS_OF_DATATYPES = 16
_MOST_DATATYPES = (1 << _BITS_OF_DATATYPES) - 1
_MASK = (1 << _BITS) - 1


def composition(
    plan: LoweredPlan,
    workload: Workload,
    accuracy: Accuracy,
    statistics: Statistics,
    rows_of: Callable[[int], Iterable[Rows]],
) -> Composition | None:
    """Return the composition of a run; None where no rank spent time. `rows_of` returns all rows
    of an actor.
    """
    busy = sum(getattr(statistics, name) for name in _PARTS)[plan.actor_of_rank]
    actor = int(plan.actor_of_rank[np.argmax(busy)])
    times = _Time(plan, workload, accuracy, actor)
    for rows in rows_of(actor):
        times.add(rows)
    return times.composition(statistics)


class _Time:
    """Composition of the time of one actor, from its rows."""

    def __init__(self, plan: LoweredPlan, workload: Workload, accuracy: Accuracy, actor: int) -> None:
        self._plan, self._accuracy, self._actor = plan, accuracy, actor
        template = int(plan.actors["template"][actor])
        self._trace, self._first = workload.templates[template], int(plan.templates["node_first"][template])
        self._traits = plan.derived(_traits, workload, accuracy)
        self._names = plan.derived(_Names, self._trace, accuracy)
        self._kernels: list[Any] = [np.zeros((3, 0), np.int64)]  # shape, start, end
        self._transfers: list[Any] = [np.zeros((3, 0), np.int64)]

    def add(self, rows: Rows) -> None:
        """Add a block of rows."""
        bound, shared = None if rows.utilisation is None else rows.utilisation.bound, rows.shared
        which, item = self._plan.derived(_of_kernels, shared, bound, self._trace, self._first)
        self._kernels.append(np.stack((item, rows.start_ns[which], rows.end_ns[which])))
        which, item = self._plan.derived(_of_transfers, shared, int(rows.actor[0]) if len(rows.actor) else 0)
        waited = np.maximum(rows.queued_ns[which], 0) + np.maximum(rows.waiting_ns[which], 0)
        self._transfers.append(np.stack((item, rows.start_ns[which] + waited, rows.end_ns[which])))

    def composition(self, statistics: Statistics) -> Composition | None:
        """Return the composition after all rows were added."""
        kernels, transfers = (np.concatenate(blocks, axis=1) for blocks in (self._kernels, self._transfers))
        item, start, end = kernels
        busy = union(np.zeros(len(item), np.int64), start, end)
        which, moved, came = transfers
        exposed = came - moved - (busy.before(came) - busy.before(moved))
        amounts: Amounts = {}
        figures = {name: int(getattr(statistics, name)[self._actor]) for name in _PARTS}
        _spread(amounts, figures["compute_ns"], item, end - start, self._names.kernel)
        _spread(amounts, figures["exposed_comm_ns"], which, exposed, self._names.transfer)
        for name, of in (("exposed_memory_ns", MEMORY), ("host_ns", HOST)):
            amounts[of, of] = figures[name]
        terms = self._accuracy.terms
        return Composition.of(self._accuracy.device, self._accuracy.whole, terms, amounts, self._traits)


def _traits(_: LoweredPlan, workload: Workload, accuracy: Accuracy) -> tuple[Trait, ...]:
    return accuracy.traits(*_job(workload))


def _of_kernels(
    _: LoweredPlan, shared: SharedColumns, bound: Labels | None, trace: Trace, first: int
) -> tuple[Any, Any]:
    """Return which nodes are kernels and copies, and their items: a kind, and a shape or a name."""
    kind = shared.columns["activity"]
    which = np.flatnonzero((kind == COMPUTE) | (kind == COPY))
    node = (shared.at - first)[which]
    known = np.where(trace.has("layer_shape", node), _SHAPED, _NAMED)
    if bound is not None and MEASURED in bound.texts:
        known[bound.codes[which] == bound.texts.index(MEASURED)] = _OF_TABLE
    known[_is_recorded(shared, which)] = _RECORDED
    number = np.where(known == _SHAPED, trace.layer_shape[node], trace.name[node])
    datatype = trace.datatype[node].astype(np.int64) & _MOST_DATATYPES
    return which, (known.astype(np.int64) << _BITS_OF_DATATYPES | datatype) << _BITS | number


def _of_transfers(plan: LoweredPlan, shared: SharedColumns, actor: int) -> tuple[Any, Any]:
    """Return which nodes of an actor are transfers, and their items: kind, group size and size."""
    columns = shared.columns
    which, (collectives, member) = np.flatnonzero(columns["activity"] == TRANSFER), shared.collectives
    members = np.full(len(shared.at), POINT_TO_POINT, np.int64)
    group = plan.members["group"][plan.actor_members[plan.actors["first_member"][actor] + member]]
    members[collectives] = plan.groups["members"][group]
    kind = columns["kind"][which] + len(KIND_NAMES) * _doers(plan, shared, which)
    power = np.frexp(np.maximum(columns["bytes"][which], 1).astype(np.float64))[1] - 1
    return which, (kind << _BITS | members[which]) << _BITS_OF_POWER | power


def _doers(plan: LoweredPlan, shared: SharedColumns, which: Any) -> Any:
    """Return the sources of transfers' times."""
    nodes = np.asarray(plan.nodes)[shared.at[which]]
    is_collective = nodes["action"] == Action.COLLECTIVE
    doers = np.full(len(which), _NETWORK, np.int64)
    if plan.library_choices:
        on = np.array(plan.library_nodes)[np.where(is_collective, nodes["detail"], 0)]
        doers[is_collective & (on == 1)] = _LIBRARY
        doers[is_collective & (on > 1)] = _LIBRARY_BETWEEN
    doers[_is_recorded(shared, which)] = _RECORDING
    return doers


class _Names:
    """Classes and names of items, each made once."""

    def __init__(self, _: LoweredPlan, trace: Trace, accuracy: Accuracy) -> None:
        self._trace, self._accuracy = trace, accuracy
        self.kernel, self.transfer = cache(self._kernel), cache(self._transfer)

    def _kernel(self, item: int) -> tuple[str, str]:
        kind, number = item >> _BITS, item & _MASK
        known, datatype = divmod(kind, 1 << _BITS_OF_DATATYPES)
        if known == _SHAPED:
            shape, text = self._trace.layer_shapes[number], self._trace.datatypes[datatype]
            return self._accuracy.of_kernel(shape, datatype_named(text) or ""), shape
        name = self._trace.names[number]
        return {_RECORDED: RECORDED, _OF_TABLE: TABLES}.get(known, KERNELS), name

    def _transfer(self, item: int) -> tuple[str, str]:
        item, power = item >> _BITS_OF_POWER, item & (1 << _BITS_OF_POWER) - 1
        kind, members = item >> _BITS, item & _MASK
        doer, kind = divmod(kind, len(KIND_NAMES))
        named = f"{KIND_NAMES[kind]} of {members:,} ranks, from 2^{power} B on"
        if doer == _RECORDING:
            return RECORDED, named
        size = judged_bytes(KIND_NAMES[kind], members, power)
        if doer == _NETWORK:
            return self._accuracy.of_exchange(KIND_NAMES[kind], size), named
        is_on_one_node = doer == _LIBRARY
        return self._accuracy.of_library(KIND_NAMES[kind], size, is_on_one_node=is_on_one_node), named


def judged_bytes(kind: str, members: int, power: int) -> int:
    """Return the size of an exchange by which its error is chosen: gathered are the bytes of all members."""
    return (members if kind == GATHERED else 1) << power


def _job(workload: Workload) -> tuple[str, str, str]:
    """Return the kinds of the job, its stated software, and figures that identify it."""
    software, step = workload.software, workload.step
    named = "" if software is None or software.is_assumed else software.name
    if step is None:
        return "", named, ""
    operations = f"{step.model_operations} of {step.hardware_operations} operations"
    return step.kinds, named, f"{workload.ranks} ranks, {step.tokens} tokens, {operations}"


def _is_recorded(shared: SharedColumns, which: Any) -> Any:
    return np.isin(shared.columns["treatment"][which], (Treatment.REPLAYED, Treatment.DEFAULTED))


def _spread(
    amounts: Amounts, total: int, item: Any, weight: Any, named: Callable[[int], tuple[str, str]]
) -> None:
    """Divide a time among items by weight; overlapping items have less than their own lengths."""
    weighted = weight > 0
    items = groups_of(item[weighted])
    sums = items.sums(weight[weighted].astype(np.float64))
    keys, amounts_of = item[weighted][items.first].tolist(), sums * (total / max(sums.sum(), 1))
    for key, amount in zip(keys, amounts_of.tolist(), strict=True):
        name = named(key)
        amounts[name] = amounts.get(name, 0.0) + amount
