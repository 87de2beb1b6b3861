"""Expansion of a workload of templates to ordinary traces: peers become ranks, and groups become lists.

Distances and rules of a template are resolved rank by rank, so that the files of many ranks can be written
without all traces in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.errors import TraceError
from et_sim.trace.columns import NodeKind, RowColumn, Trace
from et_sim.trace.group_attributes import read_process_groups
from et_sim.trace.workload import Workload


class Expansion:
    """The traces of a workload's ranks, computed on demand."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._described: list[Mapping[str, Any]] = [
            read_process_groups(trace) if workload.group_rules else {} for trace in workload.templates
        ]
        self._first_number = _first_numbers(workload, self._described)

    @property
    def groups(self) -> dict[str, Sequence[int]]:
        """Return the members of every group that follows a rule, by its number."""
        groups = {}
        for name, rule in self._workload.group_rules.items():
            first = self._first_number[name]
            for index, lowest in enumerate(rule.groups(self._workload.ranks)[:, 0].tolist()):
                groups[str(first + index)] = rule.members(lowest)
        return groups

    @property
    def rule_of_group(self) -> dict[str, tuple[str, int]]:
        """Return the rule of each of these groups, and its index in the rule, counted from 0."""
        return {
            str(self._first_number[name] + index): (name, index)
            for name, rule in self._workload.group_rules.items()
            for index in range(rule.number(self._workload.ranks))
        }

    def trace(self, rank: int) -> Trace:
        """Return the trace of a rank as its own file would hold it."""
        workload = self._workload
        template = int(workload.template_of_rank[rank])
        trace = workload.templates[template]
        if workload.has_relative_peers(template):
            trace = _with_peers(trace, rank, workload.ranks)
        names = tuple(self.number(name, rank, template) for name in trace.group_names)
        return trace if names == trace.group_names else replace(trace, group_names=names)

    def variant(self, rank: int) -> tuple[int, ...]:
        """Return a key of a rank; ranks of equal keys have equal traces."""
        workload = self._workload
        template = int(workload.template_of_rank[rank])
        trace = workload.templates[template]
        rules = (
            rule
            for name, rule in workload.group_rules.items()
            if name in trace.group_names and name not in self._described[template]
        )
        rank_of_peers = rank if workload.has_relative_peers(template) and len(peer_rows(trace)) else -1
        return template, rank_of_peers, *(rule.index(rank) for rule in rules)

    def number(self, name: str, rank: int, template: int) -> str:
        """Return the new name of a group; descriptions in the trace have priority over rules."""
        rule = self._workload.group_rules.get(name)
        if rule is None or name in self._described[template]:
            return name
        if not rule.has(rank):
            raise TraceError(
                f'rank {rank} names group "{name}" ({rule}) and is in none of its groups',
                place=self._workload.templates[template].source or self._workload.source,
                remedy="correct the rule or the node's pg_name, or give the rank another template",
            )
        return str(self._first_number[name] + rule.index(rank))


def peer_rows(trace: Trace) -> RowColumn:
    """Return the nodes that have a peer."""
    return np.flatnonzero((trace.kind == NodeKind.SEND) | (trace.kind == NodeKind.RECV)).astype(np.int32)


def _with_peers(trace: Trace, rank: int, ranks: int) -> Trace:
    """Replace distances by ranks; the own end of a message, if a node names it, is a distance too."""
    rows = peer_rows(trace)
    if not len(rows):
        return trace
    source, target = trace.comm_src.copy(), trace.comm_dst.copy()
    for column, name in ((source, "comm_src"), (target, "comm_dst")):
        given = rows[trace.has(name, rows)]
        column[given] = (column[given].astype(np.int64) + rank) % ranks
    return replace(trace, comm_src=source, comm_dst=target)


def with_distances(trace: Trace, rank: int, ranks: int) -> tuple[Trace, bytes]:
    """Replace ranks by distances from a rank; return the trace, and the distances for comparisons."""
    rows, ends = peer_rows(trace), {}
    for name in ("comm_src", "comm_dst"):
        ends[name] = getattr(trace, name).copy()
        given = rows[trace.has(name, rows)]
        ends[name][given] = (ends[name][given].astype(np.int64) - rank) % ranks
    return replace(trace, **ends), b"".join(column[rows].tobytes() for column in ends.values())


def _first_numbers(workload: Workload, described: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of the first group of every rule, above all numbers that traces use."""
    named = {
        int(name)
        for trace, groups_of_trace in zip(workload.templates, described, strict=True)
        for name in (*trace.group_names, *groups_of_trace)
        if name.isascii() and name.isdecimal() and len(name) < 19 and name not in workload.group_rules
    }
    following = max(named, default=0) + 1
    numbers = {}
    for name, rule in workload.group_rules.items():
        numbers[name] = following
        following += rule.number(workload.ranks)
    return numbers
