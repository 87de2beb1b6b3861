"""A recording that is too large for the memory, converted one window of time after another.

A window is some parts of the recording. It is read together with a part on both sides and with what
else it hangs on (`boundaries`), linked and ordered like a recording of its own; what belongs to it is kept,
and depends on what the windows before have left (`emitted`). So what is concluded from what stands nearby,
is concluded as if the recording were whole. What reaches further back than the part before is not seen:
tensors written long ago, launches of work that waited so long.

Two walks lead through the recording. The first finds out where windows end on every lane, and how much of
the two recordings belongs together; the second converts.

Not here: recordings that fit (`timed`), and those whose operators can only be told by their order, which are
converted as a whole, whatever it takes (`converting`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from converters.pytorch.calls import Calls, device_work, host_calls
from converters.pytorch.columns import DeviceTrace, HostTrace
from converters.pytorch.graph import Link
from converters.pytorch.groups import Groups, collect_groups
from converters.pytorch.linking import Links, operators_of
from converters.pytorch.nesting import NONE
from converters.pytorch.rank import ConvertedRank
from converters.pytorch.reading.device import EVENTS
from converters.pytorch.reading.host import NODES
from converters.pytorch.row_file import Overflow
from converters.pytorch.tally import Span, Tally
from converters.pytorch.timed import (
    WHOLE,
    LinkedRecording,
    Window,
    connected,
    nothing_timed,
    say_if_apart,
    within,
)
from converters.pytorch.totals import Totals
from converters.pytorch.windows.boundaries import (
    Boundaries,
    CarryOver,
    boundaries_of,
    firsts,
    together,
    with_work,
)
from converters.pytorch.windows.emitted import Emitted
from converters.pytorch.windows.groups import described_last
from converters.pytorch.windows.ids import Ids, find_ids
from converters.pytorch.windows.names import Paired, pair_by_names
from converters.pytorch.windows.parts import EventParts, NodeParts
from converters.pytorch.windows.sizes import Progress, Sizes
from converters.pytorch.windows.tables import (
    device_of,
    events_aside,
    nodes_aside,
)

ENOUGH = 0.8  # of the smaller side must be linked by ids; else operators are told by their order


@dataclass(slots=True)
class _Survey:
    """What the first walk finds out; times are the recording's."""

    boundaries: list[Boundaries] = field(default_factory=list)  # by part
    begin_ns: int | None = None
    linked: int = 0
    host_operators: int = 0
    device_operators: int = 0
    first_linked_ns: int = 1 << 62
    last_linked_ns: int = -(1 << 62)

    @property
    def smaller(self) -> int:
        """Operators of the recording that has fewer."""
        return min(self.host_operators, self.device_operators)


