"""Point-to-point messages: the peers of sends and receives, and the matching of the two.

The distinct peers of a template are its slots, in the order of their first use; the peer of a slot depends on
the rank only where peers are given as distances. Errors that depend on the rank are found here for all ranks
at once.

A channel is (source, target, tag, bytes); the k-th send on a channel matches its k-th receive, and nothing
else. All channels are known before the run. Custom collectives send on the same channels as the workload,
unless they have a space of their own.

Where an actor represents several ranks, a channel represents those of all its ranks, and is named by the
source actor's representative and the rank that this one sends to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.basics.unique import groups_of, in_order_of_first, unique
from et_sim.plan import records
from et_sim.plan.members import Actors
from et_sim.trace.columns import TAG_RANGE, NodeKind, Trace
from et_sim.trace.stack import Stack, stack_of
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
        """Return the peer of each slot for a rank."""
        return (self.peers + rank) % ranks if self.relative else self.peers


class EndpointTable(Sequence[Endpoints]):
    """The endpoints of every template, as columns."""

    def __init__(self, parts: Sequence[tuple[Any, ...]], relative: Any) -> None:
        """Join parts of counts of endpoints and of peers, columns of endpoints, and peers."""
        self.counts, self.slots, self.rows, self.is_send, self.slot, self.tag, self.bytes, self.peers = (
            np.concatenate(column) for column in zip(*parts, strict=True)
        )
        self.first, self.slot_first = (np.cumsum(counts) - counts for counts in (self.counts, self.slots))
        self.relative = relative  # by template: peers are given as distances

    @staticmethod
    def nothing(templates: int) -> EndpointTable:
        """Return the table of templates that do not communicate."""
        none, empty = np.zeros(templates, np.int64), np.zeros(0, np.int64)
        part = (none, none, empty, empty > 0, empty, empty, empty, empty)
        return EndpointTable([part], np.zeros(templates, np.bool_))

    def __len__(self) -> int:
        return len(self.counts)

    @overload
    def __getitem__(self, template: int) -> Endpoints: ...
    @overload
    def __getitem__(self, template: slice) -> Sequence[Endpoints]: ...
    def __getitem__(self, template: int | slice) -> Endpoints | Sequence[Endpoints]:
        if isinstance(template, slice):
            return [self[number] for number in range(*template.indices(len(self)))]
        if not 0 <= template < len(self):
            raise IndexError(template)
        first, slot_first = int(self.first[template]), int(self.slot_first[template])
        which = slice(first, first + int(self.counts[template]))
        return Endpoints(
            rows=self.rows[which],
            is_send=self.is_send[which],
            slot=self.slot[which],
            tag=self.tag[which],
            bytes=self.bytes[which],
            peers=self.peers[slot_first : slot_first + int(self.slots[template])],
            relative=bool(self.relative[template]),
        )

    def of(self, templates: Any) -> tuple[Any, Any]:
        """Return the rows of the endpoints of templates, one template after the other, and the index of each
        one's template.
        """
        counts = self.counts[templates]
        which = np.repeat(np.arange(len(templates)), counts)
        before = self.first[templates] - (np.cumsum(counts) - counts)
        return np.arange(len(which)) + before[which], which


def find_endpoints(trace: Trace, relative: bool = False, ranks: int = 1) -> Endpoints:
    """Return the sends and receives of a template; distances are taken modulo the number of ranks."""
    is_relative = np.array([relative])
    return EndpointTable([_endpoints(stack_of([trace]), is_relative, ranks)], is_relative)[0]


def _endpoints(stack: Stack, relative: Any, ranks: int) -> tuple[Any, ...]:
    """Return the endpoints of traces as a part of an `EndpointTable`; `relative`: peers are distances."""
    trace = stack.trace
    messages = (trace.kind == NodeKind.SEND) | (trace.kind == NodeKind.RECV)
    rows = np.flatnonzero(messages & ~trace.is_unsized)
    of = stack.of_row[rows]
    is_send = trace.kind[rows] == NodeKind.SEND
    peer = np.where(is_send, trace.comm_dst[rows], trace.comm_src[rows]).astype(np.int64)
    peer = np.where(relative[of], peer % ranks, peer)
    first, slot = in_order_of_first((of << _PEER_BITS) + peer)
    bounds = np.searchsorted(of, np.arange(len(stack) + 1))
    slots = np.searchsorted(first, bounds)
    return (
        np.diff(bounds),
        np.diff(slots),
        rows - stack.first[of],
        is_send,
        slot - slots[of],
        trace.comm_tag[rows] % TAG_RANGE,
        trace.comm_bytes[rows],
        peer[first],
    )


def endpoints_of_templates(workload: Workload, *, communicates: bool) -> EndpointTable:
    """Return the checked endpoints of every template of a workload; none if no template communicates."""
    if not communicates or not len(workload.templates):
        return EndpointTable.nothing(len(workload.templates))
    lowest, relative, parts = lowest_ranks(workload), workload.are_relative, []
    for stack in workload.stacks():
        parts.append(_endpoints(stack, stack.share(relative), workload.ranks))
        doubtful = _doubtful(workload, stack, lowest)
        of_stack = EndpointTable(parts[-1:], stack.share(relative)) if doubtful else None
        for template in doubtful:
            assert of_stack is not None
            endpoints = of_stack[template - stack.number]
            trace, rank = workload.templates[template], int(lowest[template])
            if not endpoints.relative:
                check_peers(trace, rank_place(rank, trace), endpoints, workload.ranks)
            _check_own_end(workload, template, endpoints, rank)
    return EndpointTable(parts, relative)


def _doubtful(workload: Workload, stack: Stack, lowest: Any) -> list[int]:
    """Return templates with a peer that may not exist, or with an end that may be another rank."""
    trace = stack.trace
    is_send = trace.kind == NodeKind.SEND
    messages = (is_send | (trace.kind == NodeKind.RECV)) & ~trace.is_unsized
    peer = np.where(is_send, trace.comm_dst, trace.comm_src)
    named_end = np.where(is_send, trace.comm_src, trace.comm_dst)
    given = np.where(is_send, trace.has("comm_src"), trace.has("comm_dst"))
    runs = stack.share(workload.ranks_per_template)
    rank = np.where(runs == 1, stack.share(lowest), -1)  # a template of several ranks cannot name its own end
    is_right = (peer >= 0) & (peer < workload.ranks) & (~given | (named_end == stack.spread(rank)))
    return [stack.number + at for at in unique(stack.of_row[messages & ~is_right]).tolist()]


def lowest_ranks(workload: Workload) -> Any:
    """Return the lowest rank that runs each template; 0 where none does."""
    lowest = np.zeros(len(workload.templates), np.int64)
    used, first = np.unique(workload.template_of_rank, return_index=True)
    lowest[used] = first
    return lowest


def rank_place(rank: int, trace: Trace) -> str:
    """Return the name of a rank's program in errors."""
    return f"rank {rank} ({trace.source})" if trace.source else f"rank {rank}"


