"""Whole workloads without distances and rules, rank by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import structs

from et_sim.trace.columns import Trace
from et_sim.trace.expansion import Expansion
from et_sim.trace.workload import Workload


class Expanded(NamedTuple):
    """A workload without distances and rules, and the groups that its groups file must list."""

    workload: Workload
    groups: Mapping[str, Sequence[int]]


def expanded(workload: Workload) -> Expanded:
    """Return the whole workload without distances and rules; ranks with equal traces share one."""
    expansion = Expansion(workload)
    if not any(workload.relative_peers) and not workload.group_rules:
        return Expanded(workload, {})
    number_of: dict[tuple[int, ...], int] = {}
    traces: list[Trace] = []
    of_rank = np.empty(workload.ranks, np.int32)
    for rank in range(workload.ranks):
        number = number_of.setdefault(expansion.variant(rank), len(traces))
        if number == len(traces):
            traces.append(expansion.trace(rank))
        of_rank[rank] = number
    whole = structs.replace(
        workload,
        templates=tuple(traces),
        template_of_rank=of_rank,
        relative_peers=(),
        group_rules={},
    )
    return Expanded(whole, expansion.groups)
