"""A large recording in parts: its events by time, and the nodes of the execution trace that go with them.

Parts are what is read together. They are cut so that each has about as many events, and the nodes of the
execution trace are in the part in which their operators begin, as their ids say. (A node without an id is
in the part of the one before.)

Not here: what is read together with a part so that nothing is missing (`boundaries`).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from converters.pytorch.columns import HostTrace
from converters.pytorch.reading.device import EVENTS
from converters.pytorch.reading.host import INPUTS, NODES, OUTPUTS
from converters.pytorch.row_file import Overflow, RowFile, Table
from converters.pytorch.windows.tables import host_of

_SAMPLES = 256  # events of a part that decide where it ends, if it has so many


class Grouped:
    """A table whose rows are in groups, one after another."""

    def __init__(self, kind: np.dtype[np.void], overflow: Overflow, sizes: Any) -> None:
        self._rows = RowFile(kind, overflow)
        self._first = np.concatenate(([0], np.cumsum(sizes)))
        self._next = self._first[:-1].copy()

    def put(self, rows: Table, group: Any) -> None:
        """Rows of any groups; those of a group stay in their order."""
        order = np.argsort(group, kind="stable")
        ends = np.cumsum(np.bincount(group, minlength=len(self._next)))
        for one in np.unique(group).tolist():
            of_group = order[ends[one - 1] if one else 0 : ends[one]]
            self._rows.put(int(self._next[one]), rows[of_group])
            self._next[one] += len(of_group)

    def rows(self, first: int, last: int) -> Table:
        """The rows of the groups from one to before another."""
        return self._rows.rows(int(self._first[first]), int(self._first[last]))


def sampled_cuts(rows: RowFile, column: str, part_rows: int) -> Any:
    """Values of a column between which there are about so many rows."""
    every = max(1, part_rows // _SAMPLES)
    sampled = [np.zeros(0, np.int64), *(chunk[column][::every].copy() for chunk in rows.chunks())]
    return np.unique(np.sort(np.concatenate(sampled))[:: part_rows // every])[1:]


class EventIds(Protocol):
    """Says which operators of the other recording events go with."""

    def of_events(self, rows: Table) -> Any:
        """Their ids; 0 for those that have none."""


class EventParts:
    """The events of a timeline."""

    def __init__(self, overflow: Overflow, part_rows: int) -> None:
        events = overflow.tables[EVENTS]
        cuts = sampled_cuts(events, "ts_ns", part_rows)
        sizes = np.zeros(len(cuts) + 1, np.int64)
        for chunk in events.chunks():
            sizes += np.bincount(np.searchsorted(cuts, chunk["ts_ns"], "right"), minlength=len(sizes))
        kind = np.dtype([("number", np.int64), *events.kind.descr])
        self._groups = Grouped(kind, overflow, sizes)
        self._cuts = cuts
        number = 0
        for chunk in events.chunks():
            rows = np.empty(len(chunk), kind)
            rows["number"] = np.arange(number, number + len(chunk))
            for name in events.kind.names or ():
                rows[name] = chunk[name]
            self._groups.put(rows, np.searchsorted(cuts, chunk["ts_ns"], "right"))
            number += len(chunk)

    def __len__(self) -> int:
        return len(self._cuts) + 1

    def starts_ns(self, part: int) -> int:
        """When a part begins; the first holds all that is earlier, and the last all that is later."""
        if part == len(self):
            return 1 << 62
        return int(self._cuts[part - 1]) if part else -(1 << 62)

    def rows(self, first: int, last: int) -> Table:
        """The events of the parts from one to before another."""
        return self._groups.rows(max(first, 0), min(last, len(self)))

    def first_ids(self, ids: EventIds) -> Any:
        """The smallest id of each part and those after it."""
        smallest = np.full(len(self), np.iinfo(np.int64).max)
        for part in range(len(self)):
            found = ids.of_events(self.rows(part, part + 1))
            smallest[part] = found[found > 0].min(initial=smallest[part])
        return np.minimum.accumulate(smallest[::-1])[::-1]


class NodeIds(Protocol):
    """Says which part nodes are in."""

    def of_nodes(self, rows: Table) -> Any:
        """Their ids; 0 for those that have none."""


class Nodes(NamedTuple):
    """Some nodes, and all of their tensors."""

    nodes: Table
    inputs: Table
    outputs: Table

    def one(self, at: int) -> Nodes:
        """One of them alone."""
        tensors = []
        for name in (INPUTS, OUTPUTS):
            first = int(self.nodes[name][:at].sum())
            tensors.append(getattr(self, name)[first : first + int(self.nodes[name][at])])
        return Nodes(self.nodes[at : at + 1], *tensors)


class NodeParts:
    """The nodes of an execution trace."""

    def __init__(self, head: HostTrace, overflow: Overflow, ids: NodeIds, first_ids: Any) -> None:
        self._head = head
        nodes = overflow.tables[NODES]
        counts = np.zeros((3, len(first_ids)), np.int64)
        last = 0
        for chunk in nodes.chunks():
            part, last = _parts_of(ids.of_nodes(chunk), first_ids, last)
            for at, weights in enumerate((None, chunk[INPUTS], chunk[OUTPUTS])):
                counts[at] += np.bincount(part, weights, len(first_ids)).astype(np.int64)
        names = NODES, INPUTS, OUTPUTS
        self._groups = [
            Grouped(overflow.tables[name].kind, overflow, sizes)
            for name, sizes in zip(names, counts, strict=True)
        ]
        last, done = 0, {INPUTS: 0, OUTPUTS: 0}
        for chunk in nodes.chunks():
            part, last = _parts_of(ids.of_nodes(chunk), first_ids, last)
            self._groups[0].put(chunk, part)
            for name, groups in zip((INPUTS, OUTPUTS), self._groups[1:], strict=True):
                until = done[name] + int(chunk[name].sum())
                groups.put(overflow.tables[name].rows(done[name], until), np.repeat(part, chunk[name]))
                done[name] = until
        self._sizes = counts[0]

    def trace(self, first: int, last: int) -> HostTrace:
        """The nodes of the parts from one to before another."""
        return host_of(self._head, *self.tables(first, last))

    def tables(self, first: int, last: int) -> Nodes:
        """The same as they were put aside."""
        first, last = max(first, 0), min(last, len(self._sizes))
        return Nodes(*(group.rows(first, last) for group in self._groups))

    def size(self, first: int, last: int) -> int:
        """How many nodes these are."""
        return int(self._sizes[max(first, 0) : last].sum())


def _parts_of(ids: Any, first_ids: Any, last: int) -> tuple[Any, int]:
    """The part of each node; `last` is that of the node before them."""
    part = np.maximum(np.searchsorted(first_ids, ids, "right") - 1, 0)
    known = np.where(ids > 0, np.arange(len(ids)), -1)
    known = np.maximum.accumulate(known)
    part = np.where(known >= 0, part[np.maximum(known, 0)], last)
    return part, int(part[-1]) if len(part) else last
