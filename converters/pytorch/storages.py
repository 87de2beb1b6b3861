"""Who wrote a tensor last before somebody reads it; a tensor is told by its storage.

Not here: the dependencies made of it (`data_links`, `untimed`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from converters.pytorch.columns import HostTrace, Tensors
from converters.pytorch.graph import Column
from converters.pytorch.tally import Span

_NOTHING = np.zeros(0, np.int64)
_MOST_KEPT = 1 << 19  # tensors whose writers are remembered; the latest


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """The last writer of each storage among some items, in the order of writing."""

    storage: Column = field(default_factory=lambda: _NOTHING)
    writer: Column = field(default_factory=lambda: _NOTHING)  # an item; or the key of its node
    lane: Column = field(default_factory=lambda: _NOTHING)
    end_ns: Column = field(default_factory=lambda: _NOTHING)

    def then(self, later: Written) -> Written:
        """After others have written, too."""
        both = [np.concatenate((getattr(self, name), getattr(later, name))) for name in self.__slots__]
        _, last = np.unique(both[0][::-1], return_index=True)
        kept = np.sort(len(both[0]) - 1 - last)[-_MOST_KEPT:]
        return Written(*(column[kept] for column in both))

    def some(self, which: Any) -> Written:
        """Only some of them."""
        return Written(*(getattr(self, name)[which] for name in self.__slots__))

    def by(self, writer: Column) -> Written:
        """The same, with other names for the writers."""
        return Written(self.storage, writer, self.lane, self.end_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Uses:
    """Reading and writing of storages in the order of time, storage by storage."""

    storage: Column
    item: Column
    is_write: Any
    before: Column  # the last write before each use, or -1

    @classmethod
    def of(cls, host: HostTrace, rows: Column, moment: Column) -> Uses:
        """Item i reads the inputs and writes the outputs of `rows[i]` of the execution trace, at
        `moment[i]`."""
        reads, read_by = _uses(host.inputs, rows)
        writes, written_by = _uses(host.outputs, rows)
        storage = np.concatenate((reads, writes))
        item = np.concatenate((read_by, written_by))
        is_write = np.concatenate((np.zeros(len(reads), bool), np.ones(len(writes), bool)))
        order = np.lexsort((is_write, item, moment[item], storage))  # items read before they write
        storage, item, is_write = storage[order], item[order], is_write[order]
        before = np.maximum.accumulate(np.where(is_write, np.arange(len(item)), -1))
        before = np.insert(before[:-1], 0, -1) if len(item) else before
        fits = before >= 0
        fits[fits] = storage[before[fits]] == storage[fits]
        return cls(storage, item, is_write, np.where(fits, before, -1))

    def pairs(self, lane: Column) -> tuple[Column, Column]:
        """Pairs of items on different lanes: the last that wrote a tensor, and one that reads it
        afterwards."""
        known = np.flatnonzero(~self.is_write & (self.before >= 0))
        writer, reader = self.item[self.before[known]], self.item[known]
        return _different(writer, reader, lane[writer] != lane[reader])

    def pairs_with(self, earlier: Written, lane: Column) -> tuple[Column, Column]:
        """The same of earlier writers and items that read what no item has written before."""
        order = np.argsort(earlier.storage)
        open_ones = np.flatnonzero(~self.is_write & (self.before < 0))
        if not len(order) or not len(open_ones):
            return _NOTHING, _NOTHING
        wanted = self.storage[open_ones]
        at = order[np.minimum(np.searchsorted(earlier.storage[order], wanted), len(order) - 1)]
        found = earlier.storage[at] == wanted
        writer, reader = at[found], self.item[open_ones[found]]
        return _different(writer, reader, earlier.lane[writer] != lane[reader])

    def last(self, is_own: Any, lane: Column, end_ns: Column) -> Written:
        """The last of some items that wrote each storage."""
        writes = np.flatnonzero(self.is_write & is_own[self.item])
        ends = np.append(self.storage[writes][1:] != self.storage[writes][:-1], True)[: len(writes)]
        last = writes[ends]
        last = last[np.argsort(end_ns[self.item[last]], kind="stable")]
        item = self.item[last]
        return Written(self.storage[last], item, lane[item].astype(np.int64), end_ns[item])


@dataclass(slots=True)
class Past:
    """Who wrote which tensor last in the windows before; writers are keys of nodes."""

    work: Written = field(default_factory=Written)
    calls: Written = field(default_factory=Written)
    around: Span = field(default_factory=Span)  # of what stands further away, nobody knows what came since

    def add(self, since: Past, key: Column) -> None:
        """Take who has written since then, as nodes that have these keys."""
        self.work = self.work.then(since.work.by(key[since.work.writer]))
        self.calls = self.calls.then(since.calls.by(key[since.calls.writer]))


def _different(writer: Column, reader: Column, apart: Any) -> tuple[Column, Column]:
    pairs = np.unique(np.stack((writer[apart], reader[apart]), axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _uses(tensors: Tensors, rows: Column) -> tuple[Any, Any]:
    """Storages that rows name, and which of the rows each is of."""
    counts = tensors.start[rows + 1] - tensors.start[rows]
    of = np.repeat(np.arange(len(rows)), counts)
    first = np.repeat(tensors.start[rows] - (np.cumsum(counts) - counts), counts)
    return tensors.storage_id[first + np.arange(len(of))].astype(np.int64), of
