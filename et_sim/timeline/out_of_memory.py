"""Runs whose tensors need more local memory than an NPU has: the time, the ranks, and the tensors alive then.

The footprint of the whole run is needed, because the lifetime of a tensor depends on its later readers.
Nothing before that time depends on the capacity, so a run that has to stop there is simulated again up to it,
and its files hold the state at that time.

`et_sim.memory` computes the footprint, `et_sim.views.summary.memory` prints it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct, to_builtins

from et_sim.basics.errors import OutOfMemoryError
from et_sim.basics.unique import unique
from et_sim.basics.units import exact_bytes, format_bytes, format_ns, format_ranks, memory_text
from et_sim.engine.outcome import Outcome
from et_sim.machine.model import LocalMemory, WhenFull
from et_sim.memory import CLASSES, Changes
from et_sim.timeline.measurement import Measurement, MemorySource
from et_sim.trace.tensors import TensorUses
from et_sim.trace.workload import Workload

LARGEST = 20  # tensors named


class HeldTensor(Struct, frozen=True):
    """A tensor that is alive."""

    tensor: str
    tensor_class: str
    bytes: int
    since_ns: int
    node: int | None  # that wrote it; None: it was there from the start
    node_name: str | None


class TooLarge(Struct, frozen=True):
    """A node whose own tensors do not fit, even if all others are in remote memory."""

    node: int
    node_name: str
    bytes: int


class OutOfMemory(Struct, frozen=True):
    """The first time at which a rank needs more memory than it has."""

    time_ns: int
    ranks: str  # ranks that need more then
    capacity_bytes: int  # for tensors
    reserved_bytes: int  # reserved for other uses
    alive_bytes: int  # on the first of these ranks, like all below
    stopped: bool  # else the run continued
    allocated: tuple[HeldTensor, ...]  # at that time, the largest first
    tensors: int  # alive then
    largest: tuple[HeldTensor, ...]
    by_class: dict[str, int]
    too_large: TooLarge | None = None  # why spilling other tensors does not help

    def as_dict(self) -> dict[str, Any]:
        """Return the content for JSON files."""
        plain: dict[str, Any] = to_builtins(self)
        for held in (*plain["allocated"], *plain["largest"]):
            held["class"] = held.pop("tensor_class")
        if self.too_large is None:
            del plain["too_large"]
        return plain

    @property
    def rank(self) -> int:
        """Return the first of these ranks."""
        return int(self.ranks.replace("-", ",").split(",")[0])

    @property
    def sentence(self) -> str:
        """Return the description in one sentence."""
        who = f"rank {self.ranks} needs" if self.ranks.isdigit() else f"ranks {self.ranks} need"
        first = self.allocated[0] if self.allocated else None
        cause = ""
        if first is not None:
            by = "the start" if first.node is None else f'node {first.node} "{first.node_name}"'
            cause = f", when {by} allocates {first.tensor!r} ({format_bytes(first.bytes)})"
        if self.too_large is not None:
            node = f'node {self.too_large.node} "{self.too_large.node_name}"'
            cause += f"; the tensors of {node} alone are {exact_bytes(self.too_large.bytes)}"
        there = memory_text(self.capacity_bytes, self.reserved_bytes)
        needed = format_bytes(self.alive_bytes)
        if not self.reserved_bytes or needed == format_bytes(self.capacity_bytes):
            needed = exact_bytes(self.alive_bytes)
        return (
            f"{who} more local memory than the limit of {there} at {format_ns(self.time_ns)}:"
            f" {needed} on rank {self.rank}{cause}"
        )

    def as_error(self) -> OutOfMemoryError:
        """Return the error, with details."""
        classes = ", ".join(f"{name} {format_bytes(size)}" for name, size in self.by_class.items())
        lines = [f"out of memory: {self.sentence}", f"allocated at that time: {classes}", "largest tensors:"]
        lines += [f"  {_line(held)}" for held in self.largest[:10]]
        if self.tensors > 10:
            lines.append(f"  … and {self.tensors - 10} others")
        remedy = 'give NPUs more memory ("local-mem-capacity"), or give --when-full report to see the rest'
        return OutOfMemoryError(self.sentence, report="\n".join([*lines, remedy]), remedy=remedy)


def _line(held: HeldTensor) -> str:
    origin = "there from the start" if held.node is None else f'node {held.node} "{held.node_name}"'
    return f"{held.tensor}: {format_bytes(held.bytes)}, {origin}"


def out_of_memory(outcome: Outcome, workload: Workload, memory: LocalMemory | None) -> OutOfMemory | None:
    """Return when a run first exceeds local memory; None: it never does, or the capacity is unknown."""
    if memory is None or not outcome.plan.tensors:
        return None
    if memory.when_full is WhenFull.SPILL and not outcome.is_complete:
        return None  # spilling is only decided for runs that complete
    if all(_most_bytes(uses) <= memory.capacity_bytes for uses in outcome.plan.tensors):
        return None
    measurement = Measurement(outcome, workload)
    first_ns: int | None = None
    actors: list[int] = []
    first: Changes | None = None
    for changes in measurement.changes_of_memory():
        over = changes.where(changes.alive_bytes > memory.capacity_bytes)
        if not len(over.owner):
            continue
        earliest = int(over.time_ns.min())
        if first_ns is not None and earliest > first_ns:
            continue
        if first_ns is None or earliest < first_ns:
            first_ns, actors, first = earliest, [], changes
        actors += unique(over.owner[over.time_ns == earliest]).tolist()
    if first_ns is None or first is None:
        return None
    source = measurement.memory
    assert source is not None
    ranks = np.flatnonzero(np.isin(outcome.plan.actor_of_rank, actors))
    text = format_ranks(ranks.tolist())
    return _described(first, measurement, source, memory, first_ns, actors[0], text)


def _most_bytes(uses: TensorUses) -> int:
    """Return bytes that a program's tensors never exceed: all from the start, and one more by each write."""
    largest = np.zeros(len(uses.names), np.int64)
    np.maximum.at(largest, uses.tensor, uses.bytes)
    return int(largest.sum()) + int(uses.bytes[uses.is_write].sum())


