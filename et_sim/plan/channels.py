"""Point-to-point messages: which sends and receives belong together.

A channel is (source, target, tag, bytes); the k-th send on a channel meets its k-th receive, and
nothing else ever matches. All channels are known before the run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.errors import TraceError
from et_sim.plan import tables
from et_sim.trace.columns import Has, NodeKind, Trace
from et_sim.trace.workload import Workload

# The reference folds workload tags into this range.
TAG_RANGE = 500_000_000


def build_channels(workload: Workload, ranks: int, actor_rank: Any) -> tuple[Any, Any, Any]:
    """(channel table, channel of each actor's sends and receives, where each actor's begin)."""
    per_template = [_endpoints(trace) for trace in workload.templates]
    counts = np.array([len(rows) for rows, *_ in per_template], np.int64)
    template_of_actor = workload.template_of_rank[actor_rank]
    first = np.concatenate(([0], np.cumsum(counts[template_of_actor])))
    keys = np.empty((int(first[-1]), 4), np.int64)
    for actor, rank in enumerate(actor_rank):
        rows, is_send, peer, tag, size = per_template[template_of_actor[actor]]
        if not len(rows):
            continue
        trace = workload.templates[template_of_actor[actor]]
        _check_peers(trace, int(rank), rows, peer, ranks)
        span = slice(first[actor], first[actor + 1])
        keys[span, 0] = np.where(is_send, rank, peer)
        keys[span, 1] = np.where(is_send, peer, rank)
        keys[span, 2] = tag
        keys[span, 3] = size
    unique, of_endpoint = np.unique(keys, axis=0, return_inverse=True)
    channels = tables.table(tables.CHANNEL, len(unique))
    for column, name in enumerate(("source", "target", "tag", "bytes")):
        channels[name] = unique[:, column]
    handshakes = np.unique(unique[:, :3], axis=0, return_inverse=True)[1]
    channels["handshake"] = handshakes.reshape(-1)
    return channels, of_endpoint.reshape(-1).astype(np.int32), first[:-1]


def _endpoints(trace: Trace) -> tuple[Any, Any, Any, Any, Any]:
    rows = np.flatnonzero((trace.kind == NodeKind.SEND) | (trace.kind == NodeKind.RECV))
    is_send = trace.kind[rows] == NodeKind.SEND
    peer = np.where(is_send, trace.comm_dst[rows], trace.comm_src[rows])
    return rows, is_send, peer, trace.comm_tag[rows] % TAG_RANGE, trace.comm_bytes[rows]


def _check_peers(trace: Trace, rank: int, rows: Any, peer: Any, ranks: int) -> None:
    outside = np.flatnonzero((peer < 0) | (peer >= ranks))
    if len(outside):
        at = int(rows[outside[0]])
        raise TraceError(
            f"{trace.describe(at)} talks to rank {int(peer[outside[0]])}, and ranks are 0 to {ranks - 1}",
            place=f"rank {rank} ({trace.source})" if trace.source else f"rank {rank}",
            remedy="correct comm_src or comm_dst, or describe a machine with more NPUs",
        )
    is_send = trace.kind[rows] == NodeKind.SEND
    own = np.where(is_send, trace.comm_src[rows], trace.comm_dst[rows])
    bit = np.where(is_send, int(Has.COMM_SRC), int(Has.COMM_DST))
    foreign = np.flatnonzero(((trace.present[rows] & bit) != 0) & (own != rank))
    if len(foreign):
        at = int(rows[foreign[0]])
        raise TraceError(
            f"{trace.describe(at)} names rank {int(own[foreign[0]])} as its own end",
            place=f"rank {rank} ({trace.source})" if trace.source else f"rank {rank}",
            remedy="the source of a send and the target of a receive are the rank itself: leave them out",
        )
