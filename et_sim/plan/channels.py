"""Point-to-point messages: whom sends and receives name, and which of them belong together.

The distinct peers of a template are its slots, in the order of their first use; what a slot means depends
on the rank only where peers are given as distances. Errors that depend on the rank are found here for all
ranks at once.

A channel is (source, target, tag, bytes); the k-th send on a channel meets its k-th receive, and nothing
else ever matches. All channels are known before the run. Custom collectives send on the same channels as
the workload, unless they have a space of their own.

Where an actor stands for several ranks, a channel stands for those of all its ranks, and is named by the
source actor's representative and the rank that this one sends to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.basics.unique import unique
from et_sim.plan import records
from et_sim.plan.members import Actors
from et_sim.trace.columns import TAG_RANGE, NodeKind, Trace
from et_sim.trace.stack import Stack, stacks
from et_sim.trace.workload import Workload

_PEER_BITS = 33


class Endpoints(Struct, frozen=True, eq=False):
    """Sends and receives of a template, in row order."""

    rows: Any
    is_send: Any
    slot: Any  # per endpoint
    tag: Any
    bytes: Any
    peers: Any  # per slot: a rank, or a distance
    relative: bool

    def ranks(self, rank: int, ranks: int) -> Any:
        """The rank that each slot means to `rank`."""
        return (self.peers + rank) % ranks if self.relative else self.peers


def find_endpoints(trace: Trace, relative: bool = False, ranks: int = 1) -> Endpoints:
    """The sends and receives of a template; distances are taken modulo the number of ranks."""
    return _endpoints(next(stacks([trace])), [relative], ranks)[0]


def _endpoints(stack: Stack, relative: Sequence[bool], ranks: int) -> list[Endpoints]:
    """Those of each of the traces; `relative`: whether it names peers by their distance."""
    trace = stack.trace
    messages = (trace.kind == NodeKind.SEND) | (trace.kind == NodeKind.RECV)
    rows = np.flatnonzero(messages & ~trace.is_unsized)
    of = stack.of_row[rows]
    is_send = trace.kind[rows] == NodeKind.SEND
    peer = np.where(is_send, trace.comm_dst[rows], trace.comm_src[rows]).astype(np.int64)
    peer = np.where(np.array(relative, np.bool_)[of], peer % ranks, peer)
    first, slot = records.in_order_of_first((of << _PEER_BITS) + peer)
    tag, size, peer = trace.comm_tag[rows] % TAG_RANGE, trace.comm_bytes[rows], peer[first]
    bounds = np.searchsorted(of, np.arange(len(stack) + 1)).tolist()
    slots = np.searchsorted(first, bounds).tolist()
    return [
        Endpoints(
            rows=rows[begin:end] - int(row),
            is_send=is_send[begin:end],
            slot=slot[begin:end] - of_slot,
            tag=tag[begin:end],
            bytes=size[begin:end],
            peers=peer[of_slot:until],
            relative=is_relative,
        )
        for row, (begin, end), (of_slot, until), is_relative in zip(
            stack.first[:-1].tolist(), pairwise(bounds), pairwise(slots), relative, strict=True
        )
    ]


def endpoints_of_templates(workload: Workload, *, communicates: bool) -> list[Endpoints]:
    """The checked endpoints of every template of a workload; none if nobody communicates."""
    if not communicates:
        nobody = np.zeros(0, np.int64)
        nothing = Endpoints(nobody, nobody > 0, nobody, nobody, nobody, nobody, relative=False)
        return [nothing] * len(workload.templates)
    lowest = lowest_ranks(workload)
    every: list[Endpoints] = []
    for stack in stacks(workload.templates):
        relative = [workload.has_relative_peers(template) for template in stack.numbers]
        every += _endpoints(stack, relative, workload.ranks)
        for template in _doubtful(workload, stack, lowest):
            trace, endpoints, rank = workload.templates[template], every[template], int(lowest[template])
            if not endpoints.relative:
                check_peers(trace, rank_place(rank, trace), endpoints, workload.ranks)
            _check_own_end(workload, template, endpoints, rank)
    return every


def _doubtful(workload: Workload, stack: Stack, lowest: Any) -> list[int]:
    """Templates with a peer that may not exist, or an end that may be foreign, as far as nodes show it."""
    trace = stack.trace
    is_send = trace.kind == NodeKind.SEND
    messages = (is_send | (trace.kind == NodeKind.RECV)) & ~trace.is_unsized
    peer = np.where(is_send, trace.comm_dst, trace.comm_src)
    named_end = np.where(is_send, trace.comm_src, trace.comm_dst)
    given = np.where(is_send, trace.has("comm_src"), trace.has("comm_dst"))
    runs = np.bincount(workload.template_of_rank, minlength=len(workload.templates))[stack.numbers]
    rank = np.where(runs == 1, lowest[stack.numbers], -1)  # of several ranks, each is another end
    is_right = (peer >= 0) & (peer < workload.ranks) & (~given | (named_end == stack.spread(rank)))
    return [stack.number + at for at in unique(stack.of_row[messages & ~is_right]).tolist()]


def lowest_ranks(workload: Workload) -> Any:
    """Of every template, the lowest rank that runs it; 0 where none does."""
    lowest = np.zeros(len(workload.templates), np.int64)
    used, first = np.unique(workload.template_of_rank, return_index=True)
    lowest[used] = first
    return lowest


def rank_place(rank: int, trace: Trace) -> str:
    """How errors name a rank's program."""
    return f"rank {rank} ({trace.source})" if trace.source else f"rank {rank}"


def check_peers(trace: Trace, place: str, endpoints: Endpoints, ranks: int) -> None:
    """Refuse peers that do not exist."""
    peer = endpoints.peers[endpoints.slot]
    outside = np.flatnonzero((peer < 0) | (peer >= ranks))
    if len(outside):
        at = int(endpoints.rows[outside[0]])
        raise TraceError(
            f"{trace.describe(at)} talks to rank {int(peer[outside[0]])}, and ranks are 0 to {ranks - 1}",
            place=place,
            remedy="correct comm_src or comm_dst, or describe a machine with more NPUs",
        )


def _check_own_end(workload: Workload, template: int, endpoints: Endpoints, lowest: int) -> None:
    """Where a node names its own end, too, that must be the rank that runs it."""
    trace, rows, is_send = workload.templates[template], endpoints.rows, endpoints.is_send
    named_end = np.where(is_send, trace.comm_src[rows], trace.comm_dst[rows])
    given = np.flatnonzero(np.where(is_send, trace.has("comm_src", rows), trace.has("comm_dst", rows)))
    if not len(given):
        return
    right = 0 if endpoints.relative else lowest
    foreign = given[named_end[given] != right]
    rank = lowest
    if not len(foreign) and not endpoints.relative:
        others = np.flatnonzero(workload.template_of_rank == template)[1:2]
        foreign, rank = (given, int(others[0])) if len(others) else (foreign, rank)
    if len(foreign):
        at = int(rows[foreign[0]])
        raise TraceError(
            f"{trace.describe(at)} names rank {int(named_end[foreign[0]])} as its own end",
            place=rank_place(rank, trace),
            remedy="the source of a send and the target of a receive are the rank itself: leave them out",
        )


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
        channels = records.table(records.CHANNEL, len(unique))
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
