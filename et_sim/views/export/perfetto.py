"""A timeline in Perfetto's native format: a stream of TracePacket messages.

Ranks are processes and lanes are threads; names are interned (written once, then numbered). Readers sort
packets by time, and keep the order of packets with equal times: ends precede counters, instants and begins,
and a slice within another one ends before it and begins after it. The arrow of a message leads from the begin
of its send to the end of its receive, or of the slice added within that (`arrows`). Arrows of collectives
lead from begin to begin.

The constants are field numbers of Perfetto's public schema (protos/perfetto/trace).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.protobuf_fields import LENGTH, VARINT, fixed64, message, number, tag, text, varint
from et_sim.views.drawing.nodes import NONE
from et_sim.views.export.arrows import FROM_ANOTHER, ON_PATH, PathSlice
from et_sim.views.export.contents import AT_ONCE, Contents, Facts, in_rows

PACKET = 1
TIMESTAMP, SEQUENCE, EVENT, INTERNED, FLAGS, DESCRIPTOR = 8, 10, 11, 12, 13, 60
CLEARED, NEEDED = 1, 2
CATEGORY, ANNOTATION, TYPE, NAME, TRACK, VALUE, FLOW, LAST_FLOW = 3, 4, 9, 10, 11, 30, 47, 48
PLAIN_CATEGORY, PLAIN_NAME, NOTE_TEXT, NOTE_NAME = 22, 23, 6, 10  # texts that are used once
BEGIN, END, INSTANT, COUNTER = (number(TYPE, kind) for kind in range(1, 5))
ANNOTATION_NAME, ANNOTATION_UINT, ANNOTATION_TEXT = 1, 3, 17
CATEGORIES, NAMES, ANNOTATION_NAMES, TEXTS = 1, 2, 3, 29
UUID, TRACK_NAME, PROCESS, THREAD, PARENT, COUNTER_TRACK = 1, 2, 3, 4, 5, 8
PID, PROCESS_NAME, TID, THREAD_NAME, COUNTER_UNIT = 1, 6, 2, 5, 3
UNITS = {"count": 2, "bytes": 3}
ANNOTATIONS = ("node", "bytes", "group", "waited_ns", "never_completed")
NODE, BYTES, GROUP, WAITED, NEVER = (1 + at for at in range(len(ANNOTATIONS)))
IN_SEQUENCE = number(SEQUENCE, 1)
PACKET_TAG, STAMP = tag(PACKET, LENGTH), tag(TIMESTAMP, VARINT)
BEFORE_EVENT = IN_SEQUENCE + number(FLAGS, NEEDED) + tag(EVENT, LENGTH)


def packets(contents: Contents) -> Iterator[bytes]:
    """Yield the file, some packets at a time."""
    every = _Packets(contents).every()
    while piece := b"".join(islice(every, AT_ONCE)):
        yield piece


def count(contents: Contents) -> int:
    """Return the number of packets of events."""
    pairs = len(contents.slices) + len(contents.arrivals) + len(contents.path)
    instants = int((contents.start_ns == contents.end_ns).sum())
    return 2 * pairs - instants + sum(len(counter.time_ns) for counter in contents.counters)


def _packet(*parts: bytes) -> bytes:
    return message(PACKET, *parts)


def _descriptors(contents: Contents) -> Iterator[bytes]:
    """Yield descriptors of tracks: ranks, lanes, the network, the critical path, and counters."""
    shown, tracks = contents.shown, contents.tracks
    for place, rank in enumerate(shown.ranks):
        process = message(PROCESS, number(PID, rank + 1), text(PROCESS_NAME, f"rank {rank}"))
        yield _packet(IN_SEQUENCE, message(DESCRIPTOR, number(UUID, 1 + place), process))
    first = 1 + len(shown.ranks)
    thread_id = max(shown.ranks, default=0) + 2  # ids that are no process's
    for at, (place, lane, row) in enumerate(zip(tracks.place, tracks.lane, tracks.row, strict=True)):
        name = f"{lane} {row + 1}" if row else lane
        parts = number(PID, shown.ranks[place] + 1), number(TID, thread_id + at), text(THREAD_NAME, name)
        track = number(UUID, first + at), number(PARENT, 1 + place), message(THREAD, *parts)
        yield _packet(IN_SEQUENCE, message(DESCRIPTOR, *track))
    first += len(tracks.place)
    network = first + len(contents.counters)
    if any(counter.place == NONE for counter in contents.counters):
        named = number(PID, thread_id + len(tracks.place)), text(PROCESS_NAME, "network")
        yield _packet(IN_SEQUENCE, message(DESCRIPTOR, number(UUID, network), message(PROCESS, *named)))
    if contents.path:
        path, pid = network + 1, thread_id + len(tracks.place) + 1
        named = number(PID, pid), text(PROCESS_NAME, ON_PATH)
        yield _packet(IN_SEQUENCE, message(DESCRIPTOR, number(UUID, path), message(PROCESS, *named)))
        thread = message(THREAD, number(PID, pid), number(TID, pid + 1), text(THREAD_NAME, ON_PATH))
        parts = number(UUID, path + 1), number(PARENT, path), thread
        yield _packet(IN_SEQUENCE, message(DESCRIPTOR, *parts))
    for at, counter in enumerate(contents.counters):
        unit = message(COUNTER_TRACK, number(COUNTER_UNIT, UNITS[counter.unit]))
        parent = network if counter.place == NONE else 1 + counter.place
        numbers = number(UUID, first + at) + number(PARENT, parent)
        yield _packet(IN_SEQUENCE, message(DESCRIPTOR, numbers, text(TRACK_NAME, counter.name), unit))


class _Packets:
    """Writer of packets, in the order that packets of one time need."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        first = 1 + len(contents.shown.ranks)
        self._first_counter = first + len(contents.tracks.place)
        self._tracks = [number(TRACK, first + track) for track in range(len(contents.tracks.place))]
        self._path = number(TRACK, self._first_counter + len(contents.counters) + 2)
        self._is_instant = contents.start_ns == contents.end_ns
        self._words = _Words()
        messages, chains = contents.messages, contents.collectives
        flows = 1 + np.arange(len(messages))
        of_chain = np.repeat(1 + len(messages) + np.arange(len(chains)), np.diff(chains.first))
        is_last = np.zeros(len(messages) + len(of_chain), np.bool_)
        is_last[len(messages) + chains.first[1:] - 1] = True
        begins = np.append(messages.send, chains.slices)
        self._starts = _Flows.of(begins, np.append(flows, of_chain), is_last)
        itself = messages.arrival == NONE
        self._ends = _Flows.of(messages.receive[itself], flows[itself], True)
        self._at_arrivals = _Flows.of(messages.arrival[~itself], flows[~itself], True)

    def every(self) -> Iterator[bytes]:
        """Yield each packet of the file."""
        contents = self._contents
        yield from _descriptors(contents)
        yield _packet(IN_SEQUENCE, number(FLAGS, CLEARED), message(INTERNED, *self._words.of_annotations()))
        for _, track, _, end, arrows in self._arrivals():
            yield _event(end, END + track + arrows)
        for step in contents.path:
            yield _event(step.end_ns, END + self._path)
        yield from self._slices_end()
        yield from self._counters()
        yield from self._slices_begin(INSTANT, self._is_instant)
        yield from self._slices_begin(BEGIN, ~self._is_instant)
        for at, track, start, _, _ in self._arrivals():
            yield _event(start, BEGIN + track + _added(FROM_ANOTHER, contents.arrivals.name(at)))
        for step in contents.path:
            yield _event(step.start_ns, BEGIN + self._path + _added(ON_PATH, step.name) + _notes(step))

    def _arrivals(self) -> Iterator[tuple[int, bytes, int, int, bytes]]:
        """Yield number, track, start, end and final arrows of slices added within others."""
        contents, arrivals = self._contents, self._contents.arrivals
        for first in range(0, len(arrivals), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            flows_of = self._at_arrivals.of_entries(first, first + AT_ONCE)
            track = contents.tracks.of_slice[arrivals.parent[part]]
            columns = track, arrivals.start_ns[part], arrivals.end_ns[part]
            placed = zip(*(column.tolist() for column in columns), strict=True)
            for at, (of_slice, start, end) in enumerate(placed, start=first):
                yield at, self._tracks[of_slice], start, end, flows_of.get(at, b"")

    def _slices_end(self) -> Iterator[bytes]:
        contents = self._contents
        heads = [END + track for track in self._tracks]
        for first in range(0, len(contents.slices), AT_ONCE):
            entries = first + np.flatnonzero(~self._is_instant[first : first + AT_ONCE])
            flows_of = self._ends.of_entries(first, first + AT_ONCE)
            columns = entries, contents.end_ns[entries], contents.tracks.of_slice[entries]
            for entry, end, track in zip(*(column.tolist() for column in columns), strict=True):
                yield _event(end, heads[track] + flows_of.get(entry, b""))

    def _counters(self) -> Iterator[bytes]:
        for at, counter in enumerate(self._contents.counters):
            head = COUNTER + number(TRACK, self._first_counter + at)
            for time, value in in_rows(counter.time_ns, counter.value):
                yield _event(time, head + number(VALUE, value))

    def _slices_begin(self, kind: bytes, which: Any) -> Iterator[bytes]:
        """Yield the facts of some slices, and the arrows that begin there; an instant also ends there."""
        contents = self._contents
        heads = [kind + track for track in self._tracks]
        for first in range(0, len(contents.slices), AT_ONCE):
            entries = first + np.flatnonzero(which[first : first + AT_ONCE])
            if not len(entries):
                continue
            flows_of = self._starts.of_entries(first, first + AT_ONCE)
            if kind == INSTANT:
                for entry, flows in self._ends.of_entries(first, first + AT_ONCE).items():
                    flows_of[entry] = flows_of.get(entry, b"") + flows
            facts = contents.facts(entries)
            group, news = self._words.of(facts)
            if news:
                yield _packet(IN_SEQUENCE, number(FLAGS, NEEDED), message(INTERNED, *news))
            columns = entries, contents.start_ns[entries], contents.tracks.of_slice[entries]
            placed = zip(*(column.tolist() for column in columns), strict=True)
            for (entry, start, track), node_facts in zip(placed, facts.rows(), strict=True):
                yield _event(start, heads[track] + _node(group, *node_facts) + flows_of.get(entry, b""))


def _event(time_ns: int, event: bytes) -> bytes:
    content = STAMP + varint(time_ns) + BEFORE_EVENT + varint(len(event)) + event
    return PACKET_TAG + varint(len(content)) + content


class _Flows(Struct, frozen=True, eq=False):
    """Arrows by entry: ascending entries, their arrows, and whether the arrow ends there."""

    entry: Any
    flow: Any
    is_last: Any

    @classmethod
    def of(cls, entry: Any, flow: Any, is_last: Any) -> _Flows:
        order = np.argsort(entry, kind="stable")
        return cls(entry[order], flow[order], np.broadcast_to(is_last, len(order))[order])

    def of_entries(self, first: int, until: int) -> dict[int, bytes]:
        """Return the encoded arrows of the entries in a range."""
        part = slice(*np.searchsorted(self.entry, (first, until)).tolist())
        encoded: dict[int, bytes] = {}
        columns = (column[part].tolist() for column in (self.entry, self.flow, self.is_last))
        for entry, flow, is_last in zip(*columns, strict=True):
            encoded[entry] = encoded.get(entry, b"") + fixed64(LAST_FLOW if is_last else FLOW, flow)
        return encoded


class _Words:
    """Texts numbered from 1 and written at their first use; kinds and names are numbered by their codes."""

    def __init__(self) -> None:
        self._interned: dict[int, set[int]] = {CATEGORIES: set(), NAMES: set()}
        self._groups: dict[str, int] = {}

    def of_annotations(self) -> Iterator[bytes]:
        for at, name in enumerate(ANNOTATIONS):
            yield message(ANNOTATION_NAMES, number(1, 1 + at), text(2, name))

    def of(self, facts: Facts) -> tuple[list[int], list[bytes]]:
        """Return the numbers of the codes of groups (0: none), and texts that were not written before."""
        nodes, news = facts.nodes, []
        for field, codes, texts in (
            (CATEGORIES, nodes.kind, nodes.kinds),
            (NAMES, nodes.name, nodes.names),
        ):
            for code in sorted(set(codes.tolist()) - self._interned[field]):
                self._interned[field].add(code)
                news.append(message(field, number(1, 1 + code), text(2, texts[code] or "")))
        numbers = [0] * len(facts.group.texts)
        for code in sorted(set(facts.group.codes.tolist())):
            name = facts.group.texts[code]
            if name is None:
                continue
            if name not in self._groups:
                self._groups[name] = 1 + len(self._groups)
                news.append(message(TEXTS, number(1, self._groups[name]), text(2, name)))
            numbers[code] = self._groups[name]
        return numbers, news


def _node(
    groups: list[int], name: int, kind: int, group: int, node: int, size: int, waited: int, completed: int
) -> bytes:
    """Return name, category and annotations of a node."""
    parts = [number(CATEGORY, 1 + kind), number(NAME, 1 + name), _noted(NODE, ANNOTATION_UINT, node)]
    if size > 0:
        parts.append(_noted(BYTES, ANNOTATION_UINT, size))
    if groups[group]:
        parts.append(_noted(GROUP, ANNOTATION_TEXT, groups[group]))
    if waited:
        parts.append(_noted(WAITED, ANNOTATION_UINT, waited))
    if not completed:
        parts.append(_noted(NEVER, ANNOTATION_UINT, 1))
    return b"".join(parts)


def _noted(name: int, field: int, value: int) -> bytes:
    return message(ANNOTATION, number(ANNOTATION_NAME, name), number(field, value))


def _added(category: str, name: str) -> bytes:
    """Return category and name of a slice that is not a node."""
    return text(PLAIN_CATEGORY, category) + text(PLAIN_NAME, name)


def _notes(step: PathSlice) -> bytes:
    """Return annotations of a step of the critical path."""
    parts = []
    for name, value in step.notes.items():
        noted = text(NOTE_TEXT, value) if isinstance(value, str) else number(ANNOTATION_UINT, value)
        parts.append(message(ANNOTATION, text(NOTE_NAME, name), noted))
    return b"".join(parts)
