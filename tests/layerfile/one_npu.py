"""ASTRA-sim 1.0 with rings and without contention, seen from one NPU that represents all: an oracle.

Written from the description of its queues and closed forms, with lists and a heap: a collective is cut into
chunks, a chunk passes through phases, a phase takes a known time once its dimension's queue lets it start.
It has no layers: it runs any trace of computations and collectives.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from et_sim.trace.columns import CollectiveKind, NodeKind, Trace

GIB_PER_SECOND = 2**30 / 10**9  # bytes per ns
REDUCE_SCATTER, ALL_GATHER = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER
ALL_REDUCE, ALL_TO_ALL = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL


@dataclass(frozen=True)
class Ring:
    """One logical dimension; `hops` of the physical ring lie between logical neighbours."""

    size: int
    latency: float
    bandwidth: float
    hops: int = 1

    def message_ns(self, size: int) -> int:
        return int(int(self.hops * self.latency) + size / self.bandwidth)


@dataclass(frozen=True)
class Machine1:
    """A machine of the 1.0 files: rings only, one chunk in flight per dimension."""

    rings: tuple[Ring, ...]
    endpoint_ns: int
    splits: int
    is_lifo: bool
    is_baseline: bool = False
    in_flight: int = 1

    def phases(self, kind: int, size: int, dims: Sequence[int]) -> list[tuple[int, int]]:
        """Return (dimension, duration) of each phase of a chunk."""
        results = []

        def add(dim: int, kind: int) -> None:
            nonlocal size
            results.append((dim, self.phase_ns(kind, size, self.rings[dim])))
            size = {
                REDUCE_SCATTER: size // self.rings[dim].size,
                ALL_GATHER: size * self.rings[dim].size,
            }.get(CollectiveKind(kind), size)

        if kind == ALL_REDUCE and not self.is_baseline:
            for dim in dims[:-1]:
                add(dim, REDUCE_SCATTER)
            add(dims[-1], ALL_REDUCE)
            for dim in reversed(dims[:-1]):
                add(dim, ALL_GATHER)
        else:
            for dim in reversed(dims) if kind == ALL_GATHER else dims:
                add(dim, kind)
        return results

    def phase_ns(self, kind: int, size: int, ring: Ring) -> int:
        n, d = ring.size, self.endpoint_ns
        part = size if kind == ALL_GATHER else size // n
        steps = {ALL_REDUCE: 2 * (n - 1), ALL_TO_ALL: n * (n - 1) // 2}.get(CollectiveKind(kind), n - 1)
        reduced = (n - 1) * 3 * (part // 500_000) if kind in (ALL_REDUCE, REDUCE_SCATTER) else 0
        return steps * ring.message_ns(part) + (steps + 1) * d + reduced


@dataclass
class Chunk:
    collective: int
    priority: int
    phases: list[tuple[int, int]]
    at: int = 0


@dataclass
class Play:
    """One run: `start_ns` and `end_ns` of every row."""

    machine: Machine1
    trace: Trace
    now: int = 0
    events: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    count: int = 0
    priority: int = 0

    def run(self) -> tuple[Any, Any]:
        rows = len(self.trace)
        self.start_ns, self.end_ns = np.full((2, rows), -1)
        self.running = [0] * len(self.machine.rings)
        self.waiting: list[list[Chunk]] = [[] for _ in self.machine.rings]
        self.left = [len(self.trace.parents(row)) for row in range(rows)]
        self.chunks: dict[int, int] = {}
        self.children: list[list[int]] = [[] for _ in range(rows)]
        for row in range(rows):
            for parent in self.trace.parents(row):
                self.children[int(parent)].append(row)
        for row in range(rows):
            if not self.left[row]:
                self.begin(row)
        while self.events:
            self.now, _, act = heapq.heappop(self.events)
            act()
        return self.start_ns, self.end_ns

    def after(self, delay: int, act: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + delay, self.count, act))

    def begin(self, row: int) -> None:
        self.start_ns[row] = self.now
        if self.trace.kind[row] == NodeKind.COMP:
            self.after(int(self.trace.duration_ns[row]), lambda: self.end(row))
            return
        urgent = self.trace.has("comm_priority", row)
        if not urgent:
            self.priority += 1 if self.machine.is_lifo else -1
        flags = int(self.trace.involved_dims[row])
        dims = [k for k, ring in enumerate(self.machine.rings) if flags >> k & 1 and ring.size > 1]
        size = int(self.trace.comm_bytes[row])
        each = size // self.machine.splits
        number = -(-size // each)
        self.chunks[row] = number
        chunks = [
            Chunk(
                row,
                int(self.trace.comm_priority[row]) if urgent else self.priority,
                self.machine.phases(int(self.trace.comm_type[row]), each, dims),
            )
            for _ in range(number)
        ]
        for chunk in chunks:
            self.enter(chunk)

    def enter(self, chunk: Chunk) -> None:
        queue = self.waiting[chunk.phases[chunk.at][0]]
        place = next((k for k, other in enumerate(queue) if other.priority < chunk.priority), len(queue))
        queue.insert(place, chunk)
        self.start_next(chunk.phases[chunk.at][0])

    def start_next(self, dim: int) -> None:
        while self.running[dim] < self.machine.in_flight and self.waiting[dim]:
            chunk = self.waiting[dim].pop(0)
            self.running[dim] += 1
            self.after(chunk.phases[chunk.at][1], lambda chunk=chunk: self.leave(chunk, dim))

    def leave(self, chunk: Chunk, dim: int) -> None:
        self.running[dim] -= 1
        chunk.at += 1
        if chunk.at < len(chunk.phases):
            self.enter(chunk)
        else:
            self.chunks[chunk.collective] -= 1
            if not self.chunks[chunk.collective]:
                self.end(chunk.collective)
        self.start_next(dim)

    def end(self, row: int) -> None:
        self.end_ns[row] = self.now
        for child in self.children[row]:
            self.left[child] -= 1
            if not self.left[child]:
                self.begin(child)
