"""Caches on their way between replicas, with the time that each takes beside the others.

A replica sends one cache at a time and receives one at a time, in the order in which blocks were allocated.
Caches that are under way at the same time are simulated together, each from its begin on, so that those that
share links slow each other. A later one changes nothing before its begin, so what has arrived stays as it is.
Weights of replicas that start are under way likewise, beside caches, and wait for nothing.

By layers, a cache is sent while the pass of its prompt goes on: a layer as soon as it is computed. After the
pass, the layers that are left are sent: one if the links keep up with the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from et_sim.serving.sequences import NEVER, ServedSequence
from et_sim.workloads.inference.transfers import Sent, SentCache, SentWeights

WHOLE, LAYERS = "whole", "layers"
TRANSFERS = (WHOLE, LAYERS)


class Transfer:
    """The transfer of a sequence's cache between two replicas, by their numbers; `owner`: of its model."""

    def __init__(
        self, sequence: ServedSequence, source: int, target: int, sent: SentCache, owner: int = 0
    ) -> None:
        self.sequence, self.source, self.target, self.sent = sequence, source, target, sent
        self.owner = owner
        self.begin_ns = self.end_ns = NEVER


class WeightTransfer:
    """The transfer of weights to the replica at a place of its pool, which starts."""

    owner = 0

    def __init__(self, place: int, sent: SentWeights) -> None:
        self.place, self.sent = place, sent
        self.begin_ns = self.end_ns = NEVER


class Transfers:
    """The transfers under way, and those that wait."""

    def __init__(self, ends: Callable[[Sequence[Sent], Sequence[int]], Sequence[int]]) -> None:
        self._ends = ends  # of what is sent together, with owners; times count from the first begin
        self._waiting: list[Transfer] = []
        self._new_weights: list[WeightTransfer] = []
        self._under_way: list[Transfer | WeightTransfer] = []
        self._together: list[Transfer | WeightTransfer] = []  # since links were idle

    def add(self, transfer: Transfer) -> None:
        """Add a transfer, which begins when its replicas are free."""
        self._waiting.append(transfer)

    def add_weights(self, transfer: WeightTransfer) -> None:
        """Add a transfer of weights, which begins at once."""
        self._new_weights.append(transfer)

    @property
    def _caches(self) -> list[Transfer]:
        return [of for of in self._under_way if isinstance(of, Transfer)]

    def begin(self, now: int) -> Iterator[Transfer | WeightTransfer]:
        """Begin all that may; yield the transfers whose end is new, or is another one."""
        senders = {of.source for of in self._caches}
        receivers = {of.target for of in self._caches}
        waiting: list[Transfer] = []
        for transfer in self._waiting:
            if transfer.source in senders or transfer.target in receivers:
                waiting.append(transfer)
            else:
                self._start(transfer, now)
            senders.add(transfer.source)
            receivers.add(transfer.target)
        has_begun = len(waiting) < len(self._waiting) or bool(self._new_weights)
        self._waiting, new, self._new_weights = waiting, self._new_weights, []
        for weights in new:
            self._start(weights, now)
        if has_begun:
            yield from self._timed(now)

    def end(self, transfer: Transfer | WeightTransfer, now: int) -> bool:
        """End a transfer; return False if it ends at another time."""
        if transfer.end_ns != now or transfer not in self._under_way:
            return False
        self._under_way.remove(transfer)
        return True

    def _start(self, transfer: Transfer | WeightTransfer, now: int) -> None:
        if not self._under_way:
            self._together.clear()
        transfer.begin_ns = now
        self._under_way.append(transfer)
        self._together.append(transfer)

    def is_sending(self, source: int) -> bool:
        """Return whether a replica sends a cache, or has one that waits."""
        return any(of.source == source for of in (*self._caches, *self._waiting))

    def _timed(self, now: int) -> Iterator[Transfer | WeightTransfer]:
        """Set the ends of all that are under way; yield those with another one."""
        first = self._together[0].begin_ns
        sent = [of.sent._replace(begin_ns=of.begin_ns - first) for of in self._together]
        ends = self._ends(sent, [of.owner for of in self._together])
        for transfer, end in zip(self._together, ends, strict=True):
            until = max(first + end, now)
            if transfer in self._under_way and transfer.end_ns != until:
                transfer.end_ns = until
                yield transfer


class Window(NamedTuple):
    """A pass in which layers of caches are sent as they are computed, once links are free."""

    begin_ns: int
    end_ns: int
    free_ns: int
    layers: int

    def left(self, layer_ns: int) -> int:
        """Return the layers that are left at its end, if one layer of all caches of the pass takes a time."""
        if not layer_ns:
            return 1
        first = max(self.begin_ns + (self.end_ns - self.begin_ns) // self.layers, self.free_ns)
        return min(max(self.layers - max(self.end_ns - first, 0) // layer_ns, 1), self.layers)
