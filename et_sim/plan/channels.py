"""Point-to-point messages: which sends and receives belong together.

A channel is (source, target, tag, bytes); the k-th send on a channel meets its k-th receive, and nothing
else ever matches. All channels are known before the run. Custom collectives send on the same channels as
the workload, unless they have a space of their own.

Where an actor stands for several ranks, a channel stands for those of all its ranks, and is named by the
source actor's representative and the rank that this one sends to.

Not here: whom the nodes of a template name (`peers`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.plan import tables
from et_sim.plan.actors import Actors
from et_sim.plan.peers import Endpoints
from et_sim.trace.workload import Workload

WORKLOAD = 0  # the space of the workload's own messages


class ChannelTables:
    """Collects the sends and receives of programs; `finish` says which channel each one uses."""

    def __init__(self, workload: Workload, endpoints: list[Endpoints], actors: Actors) -> None:
        self._workload = workload
        self._endpoints = endpoints
        self._actors = actors
        self._slots: dict[int, dict[int, int]] = {}  # per template: slot by peer
        self._keys: list[Any] = []
        self._count = 0

    def add_actor(self, actor: int) -> int:
        """Add what an actor sends and receives; returns where its channels begin."""
        rank = int(self._actors.representative[actor])
        endpoints = self._endpoints[int(self._workload.template_of_rank[rank])]
        if not len(endpoints.rows):
            return self._count
        peers = endpoints.ranks(rank, self._workload.ranks)
        if self._actors.is_folded:
            incoming = np.array([self._as_sent(rank, int(peer)) for peer in peers], np.int64)
        else:
            incoming = np.stack((peers, np.full(len(peers), rank)), axis=1)
        outgoing = np.stack((np.full(len(peers), rank), peers), axis=1)
        ends = np.where(endpoints.is_send[:, None], outgoing[endpoints.slot], incoming[endpoints.slot])
        return self._add(ends, endpoints, WORKLOAD)

    def add_custom(self, rank: int, endpoints: Endpoints, members: Any, space: int) -> int:
        """The same for a program of a custom collective, whose peers are places among `members`."""
        peers = members[endpoints.peers][endpoints.slot]
        is_send = endpoints.is_send
        ends = np.stack((np.where(is_send, rank, peers), np.where(is_send, peers, rank)), axis=1)
        return self._add(ends, endpoints, space)

    def _add(self, ends: Any, endpoints: Endpoints, space: int) -> int:
        spaces = np.full(len(ends), space)
        rest = np.stack((endpoints.tag, endpoints.bytes, spaces), axis=1)
        self._keys.append(np.concatenate((ends, rest), axis=1))
        first = self._count
        self._count += len(ends)
        return first

    def _as_sent(self, rank: int, peer: int) -> tuple[int, int]:
        """The channel from `peer` to `rank`, as the peer's representative names it."""
        slot = self._slot(peer, rank)
        if slot is None:
            return peer, rank  # the peer never talks to this rank
        representative = int(self._actors.representative[self._actors.of_rank[peer]])
        template = int(self._workload.template_of_rank[representative])
        targets = self._endpoints[template].ranks(representative, self._workload.ranks)
        return representative, int(targets[slot])

    def _slot(self, rank: int, peer: int) -> int | None:
        """Under which slot a rank knows a peer."""
        template = int(self._workload.template_of_rank[rank])
        endpoints = self._endpoints[template]
        if template not in self._slots:
            self._slots[template] = {value: slot for slot, value in enumerate(endpoints.peers.tolist())}
        value = (peer - rank) % self._workload.ranks if endpoints.relative else peer
        return self._slots[template].get(value)

    def finish(self) -> tuple[Any, Any]:
        """(channel table, the channel of everything added, in order)."""
        keys = np.concatenate(self._keys) if self._keys else np.empty((0, 5), np.int64)
        first, of_endpoint = _distinct(keys)
        unique = keys[first]
        channels = tables.table(tables.CHANNEL, len(unique))
        for column, name in enumerate(("source", "target", "tag", "bytes")):
            channels[name] = unique[:, column]
        channels["handshake"] = _distinct(unique[:, [0, 1, 2, 4]])[1]  # whatever the bytes
        return channels, of_endpoint.astype(np.int32)


def _distinct(keys: Any) -> tuple[Any, Any]:
    """(where each distinct row first occurs, in ascending order of rows; for every row its number)."""
    order = np.lexsort(keys.T[::-1])
    ordered = keys[order]
    new = np.ones(len(keys), bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    number = np.empty(len(keys), np.int64)
    number[order] = np.cumsum(new) - 1
    return order[new], number
