"""Point-to-point messages: which sends and receives belong together.

A channel is (source, target, tag, bytes); the k-th send on a channel meets its k-th receive, and
nothing else ever matches. All channels are known before the run. Custom collectives send on the same
channels as the workload.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.errors import TraceError
from et_sim.plan import tables
from et_sim.trace.columns import TAG_RANGE, Has, NodeKind, Trace


class ChannelTables:
    """Collects the sends and receives of programs; `finish` says which channel each one uses."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._endpoints: dict[int, tuple[Any, ...]] = {}  # by trace
        self._traces: list[Trace] = []  # keeps the keys above alive
        self._keys: list[Any] = []
        self._count = 0

    def add(self, rank: int, trace: Trace, members: Any = None) -> int:
        """Add what a rank that runs `trace` sends and receives; returns where its channels begin.

        With `members`, the trace's peers are places in that list of ranks.
        """
        if id(trace) not in self._endpoints:
            self._endpoints[id(trace)] = _endpoints(trace)
            self._traces.append(trace)
        rows, is_send, peer, tag, size = self._endpoints[id(trace)]
        first = self._count
        if len(rows):
            place = f"rank {rank} ({trace.source})" if trace.source else f"rank {rank}"
            _check_peers(trace, place, rows, peer, self._ranks if members is None else len(members))
            if members is None:
                _check_own_end(trace, place, rank, rows)
            else:
                peer = members[peer]
            ends = (np.where(is_send, rank, peer), np.where(is_send, peer, rank))
            self._keys.append(np.stack((*ends, tag, size), axis=1))
            self._count += len(rows)
        return first

    def finish(self) -> tuple[Any, Any]:
        """(channel table, the channel of everything added, in order)."""
        keys = np.concatenate(self._keys) if self._keys else np.empty((0, 4), np.int64)
        unique, of_endpoint = np.unique(keys, axis=0, return_inverse=True)
        channels = tables.table(tables.CHANNEL, len(unique))
        for column, name in enumerate(("source", "target", "tag", "bytes")):
            channels[name] = unique[:, column]
        handshakes = np.unique(unique[:, :3], axis=0, return_inverse=True)[1]
        channels["handshake"] = handshakes.reshape(-1)
        return channels, of_endpoint.reshape(-1).astype(np.int32)


def _endpoints(trace: Trace) -> tuple[Any, Any, Any, Any, Any]:
    rows = np.flatnonzero((trace.kind == NodeKind.SEND) | (trace.kind == NodeKind.RECV))
    is_send = trace.kind[rows] == NodeKind.SEND
    peer = np.where(is_send, trace.comm_dst[rows], trace.comm_src[rows]).astype(np.int64)
    return rows, is_send, peer, trace.comm_tag[rows] % TAG_RANGE, trace.comm_bytes[rows]


def _check_peers(trace: Trace, place: str, rows: Any, peer: Any, ranks: int) -> None:
    outside = np.flatnonzero((peer < 0) | (peer >= ranks))
    if len(outside):
        at = int(rows[outside[0]])
        raise TraceError(
            f"{trace.describe(at)} talks to rank {int(peer[outside[0]])}, and ranks are 0 to {ranks - 1}",
            place=place,
            remedy="correct comm_src or comm_dst, or describe a machine with more NPUs",
        )


def _check_own_end(trace: Trace, place: str, rank: int, rows: Any) -> None:
    is_send = trace.kind[rows] == NodeKind.SEND
    own = np.where(is_send, trace.comm_src[rows], trace.comm_dst[rows])
    bit = np.where(is_send, int(Has.COMM_SRC), int(Has.COMM_DST))
    foreign = np.flatnonzero(((trace.present[rows] & bit) != 0) & (own != rank))
    if len(foreign):
        at = int(rows[foreign[0]])
        raise TraceError(
            f"{trace.describe(at)} names rank {int(own[foreign[0]])} as its own end",
            place=place,
            remedy="the source of a send and the target of a receive are the rank itself: leave them out",
        )