def check_peers(trace: Trace, place: str, endpoints: Endpoints, ranks: int) -> None:
    """Refuse peers that do not exist."""
    peer = endpoints.peers[endpoints.slot]
    outside = np.flatnonzero((peer < 0) | (peer >= ranks))
    if len(outside):
        at = int(endpoints.rows[outside[0]])
        raise TraceError(
            f"{trace.describe(at)} names peer {int(peer[outside[0]])}; ranks are 0 to {ranks - 1}",
            place=place,
            remedy="correct comm_src or comm_dst, or describe a machine with more NPUs",
        )


def _check_own_end(workload: Workload, template: int, endpoints: Endpoints, lowest: int) -> None:
    """Check that a node that names its own end names the rank that runs it."""
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


NONE = -1
WORKLOAD = 0  # the space of the workload's own messages


class ChannelTables:
    """The sends and receives of programs, collected; `finish` returns the channel of each one."""

    def __init__(self, workload: Workload, endpoints: EndpointTable, actors: Actors) -> None:
        self._workload = workload
        self._endpoints = endpoints
        self._actors = actors
        self._slots: dict[int, dict[int, int]] = {}  # per template: slot by peer
        self._keys: list[tuple[Any, ...]] = []  # columns: source, target, tag, bytes, space
        self._count = 0

    def add_actors(self) -> Any:
        """Add what the actors send and receive; return where the channels of each begin."""
        endpoints, ranks = self._endpoints, self._workload.ranks
        template = self._workload.template_of_rank[self._actors.representative]
        at, actor = endpoints.of(template)
        rank, is_send = self._actors.representative.astype(np.int64)[actor], endpoints.is_send[at]
        peer = endpoints.peers[endpoints.slot_first[template][actor] + endpoints.slot[at]]
        peer = np.where(endpoints.relative[template][actor], (peer + rank) % ranks, peer)
        source, target = np.where(is_send, rank, peer), np.where(is_send, peer, rank)
        received = np.flatnonzero(~is_send)
        if self._actors.is_folded and len(received):
            pairs = groups_of(source[received], target[received])
            firsts = received[pairs.first]
            as_sent = list(map(self._as_sent, target[firsts].tolist(), source[firsts].tolist()))
            source[received], target[received] = np.array(as_sent, np.int64)[pairs.of_row].T
        first = self._count + np.cumsum(endpoints.counts[template]) - endpoints.counts[template]
        self._add(source, target, endpoints.tag[at], endpoints.bytes[at], WORKLOAD)
        return first

    def add_custom(self, rank: int, endpoints: Endpoints, members: Any, space: int) -> int:
        """Add a program of a custom collective, whose peers are places among `members`; return its first
        channel.
        """
        peers = members[endpoints.peers][endpoints.slot]
        is_send = endpoints.is_send
        source, target = np.where(is_send, rank, peers), np.where(is_send, peers, rank)
        return self._add(source, target, endpoints.tag, endpoints.bytes, space)

    def _add(self, source: Any, target: Any, tag: Any, size: Any, space: int) -> int:
        self._keys.append((source, target, tag, size, np.full(len(tag), space)))
        first = self._count
        self._count += len(tag)
        return first

    def _as_sent(self, rank: int, peer: int) -> tuple[int, int]:
        """Return the channel from `peer` to `rank`, as the peer's representative names it."""
        slot = self._slot(peer, rank)
        if slot is None:
            return peer, rank  # the peer never sends to this rank
        representative = int(self._actors.representative[self._actors.of_rank[peer]])
        template = int(self._workload.template_of_rank[representative])
        targets = self._endpoints[template].ranks(representative, self._workload.ranks)
        return representative, int(targets[slot])

    def _slot(self, rank: int, peer: int) -> int | None:
        """Return the slot of a rank for a peer, or None if the rank has no such peer."""
        template = int(self._workload.template_of_rank[rank])
        endpoints = self._endpoints[template]
        if template not in self._slots:
            self._slots[template] = {value: slot for slot, value in enumerate(endpoints.peers.tolist())}
        value = (peer - rank) % self._workload.ranks if endpoints.relative else peer
        return self._slots[template].get(value)

    def finish(self, *, rendezvous: bool) -> tuple[Any, Any]:
        """Return the channel table, and the channel of every endpoint in the order of addition."""
        keys = [np.concatenate(column) for column in zip(*self._keys, strict=True)]
        endpoints = groups_of(*keys)
        source, target, tag, size, space = (column[endpoints.first] for column in keys)
        channels = records.table(records.CHANNEL, len(endpoints))
        channels["source"], channels["target"] = source, target
        channels["tag"], channels["bytes"] = tag, size
        channels["handshake"] = groups_of(source, target, tag, space).of_row if rendezvous else NONE
        return channels, endpoints.of_row.astype(np.int32)