class LargeRecording:
    """A timeline whose events are in files, and the execution trace with it, which may be there, too."""

    def __init__(
        self, device: DeviceTrace, host: HostTrace | None, sides: Sequence[Overflow], sizes: Sizes
    ) -> None:
        self._sides, self._sizes = sides, sizes
        self._host = nodes_aside(host, sides[0]) if host is not None else None
        self._device = events_aside(device, sides[1])
        self._events = EventParts(sides[1], sizes.part_rows)
        self._ids: Ids | Paired | None = None
        self._nodes: NodeParts | None = None
        self._survey = _Survey()

    def survey(self, progress: Progress) -> None:
        """Walk through it for the first time; twice if the ids of operators turn out to say nothing."""
        if self._host is None:
            self._look_at_all(progress)
        else:
            recordings = self._host, self._sides[0].tables[NODES], self._device, self._sides[1].tables[EVENTS]
            best: tuple[_Survey, Ids | Paired] | None = None
            for way in (find_ids, pair_by_names):
                ids = way(*recordings)
                if ids is not None:
                    self._take(ids)
                    self._look_at_all(progress)
                    if best is None or self._survey.linked > best[0].linked:
                        best = self._survey, ids
                    if self._survey.linked >= ENOUGH * self._survey.smaller:
                        break
            assert best is not None
            if best[1] is not self._ids:
                self._take(best[1])
                self._look_at_all(progress)
        if self._survey.begin_ns is None:
            raise nothing_timed(self._device)

    def _take(self, ids: Ids | Paired) -> None:
        """Tell operators by these ids."""
        assert self._host is not None
        self._ids = ids
        self._nodes = NodeParts(self._host, self._sides[0], ids, self._events.first_ids(ids))

    def _look_at_all(self, progress: Progress) -> None:
        self._survey, windows = _Survey(), self._windows()
        for at, (first, last) in enumerate(windows):
            self._look_at(first, last)
            progress((at + 1) / len(windows))

    def converted(
        self, without: frozenset[Link], totals: Totals, progress: Progress
    ) -> Iterator[ConvertedRank]:
        """Walk through it for the second time: what each window adds, as it is counted in `totals`."""
        said = Tally()
        say_if_apart(self._host, self._device, said)
        groups = collect_groups(self._host, self._device, said)
        emitted, before = Emitted(), CarryOver()
        windows = self._windows()
        passed = 0
        for at, (first, last) in enumerate(windows):
            passed = self._pass(before, passed, first - 1)
            rank = self._window(first, last, before, groups, without, emitted)
            ends = totals.add(rank, emitted.ends_of)
            passed = self._pass(before, passed, last - 1)
            kept = [int(row["number"][0]) for row in before.rows()]
            assert rank.graph.key is not None
            emitted.add(rank.graph.key, ends, kept)
            progress((at + 1) / len(windows))
            yield rank
            del rank  # nobody else holds it, either, while the next one is made
        if groups.described():
            described = described_last(emitted.size, groups, self._host, self._device)
            totals.add(described)
            yield described

    def _windows(self) -> list[tuple[int, int]]:
        size = self._sizes.window_parts
        parts = len(self._events)
        return [(first, min(first + size, parts)) for first in range(0, parts, size)]

    def _pass(self, before: CarryOver, passed: int, until: int) -> int:
        """Leave the parts before `until` behind."""
        for part in range(passed, until):
            before.passes(self._survey.boundaries[part], self._events.starts_ns(until))
        return max(passed, until)

    def _look_at(self, first: int, last: int) -> None:
        survey = self._survey
        rows = together([self._events.rows(first - 1, last + 1)])
        device = device_of(self._device, rows)
        calls, work = host_calls(device, device_work(device, 0), 0)
        launched = np.flatnonzero(work.launch != NONE)
        launched = launched[np.lexsort((work.start_ns[launched], work.launch[launched]))]
        for part in range(first, last):
            low, high = self._events.starts_ns(part), self._events.starts_ns(part + 1)
            found = []
            for one in (calls, work):
                own = np.flatnonzero(Span(low, high).holds(one.start_ns))
                found.append(boundaries_of(rows[one.row[own]], one.lane[own], one.end_ns[own], high - 1))
            survey.boundaries.append(
                with_work(found, rows[work.row[launched]], rows["number"][work.launch[launched]])
            )
        span = Span(self._events.starts_ns(first), self._events.starts_ns(last))
        starts = [one.start_ns[span.holds(one.start_ns)] for one in (calls, work)]
        if survey.begin_ns is None and any(map(len, starts)):
            survey.begin_ns = int(np.concatenate(starts).min())
        if self._nodes is not None:
            self._look_at_links(first, last, device, calls, span, rows["number"])

    def _look_at_links(
        self, first: int, last: int, device: DeviceTrace, calls: Calls, span: Span, events: Any
    ) -> None:
        links = self._links(first, last, device, calls, span, events)
        survey, own = self._survey, np.flatnonzero((links.host_of_call != NONE) & span.holds(calls.start_ns))
        survey.linked += links.linked
        survey.host_operators += links.host_operators
        survey.device_operators += links.device_operators
        if len(own):
            survey.first_linked_ns = min(survey.first_linked_ns, int(calls.start_ns[own].min()))
            survey.last_linked_ns = max(survey.last_linked_ns, int(calls.end_ns[own].max()))

    def _links(
        self, first: int, last: int, device: DeviceTrace, calls: Calls, span: Span, events: Any
    ) -> Links:
        """Who belongs together, and how much of the window's own."""
        host = self._nodes_around(first, last)
        assert host is not None
        assert self._nodes is not None
        assert self._ids is not None
        links = self._ids.link(host, device, calls, events)
        own = (calls.is_operator | calls.is_annotation) & span.holds(calls.start_ns)
        begin = self._nodes.size(first - 1, first)
        rows = operators_of(host)
        rows = rows[(rows >= begin) & (rows < begin + self._nodes.size(first, last))]
        linked = int((links.host_of_call[own] != NONE).sum())
        return replace(links, host_rows=rows, device_operators=int(own.sum()), linked=linked)

    def _nodes_around(self, first: int, last: int) -> HostTrace | None:
        if self._nodes is None:
            return None
        return self._nodes.trace(first - 1, last + 1)

    def _window(
        self,
        first: int,
        last: int,
        before: CarryOver,
        groups: Groups,
        without: frozenset[Link],
        emitted: Emitted,
    ) -> ConvertedRank:
        """What the parts from `first` to before `last` add."""
        survey, starts_ns = self._survey, self._events.starts_ns
        around = [
            self._events.rows(first - 1, last + 1),
            *before.rows(),
            *firsts(survey.boundaries[last + 1 :]),
        ]
        rows = together(around)
        device, host = device_of(self._device, rows), self._nodes_around(first, last)
        rate = survey.linked / survey.device_operators if survey.device_operators else 1.0
        is_part = host is not None and survey.linked > 0 and rate < WHOLE
        origin = survey.first_linked_ns if is_part else survey.begin_ns or 0
        span = Span(starts_ns(first) - origin, starts_ns(last) - origin)
        tally = Tally(span)
        if first == 0:
            tally.counts.update(groups.tally.counts)
        groups = replace(groups, tally=tally)
        calls, work = host_calls(device, device_work(device, origin), origin)
        links = self._links(first, last, device, calls, span, rows["number"]) if host is not None else None
        recording = LinkedRecording(device, host, calls, work, links, origin)
        if is_part:
            recording = within(recording, 0, survey.last_linked_ns - origin, tally)
        ends_ns = starts_ns(min(last + 1, len(self._events)))
        emitted.past.around = Span(starts_ns(max(first - 1, 0)) - origin, ends_ns - origin)
        window = Window(partial(emitted.share, span, rows["number"]), emitted.past)
        return connected(recording, groups, without, window)
