"""Local memory over time: rows of the timeline and the tensors that their nodes name, as changes of what is
alive.

Not here: how long tensors live (`et_sim.memory`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.unique import unique
from et_sim.memory import Accesses, Changes, changes, classes_of, lifetimes
from et_sim.plan.records import Plan
from et_sim.timeline.rows import Rows
from et_sim.trace.order import settle

EVENTS = ("given", "written", "released")
GIVEN, WRITTEN, RELEASED = range(3)


class MemorySource:
    """Makes changes of memory from blocks of rows, if memory is tracked."""

    def __init__(self, plan: Plan) -> None:
        number: dict[str, int] = {}
        tensor, sizes, is_write, counts = [], [], [], []
        nodes_of_template = plan.templates["nodes"][: len(plan.tensors)].tolist()
        for uses, nodes in zip(plan.tensors, nodes_of_template, strict=True):
            of_text = np.zeros(len(uses.names), np.int32)
            for text in unique(uses.tensor).tolist():
                of_text[text] = number.setdefault(uses.names[text], len(number))
            tensor.append(of_text[uses.tensor])
            sizes.append(uses.bytes)
            is_write.append(uses.is_write)
            counts.append(np.bincount(uses.row, minlength=nodes))
        self.names = tuple(number)
        self.classes = classes_of(self.names)  # indices into CLASSES
        self._tensor, self._bytes, self._is_write = (np.concatenate(c) for c in (tensor, sizes, is_write))
        self._count = np.concatenate(counts)
        self._first = np.cumsum(self._count) - self._count
        self._place = _places(plan)

    def changes(self, rows: Rows) -> Changes:
        """What becomes alive and what is released in a block that holds all rows of its actors."""
        done = np.flatnonzero(rows.end_ns >= 0)
        count = self._count[rows.at[done]]
        node = np.repeat(done, count)
        begin = np.cumsum(count) - count
        use = np.repeat(self._first[rows.at[done]] - begin, count) + np.arange(len(node))
        accesses = Accesses(
            owner=rows.actor[node],
            tensor=self._tensor[use],
            bytes=self._bytes[use],
            is_write=self._is_write[use],
            node=node,
            start_ns=rows.start_ns[node],
            end_ns=rows.end_ns[node],
            place=self._place[rows.at[node]],
        )
        return changes(lifetimes(accesses))


def _places(plan: Plan) -> Any:
    """Of each node of a template, its place in an order that fits dependencies; mostly, rows are in one."""
    places = []
    for template in plan.templates[: len(plan.tensors)]:
        nodes = plan.nodes[template.node_first : template.node_first + template.nodes]
        place = np.arange(template.nodes)
        parent = np.repeat(place, nodes["children"])
        first = int(nodes["children_first"][0]) if len(nodes) else 0
        child = plan.children[first : first + len(parent)]
        if (parent > child).any():
            order, _ = settle(parent, child, np.zeros(template.nodes, np.uint8))
            place[order] = np.arange(len(order))
        places.append(place)
    return np.concatenate(places)


def until_next(memory_changes: Changes) -> Any:
    """How long each change is the last one of its owner; -1: for ever."""
    until = np.full(len(memory_changes.time_ns), -1, np.int64)
    until[:-1] = np.where(
        memory_changes.owner[1:] == memory_changes.owner[:-1], memory_changes.time_ns[1:], -1
    )
    return until


def events_of(memory_changes: Changes) -> Any:
    """What each change is, as an index into EVENTS."""
    alive = np.where(memory_changes.node < 0, GIVEN, WRITTEN)
    return np.where(memory_changes.delta_bytes < 0, RELEASED, alive).astype(np.int8)
