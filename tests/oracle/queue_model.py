"""Queues as plain lists, for ranks that all run the same at the same time: an oracle for the engine.

A phase takes a known time once its queue lets it start, as messages do not delay each other here. Everything
is written from the description of queues and orders, with lists where the engine has linked records.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass


@dataclass
class Phase:
    dimension: int
    queue: int
    operation: str
    largest: int  # bytes per member, before or after it
    duration: int
    last_wait: int  # between the registration of its last event and its end: the order of equal ends


@dataclass(eq=False)
class Chunk:
    collective: int
    priority: int
    phases: list[Phase]
    at: int = 0
    started: bool = False

    @property
    def phase(self) -> Phase:
        return self.phases[self.at]

    @property
    def to_go(self) -> int:
        return len(self.phases) - self.at - 1


Queue = list[Chunk]


def place(queue: Queue, mine: Chunk, order: str) -> int:
    """Return the position at which a chunk is inserted."""
    if order == "FIFO" or mine.phase.operation in ("all_reduce", "all_to_all"):
        return first(queue, lambda entry: entry.started or entry.priority >= mine.priority)
    if order == "smallestFirst":
        if mine.to_go == 1:
            return len(queue)
        return first(queue, lambda entry: entry.started or entry.phase.largest < mine.phase.largest)
    if order == "lessRemainingPhaseFirst":
        return first(queue, lambda entry: entry.started or entry.to_go < mine.to_go)
    return place_in_turn(queue, mine)


def first(queue: Queue, is_passed) -> int:  # type: ignore[no-untyped-def]
    return next((k for k, entry in enumerate(queue) if not is_passed(entry)), len(queue))


def place_in_turn(queue: Queue, mine: Chunk) -> int:
    """Return the position for the order RG; `seen` are the operations of entries visited so far."""
    seen: list[str] = []
    k = 0
    while k < len(queue):
        seen.append(queue[k].phase.operation)
        if queue[k].started:
            k += 1
            if k < len(queue) and not queue[k].started:
                seen.append(queue[k].phase.operation)
                k += 1
            continue
        if queue[k].priority > mine.priority or set(seen[-2:]) == {"reduce_scatter", "all_gather"}:
            k += 1
            continue
        break
    return k


class Machine:
    """One rank, which represents all."""

    def __init__(self, limit: int, order: str) -> None:
        self.limit, self.order = limit, order
        self.queues: dict[tuple[int, int], Queue] = {}
        self.events: list[tuple[int, int, int, Chunk]] = []
        self.count = self.now = 0
        self.is_tied = (
            False  # phases of different queues ended together: ranks may handle them in different orders
        )
        self.last: tuple[int, int, int] | None = None

    def enter(self, chunk: Chunk) -> None:
        queue = self.queue_of(chunk)
        queue.insert(place(queue, chunk, self.order), chunk)

    def queue_of(self, chunk: Chunk) -> Queue:
        return self.queues.setdefault((chunk.phase.dimension, chunk.phase.queue), [])

    def pump(self, queue: Queue) -> None:
        while (running := sum(entry.started for entry in queue)) < min(self.limit, len(queue)):
            chunk = queue[running]
            chunk.started = True
            end = self.now + chunk.phase.duration
            self.count += 1
            heapq.heappush(self.events, (end, end - chunk.phase.last_wait, self.count, chunk))

    def run(self, chunks: list[Chunk]) -> list[int]:
        """Return the end of each collective."""
        ends = [0] * (max(chunk.collective for chunk in chunks) + 1)
        for chunk in chunks:
            self.enter(chunk)
            self.pump(self.queue_of(chunk))
        while self.events:
            self.now, _, _, chunk = heapq.heappop(self.events)
            ended = (self.now, chunk.phase.dimension, chunk.phase.queue)
            self.is_tied |= self.last is not None and self.last[0] == self.now and self.last != ended
            self.last = ended
            old = self.queue_of(chunk)
            old.remove(chunk)
            chunk.started = False
            if chunk.to_go:
                chunk.at += 1
                self.enter(chunk)
            else:
                ends[chunk.collective] = self.now
            self.pump(old)
            self.pump(self.queue_of(chunk))
        return ends
