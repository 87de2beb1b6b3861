"""Composition of a run's time, in parts whose errors differ.

It is that of the rank that waits least, the first of several, because others wait for it: kernels by shape,
exposed transfers by kind, group size and size to a power of two, remote memory, and the host. While this rank
waits or is idle, others do such work, so that time counts as the same composition. No recorded causes are
needed.

`et_sim.machine.accuracy` states the error of each part; `basics.uncertainty` combines them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from et_sim.basics.intervals import COMPUTE, COPY, TRANSFER, union
from et_sim.basics.uncertainty import Composition
from et_sim.basics.unique import groups_of
from et_sim.compute import Treatment
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
from et_sim.timeline.node_columns import KIND_NAMES
from et_sim.timeline.rows import Rows
from et_sim.timeline.statistics import Statistics
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
        self._trace, self._first = workload.templates[template], plan.templates["node_first"][template]
        self._job = _job(workload)
        self._kernels: list[Any] = [np.zeros((3, 0), np.int64)]  # shape, start, end
        self._transfers: list[Any] = [np.zeros((3, 0), np.int64)]

    def add(self, rows: Rows) -> None:
        """Add a block of rows."""
        kind = rows.activity
        self._kernels.append(self._of_kernels(rows, np.flatnonzero((kind == COMPUTE) | (kind == COPY))))
        self._transfers.append(self._of_transfers(rows, np.flatnonzero(kind == TRANSFER)))

    def _of_kernels(self, rows: Rows, which: Any) -> Any:
        node = (rows.at - self._first)[which]
        known = np.where(self._trace.has("layer_shape", node), _SHAPED, _NAMED)
        if rows.utilisation is not None and MEASURED in (bound := rows.utilisation.bound).texts:
            known[bound.codes[which] == bound.texts.index(MEASURED)] = _OF_TABLE
        known[_is_recorded(rows, which)] = _RECORDED
        number = np.where(known == _SHAPED, self._trace.layer_shape[node], self._trace.name[node])
        datatype = self._trace.datatype[node].astype(np.int64) & _MOST_DATATYPES
        item = (known.astype(np.int64) << _BITS_OF_DATATYPES | datatype) << _BITS | number
        return np.stack((item, rows.start_ns[which], rows.end_ns[which]))

    def _of_transfers(self, rows: Rows, which: Any) -> Any:
        group = rows.group[which]
        members = np.full(len(which), POINT_TO_POINT, np.int64)
        members[group >= 0] = self._plan.groups["members"][group[group >= 0]]
        kind = rows.kind[which] + len(KIND_NAMES) * self._doers(rows, which)
        power = np.frexp(np.maximum(rows.bytes[which], 1).astype(np.float64))[1] - 1
        item = (kind << _BITS | members) << _BITS_OF_POWER | power
        waited = np.maximum(rows.queued_ns[which], 0) + np.maximum(rows.waiting_ns[which], 0)
        return np.stack((item, rows.start_ns[which] + waited, rows.end_ns[which]))

    def _doers(self, rows: Rows, which: Any) -> Any:
        """Return the sources of transfers' times."""
        nodes = np.asarray(self._plan.nodes)[rows.at[which]]
        is_collective = nodes["action"] == Action.COLLECTIVE
        doers = np.full(len(which), _NETWORK, np.int64)
        if self._plan.library_choices:
            on = np.array(self._plan.library_nodes)[np.where(is_collective, nodes["detail"], 0)]
            doers[is_collective & (on == 1)] = _LIBRARY
            doers[is_collective & (on > 1)] = _LIBRARY_BETWEEN
        doers[_is_recorded(rows, which)] = _RECORDING
        return doers

    def composition(self, statistics: Statistics) -> Composition | None:
        """Return the composition after all rows were added."""
        kernels, transfers = (np.concatenate(blocks, axis=1) for blocks in (self._kernels, self._transfers))
        item, start, end = kernels
        busy = union(np.zeros(len(item), np.int64), start, end)
        which, moved, came = transfers
        exposed = came - moved - (busy.before(came) - busy.before(moved))
        amounts: Amounts = {}
        figures = {name: int(getattr(statistics, name)[self._actor]) for name in _PARTS}
        _spread(amounts, figures["compute_ns"], item, end - start, self._kernel)
        _spread(amounts, figures["exposed_comm_ns"], which, exposed, self._transfer)
        for name, of in (("exposed_memory_ns", MEMORY), ("host_ns", HOST)):
            amounts[of, of] = figures[name]
        terms = self._accuracy.terms
        traits = self._accuracy.traits(*self._job)
        return Composition.of(self._accuracy.device, self._accuracy.whole, terms, amounts, traits)

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


def _is_recorded(rows: Rows, which: Any) -> Any:
    return np.isin(rows.treatment[which], (Treatment.REPLAYED, Treatment.DEFAULTED))


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
