"""Schedules under the rules of LogGOPSim before ATLAHS: an oracle for the LogGOPS model.

Written from the description of the rules, with dictionaries where the model has linked records. All numbers
of `Constants` are those of the network file. A rank is a list of operations.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

SEND, RECEIVE, CALC, ARRIVAL = range(4)  # in this order, if they become free together


@dataclass(frozen=True)
class Operation:
    kind: int
    size: int  # bytes; of a calculation ns
    peer: int = 0
    tag: int = 0
    after: tuple[int, ...] = ()  # rows of the same rank

    @property
    def text(self) -> str:
        if self.kind == CALC:
            return f"calc {self.size}"
        verb, to = ("send", "to") if self.kind == SEND else ("recv", "from")
        return f"{verb} {self.size}b {to} {self.peer} tag {self.tag}"


@dataclass
class Simulation:
    ranks: list[list[Operation]]
    constants: dict[str, Any]
    ends: dict[tuple[int, int], int] = field(default_factory=dict)  # ends of operations, by rank and row

    def run(self) -> None:
        self.processor, self.sending, self.receiving = ([0] * len(self.ranks) for _ in range(3))
        self.queue: list[tuple[int, int, int, int, int]] = []  # time, number, kind, rank, row
        self.numbers = 0
        self.posted: dict[Any, list[int]] = defaultdict(list)  # rows of receives, by channel
        self.early: dict[Any, list[tuple[int, int]]] = defaultdict(list)  # rows of sends, until when paid
        for rank, operations in enumerate(self.ranks):
            self._free(rank, [row for row, operation in enumerate(operations) if not operation.after])
        while self.queue:
            time, number, kind, rank, row = heapq.heappop(self.queue)
            free = self._free_at(kind, rank, self.ranks[rank][row].peer)
            if free > time:
                heapq.heappush(self.queue, (free, number, kind, rank, row))
            else:
                (self._send, self._post, self._compute, self._arrive)[kind](time, rank, row)

    def _free_at(self, kind: int, rank: int, peer: int) -> int:
        if kind == ARRIVAL:
            return max(self.processor[peer], self.receiving[peer])
        return (max(self.processor[rank], self.sending[rank]), 0, self.processor[rank])[kind]

    def _put(self, time: int, kind: int, rank: int, row: int) -> None:
        heapq.heappush(self.queue, (time, self.numbers, kind, rank, row))
        self.numbers += 1

    def _free(self, rank: int, rows: list[int]) -> None:
        for row in sorted(rows, key=lambda row: self.ranks[rank][row].kind):
            kind = self.ranks[rank][row].kind
            self._put(max(self.processor[rank], self._free_at(kind, rank, 0)), kind, rank, row)

    def _end(self, ended: dict[tuple[int, int], int]) -> None:
        self.ends |= ended
        freed = defaultdict(list)
        for rank, row in ended:
            for later, operation in enumerate(self.ranks[rank]):
                if row in operation.after and all((rank, parent) in self.ends for parent in operation.after):
                    freed[rank].append(later)
        for rank in sorted(freed):
            self._free(rank, freed[rank])

    def _costs(self, size: int) -> tuple[int, int]:
        rest = max(size, 1) - 1
        return int(rest * self.constants["G"]), rest * self.constants["O"]

    def _compute(self, time: int, rank: int, row: int) -> None:
        self.processor[rank] = time + self.ranks[rank][row].size
        self._end({(rank, row): self.processor[rank]})

    def _send(self, time: int, rank: int, row: int) -> None:
        size, overhead = self.ranks[rank][row].size, self.constants["o"]
        wire, copied = self._costs(size)
        self.processor[rank] = time + overhead + copied
        self.sending[rank] = time + self.constants["g"] + wire
        self._put(time + overhead + self.constants["L"], ARRIVAL, rank, row)
        if size <= self.constants["S"]:
            self._end({(rank, row): self.processor[rank]})

    def _post(self, time: int, rank: int, row: int) -> None:
        operation = self.ranks[rank][row]
        channel = operation.peer, rank, operation.tag, operation.size
        if not self.early[channel]:
            self.posted[channel].append(row)
            return
        sent, paid_until = self.early[channel].pop(0)
        self._meet(time, (operation.peer, sent), (rank, row), max(time, paid_until))

    def _arrive(self, time: int, rank: int, row: int) -> None:
        operation = self.ranks[rank][row]
        target, channel = operation.peer, (rank, operation.peer, operation.tag, operation.size)
        wire, copied = self._costs(operation.size)
        self.processor[target] = time + self.constants["o"] + max(wire, copied)
        self.receiving[target] = time + self.constants["g"] + wire
        if self.posted[channel]:
            receive = target, self.posted[channel].pop(0)
            self._meet(time, (rank, row), receive, self.processor[target])
        else:
            self.early[channel].append((row, self.processor[target]))

    def _meet(self, time: int, send: tuple[int, int], receive: tuple[int, int], end: int) -> None:
        source, row = send
        ended = {receive: end}
        if self.ranks[source][row].size > self.constants["S"]:
            self.processor[source] = max(self.processor[source], time)
            self.sending[source] = max(self.sending[source], time)
            ended[send] = time
        self._end(ended)
