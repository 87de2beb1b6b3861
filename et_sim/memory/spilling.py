"""The choice of tensors that wait in remote memory, so that the bytes alive never exceed a capacity.

The program is walked in an order that fits its dependencies. Where a node's tensors do not fit, others are
evicted: those whose next use comes last; of these the largest, and of these the one named first. One that has
changed since it was loaded, or never was, is stored, after the last use before. An evicted tensor is loaded
before the next node that reads it. Tensors that are there from the start are in local memory as far as they
fit, in the order of their first use; the others are in remote memory.

Nodes need not run in that order. The bound holds in any other, because memory is handed on like a token: a
node or load that takes bytes comes after the uses or the store that freed them; bytes that are free for
longest are taken first. And nodes that use one tensor come in the order of the program, except those that
only read, so that it is alive from and until the same nodes in any run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct, field
from sortedcontainers import SortedList

from et_sim.trace.tensors import TensorUses

NEVER = 1 << 62  # of a next use
NO_NODE = -1
# If more nodes than this freed a piece of memory, later takers wait for its first taker instead.
MANY = 16


class Spills(Struct):
    """Stores and loads to be added to a program; move k is its row `rows` + k."""

    rows: int
    tensors: list[int] = field(default_factory=list)  # of the moves
    is_store: list[bool] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)  # of dependencies to be added, in no particular order
    children: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # by tensor
    too_large: tuple[int, int] | None = None  # the first row whose tensors alone do not fit, and their bytes


class _Use(Struct, frozen=True):
    """A tensor at a node."""

    tensor: int
    reads: bool
    writes: bool
    next: int  # place of the node that uses it next, or NEVER
    next_reads: bool


def spills(uses: TensorUses, order: Sequence[int], capacity: int) -> Spills:
    """Return the moves with which a program fits; `order` has all of its rows."""
    planner = _Planner(uses, order, capacity)
    for place, (row, of_row) in enumerate(planner.steps):
        planner.run(place, row, of_row)
    return planner.spills


class _Planner:
    """The state of local memory between two nodes of the program."""

    def __init__(self, uses: TensorUses, order: Sequence[int], capacity: int) -> None:
        count = len(uses.names)
        largest = np.zeros(count, np.int64)  # the bound must hold for each of several sizes
        np.maximum.at(largest, uses.tensor, uses.bytes)
        self.size: list[int] = largest.tolist()
        self.spills = Spills(len(order), sizes=self.size)
        self.steps = list(_steps(uses, order))
        self.free: deque[tuple[int, tuple[int, ...]]] = deque([(capacity, ())])  # bytes, and who freed them
        self.free_bytes = capacity
        self.is_local = [False] * count
        self.has_copy = [False] * count  # in remote memory, as it is now
        self.due = [NEVER] * count  # place of the next use
        self.writer = [NO_NODE] * count  # the last node that wrote or loaded it
        self.readers: list[list[int]] = [[] for _ in range(count)]  # since then; a store is one
        self.candidates = SortedList()  # local tensors: last due, largest, first named
        self._start()

    def _start(self) -> None:
        seen: set[int] = set()
        for place, (_, of_row) in enumerate(self.steps):
            for use in of_row:
                tensor = use.tensor
                is_first = tensor not in seen
                seen.add(tensor)
                if not is_first or not use.reads:
                    continue
                if self.size[tensor] <= self.free_bytes:
                    self._take(NO_NODE, self.size[tensor])
                    self._keep(tensor, place)
                else:
                    self.has_copy[tensor] = True

    def run(self, place: int, row: int, of_row: list[_Use]) -> None:
        """Run the next node: make room, load its tensors, and release those without a next use."""
        missing = sum(self.size[use.tensor] for use in of_row if not self.is_local[use.tensor])
        self._make_room(missing, place, row, of_row)
        for use in of_row:
            if use.reads and not self.is_local[use.tensor]:
                self._load(use.tensor)
        for use in of_row:
            self._use(row, use)
        for use in of_row:
            if use.writes or use.next_reads:  # a written tensor lives until it is written again, read or not
                self._keep(use.tensor, use.next)
            else:
                self._release(use.tensor, tuple(self.readers[use.tensor]))

    def _make_room(self, missing: int, place: int, row: int, of_row: list[_Use]) -> None:
        while self.free_bytes < missing:
            if not self.candidates or self.due[self.candidates[0][2]] <= place:
                if self.spills.too_large is None:
                    self.spills.too_large = row, sum(self.size[use.tensor] for use in of_row)
                self.free.append((missing - self.free_bytes, ()))
                self.free_bytes = missing
                return
            self._evict(self.candidates[0][2])

    def _evict(self, tensor: int) -> None:
        if not self.has_copy[tensor]:
            store = self._move(tensor, is_store=True)
            before = self.readers[tensor] or [self.writer[tensor]]
            for node in before:
                self._after(node, store)
            self.readers[tensor] = [store]
            self.has_copy[tensor] = True
        self._release(tensor, tuple(self.readers[tensor]))

    def _load(self, tensor: int) -> None:
        load = self._move(tensor, is_store=False)
        self._take(load, self.size[tensor])
        self._written(load, tensor)
        self.is_local[tensor] = True

    def _use(self, row: int, use: _Use) -> None:
        tensor = use.tensor
        if not self.is_local[tensor]:  # it is only written
            self._take(row, self.size[tensor])
            self.is_local[tensor] = True
        if use.reads:
            self._after(self.writer[tensor], row)
        if use.writes:
            self._written(row, tensor)
            self.has_copy[tensor] = False
        else:
            self.readers[tensor].append(row)

    def _written(self, node: int, tensor: int) -> None:
        for reader in self.readers[tensor] or [self.writer[tensor]]:
            self._after(reader, node)
        self.writer[tensor] = node
        self.readers[tensor] = []

    def _keep(self, tensor: int, due: int) -> None:
        self.candidates.discard(self._rank(tensor))
        self.is_local[tensor] = True
        self.due[tensor] = due
        self.candidates.add(self._rank(tensor))

    def _rank(self, tensor: int) -> tuple[int, int, int]:
        return -self.due[tensor], -self.size[tensor], tensor

    def _release(self, tensor: int, after: tuple[int, ...]) -> None:
        self.candidates.discard(self._rank(tensor))
        self.is_local[tensor] = False
        self.free.append((self.size[tensor], after))
        self.free_bytes += self.size[tensor]

    def _take(self, node: int, size: int) -> None:
        """Take bytes for a tensor, those that are free for longest first; NO_NODE: from the start."""
        self.free_bytes -= size
        while size:
            there, after = self.free.popleft()
            for successor in after:
                self._after(successor, node)
            if there > size:
                self.free.appendleft((there - size, (node,) if len(after) > MANY else after))
            size -= min(there, size)

    def _move(self, tensor: int, *, is_store: bool) -> int:
        self.spills.tensors.append(tensor)
        self.spills.is_store.append(is_store)
        return self.spills.rows + len(self.spills.tensors) - 1

    def _after(self, parent: int, child: int) -> None:
        if parent not in (NO_NODE, child):
            self.spills.parents.append(parent)
            self.spills.children.append(child)


def _steps(uses: TensorUses, order: Sequence[int]) -> Iterator[tuple[int, list[_Use]]]:
    """Yield the rows that name tensors, in order, each tensor once; places count these rows only."""
    count = max(len(uses.names), 1)
    pair, inverse = np.unique(uses.row.astype(np.int64) * count + uses.tensor, return_inverse=True)
    reads, writes = (np.zeros(len(pair), np.bool_) for _ in range(2))
    reads[inverse[~uses.is_write]] = True
    writes[inverse[uses.is_write]] = True
    rows, tensors = pair // count, pair % count
    at = np.empty(len(order), np.int64)
    at[np.asarray(order, np.int64)] = np.arange(len(order))
    sequence = np.lexsort((tensors, at[rows]))
    rows, tensors, reads, writes = rows[sequence], tensors[sequence], reads[sequence], writes[sequence]
    is_first = np.concatenate((np.ones(min(len(rows), 1), np.bool_), rows[1:] != rows[:-1]))
    place = np.cumsum(is_first) - 1
    after, after_reads = _next_uses(tensors, place, reads)
    columns = (tensors, reads, writes, after, after_reads)
    every = [_Use(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]
    for begin, end in pairwise([*np.flatnonzero(is_first).tolist(), len(every)]):
        yield int(rows[begin]), every[begin:end]


def _next_uses(tensors: Any, place: Any, reads: Any) -> tuple[Any, Any]:
    """Return for each use the place of the tensor's next one, and whether that reads."""
    order = np.lexsort((place, tensors))
    is_same = tensors[order[1:]] == tensors[order[:-1]]
    this, following = order[:-1][is_same], order[1:][is_same]
    after, after_reads = np.full(len(tensors), NEVER), np.zeros(len(tensors), np.bool_)
    after[this], after_reads[this] = place[following], reads[following]
    return after, after_reads