def _described(
    changes: Changes,
    measurement: Measurement,
    source: MemorySource,
    memory: LocalMemory,
    time_ns: int,
    actor: int,
    ranks: str,
) -> OutOfMemory:
    of_actor = changes.where((changes.owner == actor) & (changes.time_ns <= time_ns))
    last = {tensor: row for row, tensor in enumerate(of_actor.tensor.tolist())}
    alive = sorted(row for row in last.values() if of_actor.delta_bytes[row] > 0)

    def held(row: int) -> HeldTensor:
        tensor, node = int(of_actor.tensor[row]), int(of_actor.node[row])
        return HeldTensor(
            tensor=source.names[tensor],
            tensor_class=CLASSES[source.classes[tensor]],
            bytes=int(of_actor.delta_bytes[row]),
            since_ns=int(of_actor.time_ns[row]),
            node=None if node < 0 else int(measurement.source.ids[node]),
            node_name=None if node < 0 else measurement.source.name(node),
        )

    every = sorted(
        (held(row) for row in alive), key=lambda tensor: (-tensor.bytes, tensor.since_ns, tensor.tensor)
    )
    sums = {name: sum(tensor.bytes for tensor in every if tensor.tensor_class == name) for name in CLASSES}
    return OutOfMemory(
        time_ns=time_ns,
        ranks=ranks,
        capacity_bytes=memory.capacity_bytes,
        reserved_bytes=memory.reserved_bytes,
        alive_bytes=sum(tensor.bytes for tensor in every),
        stopped=memory.when_full is not WhenFull.REPORT,
        allocated=tuple(tensor for tensor in every if tensor.since_ns == time_ns)[:LARGEST],
        tensors=len(every),
        largest=tuple(every[:LARGEST]),
        by_class={name: size for name, size in sums.items() if size},
    )
