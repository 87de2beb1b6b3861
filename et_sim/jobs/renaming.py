"""A trace of a job as one of the run: peers, roots and groups are those of the NPUs that the job runs on.

The group of all ranks of a job is called like the job, its group 7 JOB/7. Not here: which NPUs these are
(`placement`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from et_sim.basics.errors import TraceError
from et_sim.basics.group_names import group_key
from et_sim.trace.builder_nodes import ROOT_COLUMN
from et_sim.trace.columns import NodeKind, RowColumn, Trace
from et_sim.trace.process_groups import ALL_RANKS, process_group_text, read_process_groups
from et_sim.trace.workload import Job


class Renaming:
    """What the ranks and groups of a job are in a run on so many NPUs."""

    def __init__(self, job: Job, npus: int, labels: Mapping[str, str]) -> None:
        """`labels`: names of groups that are called otherwise."""
        self._job, self._labels = job, labels
        self._spans_system = len(job.npus) == npus

    def group(self, name: str) -> str:
        """The name of a group of the job."""
        key = group_key(name)
        if key:
            return f"{self._job.name}/{self._labels.get(key, key)}"
        return "" if self._spans_system else self._job.name

    def members(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """The NPUs of ranks, all of which the job has."""
        return tuple(self._job.npus[np.array(ranks, np.int64)].tolist())

    def trace(self, trace: Trace) -> Trace:
        """The trace as a rank of the job runs it; its peers are ranks of the job."""
        ends = {}
        for name, has_peer in (("comm_src", NodeKind.RECV), ("comm_dst", NodeKind.SEND)):
            ends[name] = getattr(trace, name).copy()
            rows = np.flatnonzero(_names_peer(trace, name, has_peer) | _names_root(trace, name))
            ends[name][rows] = self._placed(trace, rows, ends[name][rows])
        number: dict[str, int] = {"": 0}
        of_name = [number.setdefault(self.group(name), len(number)) for name in trace.group_names]
        return replace(
            trace,
            **ends,
            group=np.array(of_name, np.int32)[trace.group],
            group_names=tuple(number),
            metadata_text=self._metadata(trace),
            start_ns=trace.start_ns + self._job.start_ns,
        )

    def _placed(self, trace: Trace, rows: Any, ranks: RowColumn) -> Any:
        count = len(self._job.npus)
        outside = np.flatnonzero((ranks < 0) | (ranks >= count))
        if len(outside):
            at = outside[0]
            raise TraceError(
                f"{trace.describe(int(rows[at]))} names rank {int(ranks[at])}, and job"
                f' "{self._job.name}" has ranks 0 to {count - 1}',
                place=trace.source,
                remedy="correct comm_src or comm_dst, or give the job the traces of all its ranks",
            )
        return self._job.npus[ranks]

    def _metadata(self, trace: Trace) -> dict[int, str]:
        """What the trace says about its groups, in one of the places where it says something."""
        described = read_process_groups(trace)
        if not described:
            return trace.metadata_text
        count = len(self._job.npus)
        groups = {}
        for name, ranks in described.items():
            members = range(count) if ranks == ALL_RANKS else ranks
            beyond = [rank for rank in members if not 0 <= rank < count]
            if beyond or (not name and len(members) != count):
                what = f"rank {beyond[0]}" if beyond else f"{len(members)} ranks"
                raise TraceError(
                    f'process group "{name or 0}" lists {what}, and job "{self._job.name}" has ranks 0 to'
                    f" {count - 1}",
                    place=trace.source,
                    remedy="give the job the traces of all its ranks, or correct the trace's metadata",
                )
            if name:
                groups[self.group(name)] = self.members(members)
        row = min(trace.metadata_text)
        return {row: process_group_text(groups)} if groups else {}


def _names_peer(trace: Trace, name: str, has_peer: NodeKind) -> Any:
    """Sends and receives that name a rank there: the peer, or their own end if they say so."""
    is_peer = trace.kind == has_peer
    is_message = (trace.kind == NodeKind.SEND) | (trace.kind == NodeKind.RECV)
    return is_message & (is_peer | trace.has(name)) & ~trace.is_unsized


def _names_root(trace: Trace, name: str) -> Any:
    """Collectives whose root stands there."""
    kinds = [kind for kind, column in ROOT_COLUMN.items() if column == name]
    return (trace.kind == NodeKind.COLL) & np.isin(trace.comm_type, kinds) & trace.has(name)
