"""The nodes that are written: their numbers, for those that come after them.

A node is known by its event and by which of the event's nodes it is. All nodes of the last window are kept,
and of those before it the ones that still matter. A node that waits until a later window has begun (a call
that synchronises, begun in this one) belongs to that one, where what it waits for has its number.

Not here: which those are (`boundaries`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from converters.pytorch.calls import Calls, Work
from converters.pytorch.graph import Column, Placed, WindowSlice
from converters.pytorch.nesting import NONE
from converters.pytorch.storages import Past
from converters.pytorch.tally import Span
from converters.pytorch.threads import STEP

_COPY_BITS, _WORK_BIT, _EVENT_BIT = 2, 16, 17  # of a key: below them, which node of the event it is
_FIRST_GAP, _OWN, _REST, _GAP_AFTER = range(4)
_NOTHING = np.zeros(0, np.int64)


@dataclass(slots=True)
class Emitted:
    """Nodes by key, and by number."""

    past: Past = field(default_factory=Past)
    size: int = 0  # nodes so far, those that are forgotten included
    _key: Column = field(default_factory=lambda: _NOTHING)
    _number: Column = field(default_factory=lambda: _NOTHING)
    _end: Column = field(default_factory=lambda: _NOTHING)
    _postponed: Column = field(default_factory=lambda: _NOTHING)  # keys

    def add(self, key: Column, end_ns: Column, kept_events: list[int]) -> None:
        """The nodes of a window, and when they end when replayed; of earlier ones, those of some events and
        those that wrote a tensor are kept."""
        old = np.isin(self._key >> _EVENT_BIT, kept_events) | np.isin(
            self._key, np.concatenate((self.past.work.writer, self.past.calls.writer))
        )
        numbers = np.arange(self.size, self.size + len(key))
        columns = ((self._key, key), (self._number, numbers), (self._end, end_ns))
        joined = [np.concatenate((before[old], new)) for before, new in columns]
        order = np.argsort(joined[0], kind="stable")
        self._key, self._number, self._end = (column[order] for column in joined)
        self.size += len(key)

    def number_of(self, key: Column) -> Column:
        """The numbers of nodes; if a node is none, that of its event's own; NONE if that is none, either."""
        found = self._find(key)
        return np.where(found != NONE, found, self._find(key - (key & 3) + _OWN))

    def ends_of(self, number: Column) -> Column:
        """When nodes end when replayed."""
        order = np.argsort(self._number)
        found: Column = self._end[order[np.searchsorted(self._number[order], number)]]
        return found

    def share_of_events(self, span: Span, events: Column) -> WindowSlice:
        """What of a draft with a node for each event belongs to a span; events are their own moments."""
        key = events << _EVENT_BIT | _OWN
        return WindowSlice(span.holds(events), key, self.size, self.number_of)

    def _find(self, key: Column) -> Column:
        if not len(self._key):
            return np.full(len(key), NONE, np.int64)
        at = np.minimum(np.searchsorted(self._key, key), len(self._key) - 1)
        return np.where(self._key[at] == key, self._number[at], NONE)

    def share(self, span: Span, events: Column, calls: Calls, work: Work, nodes: Placed) -> WindowSlice:
        """What of a draft belongs to a span of time; `events` are numbers of events by row.

        A node belongs to its event, but a gap after a call to the moment it ends, and what waits for longer
        than the span lasts is postponed.
        """
        base = (len(calls) + 1) * STEP
        is_work = nodes.position + 1 >= base
        at = np.where(is_work, nodes.position + 1 - base, nodes.position + 1)
        which, index = at & 3, at >> 2
        event, copy = np.empty(len(at), np.int64), np.zeros(len(at), np.int64)
        event[is_work] = events[work.row[index[is_work]]] << 1 | 1
        event[~is_work] = events[calls.row[index[~is_work]]] << 1
        copy[is_work] = _copies(work)[index[is_work]]
        key = event << _WORK_BIT | copy << _COPY_BITS | which
        moment = nodes.end_ns.copy()  # of gaps
        moment[is_work] = work.start_ns[index[is_work]]
        of_call = ~is_work & (which != _GAP_AFTER)
        moment[of_call] = calls.start_ns[index[of_call]]
        is_own = span.holds(moment) | np.isin(key, self._postponed)
        waits = is_own & ~is_work & (nodes.start_ns >= span.last_ns)
        self._postponed = key[waits]
        return WindowSlice(is_own & ~waits, key, self.size, self.number_of)


def _copies(work: Work) -> Column:
    """Which of the messages of its kernel each piece of work is."""
    own = np.arange(len(work))
    begins = np.insert(work.row[1:] != work.row[:-1], 0, True) if len(work) else np.zeros(0, np.bool_)
    return own - np.maximum.accumulate(np.where(begins, own, 0))
