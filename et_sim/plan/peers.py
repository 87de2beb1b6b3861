"""Whom the sends and receives of a template talk to, whichever rank runs it.

The distinct peers of a template are its slots, in the order of their first use; what a slot means depends
on the rank only where peers are given as distances. Errors that depend on the rank are found here for all
ranks at once.

Not here: which sends meet which receives (`channels`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.basics.errors import TraceError
from et_sim.trace.columns import TAG_RANGE, NodeKind, Trace
from et_sim.trace.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class Endpoints:
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
    messages = (trace.kind == NodeKind.SEND) | (trace.kind == NodeKind.RECV)
    rows = np.flatnonzero(messages & ~trace.is_unsized)
    is_send = trace.kind[rows] == NodeKind.SEND
    peer = np.where(is_send, trace.comm_dst[rows], trace.comm_src[rows]).astype(np.int64)
    if relative:
        peer %= ranks
    distinct, first, slot = np.unique(peer, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return Endpoints(
        rows=rows,
        is_send=is_send,
        slot=place[slot.reshape(-1)],
        tag=trace.comm_tag[rows] % TAG_RANGE,
        bytes=trace.comm_bytes[rows],
        peers=distinct[order],
        relative=relative,
    )


def endpoints_of_templates(workload: Workload, *, communicates: bool) -> list[Endpoints]:
    """The checked endpoints of every template of a workload; none if nobody communicates."""
    if not communicates:
        nobody = np.zeros(0, np.int64)
        nothing = Endpoints(nobody, nobody > 0, nobody, nobody, nobody, nobody, relative=False)
        return [nothing] * len(workload.templates)
    lowest = _lowest_ranks(workload)
    found = []
    for template, trace in enumerate(workload.templates):
        relative = workload.has_relative_peers(template)
        endpoints = find_endpoints(trace, relative, workload.ranks)
        if len(endpoints.rows):
            rank = int(lowest[template])
            if not relative:
                check_peers(trace, rank_place(rank, trace), endpoints, workload.ranks)
            _check_own_end(workload, template, endpoints, rank)
        found.append(endpoints)
    return found


def _lowest_ranks(workload: Workload) -> Any:
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
    own = np.where(is_send, trace.comm_src[rows], trace.comm_dst[rows])
    given = np.flatnonzero(np.where(is_send, trace.has("comm_src", rows), trace.has("comm_dst", rows)))
    if not len(given):
        return
    right = 0 if endpoints.relative else lowest
    foreign = given[own[given] != right]
    rank = lowest
    if not len(foreign) and not endpoints.relative:
        others = np.flatnonzero(workload.template_of_rank == template)[1:2]
        foreign, rank = (given, int(others[0])) if len(others) else (foreign, rank)
    if len(foreign):
        at = int(rows[foreign[0]])
        raise TraceError(
            f"{trace.describe(at)} names rank {int(own[foreign[0]])} as its own end",
            place=rank_place(rank, trace),
            remedy="the source of a send and the target of a receive are the rank itself: leave them out",
        )
