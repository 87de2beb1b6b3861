"""A timeline in Perfetto's native format: a stream of TracePacket messages.

Ranks are processes and lanes are threads; names are interned (said once, then numbered). Perfetto takes
packets in order of time: at one time, what ends comes before what begins, and what lies within another slice
ends before that and begins after it. The arrow of a message leaves where its send begins, and arrives where
its receive ends, or what was added within that (`added`). Those of collectives lead from begin to begin.

The constants are field numbers of Perfetto's public schema (protos/perfetto/trace). Not here: what is shown
(`contents`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from et_sim.protobuf_fields import fixed64, message, number, text, varint
from et_sim.views.drawing.nodes import NONE
from et_sim.views.export.added import ON_PATH, Added
from et_sim.views.export.contents import AT_ONCE, Contents

PACKET = 1
TIMESTAMP, SEQUENCE, EVENT, INTERNED, FLAGS, DESCRIPTOR = 8, 10, 11, 12, 13, 60
CLEARED, NEEDED = 1, 2
CATEGORY, ANNOTATION, TYPE, NAME, TRACK, VALUE, FLOW, LAST_FLOW = 3, 4, 9, 10, 11, 30, 47, 48
PLAIN_CATEGORY, PLAIN_NAME, NOTE_TEXT, NOTE_NAME = 22, 23, 6, 10  # what is said once only
BEGIN, END, INSTANT, COUNTER, ADDED_BEGIN, ADDED_END = 1, 2, 3, 4, 5, 6
ANNOTATION_NAME, ANNOTATION_UINT, ANNOTATION_TEXT = 1, 3, 17
CATEGORIES, NAMES, ANNOTATION_NAMES, TEXTS = 1, 2, 3, 29
UUID, TRACK_NAME, PROCESS, THREAD, PARENT, COUNTER_TRACK = 1, 2, 3, 4, 5, 8
PID, PROCESS_NAME, TID, THREAD_NAME, COUNTER_UNIT = 1, 6, 2, 5, 3
UNITS = {"count": 2, "bytes": 3}
ANNOTATIONS = ("node", "bytes", "group", "waited_ns", "never_completed")
NODE, BYTES, GROUP, WAITED, NEVER = (1 + at for at in range(len(ANNOTATIONS)))
ORDER = np.array([0, 4, 1, 3, 2, 5, 0])  # of types, at one time: ends, counter, instant, begins
IN_SEQUENCE = number(SEQUENCE, 1)


def packets(contents: Contents) -> Iterator[bytes]:
    """The file, packet by packet."""
    yield from _descriptors(contents)
    yield _packet(IN_SEQUENCE, number(FLAGS, CLEARED), message(INTERNED, *_interned(contents)))
    stamp, ending = varint(TIMESTAMP << 3), IN_SEQUENCE + number(FLAGS, NEEDED)
    for time, event in _events(contents):
        yield _packet(stamp, varint(time), ending, message(EVENT, event))


def _packet(*parts: bytes) -> bytes:
    return message(PACKET, *parts)


def _descriptors(contents: Contents) -> Iterator[bytes]:
    """The first are those of ranks, then come lanes, counters, the network, and last the critical path."""
    shown, tracks = contents.shown, contents.tracks
    for place, rank in enumerate(shown.ranks):
        process = message(PROCESS, number(PID, rank + 1), text(PROCESS_NAME, f"rank {rank}"))
        yield _packet(IN_SEQUENCE, message(DESCRIPTOR, number(UUID, 1 + place), process))
    first = 1 + len(shown.ranks)
    thread_id = max(shown.ranks, default=0) + 2  # no process's own
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
    if contents.has_path:
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


def _interned(contents: Contents) -> Iterator[bytes]:
    """Kinds, names and groups, numbered from 1 in the order of their codes."""
    nodes, rows = contents.nodes, contents.slices.row
    for field, codes, texts in ((CATEGORIES, nodes.kind, nodes.kinds), (NAMES, nodes.name, nodes.names)):
        for code in np.unique(codes[rows]).tolist():
            yield message(field, number(1, 1 + code), text(2, texts[code] or ""))
    for at, name in enumerate(ANNOTATIONS):
        yield message(ANNOTATION_NAMES, number(1, 1 + at), text(2, name))
    groups = contents.slices.group
    for code in np.unique(groups.codes).tolist():
        if groups.texts[code] is not None:
            yield message(TEXTS, number(1, 1 + code), text(2, groups.texts[code] or ""))


def _events(contents: Contents) -> Iterator[tuple[int, bytes]]:
    """All events in order of time, and when they happen."""
    time, kind, entry = _all_events(contents)
    order = np.lexsort((entry, ORDER[kind], time))
    write = _writer(contents)
    for first in range(0, len(order), AT_ONCE):
        part = order[first : first + AT_ONCE]
        kinds, entries = kind[part], entry[part]
        begun = contents.facts(entries[(kinds == BEGIN) | (kinds == INSTANT)])
        for moment, what, which in zip(time[part].tolist(), kinds.tolist(), entries.tolist(), strict=True):
            yield moment, write(what, which, begun)


def _all_events(contents: Contents) -> tuple[Any, Any, Any]:
    """When each happens, its type, and the slice, value or whatever it is of."""
    slices = np.arange(len(contents.slices), dtype=np.int32)
    is_instant = contents.start_ns == contents.end_ns
    added = np.arange(len(contents.added), dtype=np.int32)
    parts = [
        (END, slices[~is_instant], contents.end_ns[~is_instant]),
        (INSTANT, slices[is_instant], contents.start_ns[is_instant]),
        (BEGIN, slices[~is_instant], contents.start_ns[~is_instant]),
        (ADDED_END, added, np.array([one.end_ns for one in contents.added], np.int64)),
        (ADDED_BEGIN, added, np.array([one.start_ns for one in contents.added], np.int64)),
    ]
    for at, counter in enumerate(contents.counters):
        entries = np.arange(len(counter.time_ns))
        parts.append((COUNTER, at + len(contents.counters) * entries, counter.time_ns))
    time = np.concatenate([times for _, _, times in parts])
    kind = np.repeat(
        np.array([kind for kind, _, _ in parts], np.int8), [len(entries) for _, entries, _ in parts]
    )
    return time, kind, np.concatenate([entries for _, entries, _ in parts])


def _writer(contents: Contents) -> Callable[[int, int, Iterator[tuple[int, ...]]], bytes]:
    """A function that writes an event; what it says of a slice that begins comes from an iterator."""
    first_track = 1 + len(contents.shown.ranks)
    first_counter = first_track + len(contents.tracks.place)
    numbers: list[bytes] = [number(TRACK, first_track + track) for track in range(len(contents.tracks.place))]
    track_of = contents.tracks.of_slice
    path = number(TRACK, first_counter + len(contents.counters) + 2)
    starts, ends, arrivals = _flows(contents)
    no_group = len(contents.slices.group.texts) - 1

    def write(kind: int, entry: int, begun: Iterator[tuple[int, ...]]) -> bytes:
        if kind == COUNTER:
            at, which = divmod(entry, len(contents.counters))
            value = int(contents.counters[which].value[at])
            return number(TYPE, COUNTER) + number(TRACK, first_counter + which) + number(VALUE, value)
        if kind in (ADDED_BEGIN, ADDED_END):
            one = contents.added[entry]
            track = path if one.parent == NONE else numbers[int(track_of[one.parent])]
            if kind == ADDED_END:
                return number(TYPE, END) + track + arrivals.get(entry, b"")
            return number(TYPE, BEGIN) + track + _added(one)
        track = numbers[int(track_of[entry])]
        if kind == END:
            return number(TYPE, END) + track + ends.get(entry, b"")
        flows = starts.get(entry, b"") + (ends.get(entry, b"") if kind == INSTANT else b"")
        return number(TYPE, kind) + track + _node(no_group, *next(begun)) + flows

    return write


def _node(
    no_group: int, name: int, kind: int, group: int, node: int, size: int, waited: int, completed: int
) -> bytes:
    """Name, category and annotations of a node."""
    parts = [number(CATEGORY, 1 + kind), number(NAME, 1 + name)]
    notes = [(NODE, ANNOTATION_UINT, node)]
    if size > 0:
        notes.append((BYTES, ANNOTATION_UINT, size))
    if group != no_group:
        notes.append((GROUP, ANNOTATION_TEXT, 1 + group))
    if waited:
        notes.append((WAITED, ANNOTATION_UINT, waited))
    if not completed:
        notes.append((NEVER, ANNOTATION_UINT, 1))
    parts += [
        message(ANNOTATION, number(ANNOTATION_NAME, key), number(field, value)) for key, field, value in notes
    ]
    return b"".join(parts)


def _added(one: Added) -> bytes:
    """Name, category and annotations of a slice that is no node."""
    parts = [text(PLAIN_CATEGORY, one.category), text(PLAIN_NAME, one.name)]
    for name, value in one.notes.items():
        noted = text(NOTE_TEXT, value) if isinstance(value, str) else number(ANNOTATION_UINT, value)
        parts.append(message(ANNOTATION, text(NOTE_NAME, name), noted))
    return b"".join(parts)


def _flows(contents: Contents) -> tuple[dict[int, bytes], ...]:
    """What the begin and the end of slices, and the end of what was added, say about arrows."""
    starts: dict[int, bytes] = {}
    ends: dict[int, bytes] = {}
    arrivals: dict[int, bytes] = {}

    def say(where: dict[int, bytes], entry: int, field: int, flow: int) -> None:
        where[entry] = where.get(entry, b"") + fixed64(field, flow)

    for flow, one in enumerate(contents.messages, start=1):
        say(starts, one.send, FLOW, flow)
        if one.arrival == NONE:
            say(ends, one.receive, LAST_FLOW, flow)
        else:
            say(arrivals, one.arrival, LAST_FLOW, flow)
    for flow, members in enumerate(contents.collectives, start=1 + len(contents.messages)):
        for member in members[:-1]:
            say(starts, member, FLOW, flow)
        say(starts, members[-1], LAST_FLOW, flow)
    return starts, ends, arrivals
