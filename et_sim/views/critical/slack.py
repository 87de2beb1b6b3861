"""Slack: how much later every node could complete without making the run any longer.

As long as all things keep their order: it is exact for one node at a time, and a bound where its delay lets
others overtake it. Not here: the critical path, all of whose nodes have none (`path`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.views.critical.path import operation_of
from et_sim.views.critical.record import PathRecord


@dataclass(frozen=True, slots=True)
class OperationSlack:
    """Slack of nodes alike, on all actors."""

    kind: str
    name: str
    group: str | None
    nodes: int
    critical: int  # how many have none
    least_ns: int
    median_ns: int


def slack_of_nodes(record: PathRecord) -> tuple[Any, Any]:
    """(rows of `record.nodes`, their slack in ns), in the order in which the nodes complete."""
    return record.slack


def slack_of_operations(record: PathRecord) -> list[OperationSlack]:
    """One entry per operation, the one with the least slack first."""
    rows, slack = slack_of_nodes(record)
    nodes = record.nodes
    shape = (len(nodes.kind.texts), len(nodes.stem.texts), len(nodes.group.texts))
    code = np.ravel_multi_index((nodes.kind.codes, nodes.stem.codes, nodes.group.codes), shape)[rows]
    order = np.lexsort((slack, code))
    firsts = np.flatnonzero(np.diff(code[order], prepend=-1))
    found = []
    for of_one in np.split(order, firsts[1:]) if len(order) else []:
        kind, name, group = operation_of(nodes, int(rows[of_one[0]]))
        own = slack[of_one]
        found.append(
            OperationSlack(
                kind, name, group, len(own), int((own == 0).sum()), int(own[0]), int(own[len(own) // 2])
            )
        )
    return sorted(found, key=lambda one: (one.least_ns, one.median_ns, one.kind, one.name, one.group or ""))
