"""A timeline as Chrome trace events, which chrome://tracing, Perfetto and others read.

Their times are in microseconds; three decimals keep every nanosecond. Ranks are processes, lanes are threads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from et_sim.views.drawing.nodes import NONE
from et_sim.views.export.arrows import FROM_ANOTHER, ON_PATH
from et_sim.views.export.contents import AT_ONCE, Contents, in_rows


def pieces(contents: Contents, about: dict[str, Any]) -> Iterator[bytes]:
    """Yield the file, some events at a time; `about` is stored beside the events."""
    yield b'{"displayTimeUnit":"ns","otherData":' + _json(about) + b',"traceEvents":['
    before, events = b"\n", _events(contents)
    while piece := list(islice(events, AT_ONCE)):
        yield before + b",\n".join(piece)
        before = b",\n"
    yield b"\n]}\n"


def count(contents: Contents) -> int:
    """Return the number of events except names."""
    added = len(contents.arrivals) + len(contents.path)
    arrows = 2 * len(contents.messages) + len(contents.collectives.slices)
    values = sum(len(counter.time_ns) for counter in contents.counters)
    return len(contents.slices) + added + arrows + values


def _json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _micros(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def _event(phase: str, process: int, thread: int, rest: bytes, time_ns: int | None = None) -> bytes:
    time = "" if time_ns is None else f',"ts":{_micros(time_ns)}'
    return f'{{"ph":"{phase}","pid":{process},"tid":{thread}{time},'.encode() + rest[1:]


def _events(contents: Contents) -> Iterator[bytes]:
    yield from _names(contents)
    yield from _slices(contents)
    yield from _added(contents)
    yield from _arrows(contents)
    for counter in contents.counters:
        rank = _network(contents) if counter.place == NONE else contents.shown.ranks[counter.place]
        for time, value in in_rows(counter.time_ns, counter.value):
            yield _event("C", rank, 0, _json({"name": counter.name, "args": {counter.unit: value}}), time)


def _network(contents: Contents) -> int:
    """Return the process id of the network, which follows those of ranks."""
    return max(contents.shown.ranks, default=0) + 1


def _path(contents: Contents) -> int:
    """Return the process id of the critical path."""
    return _network(contents) + 1


def _names(contents: Contents) -> Iterator[bytes]:
    if any(counter.place == NONE for counter in contents.counters):
        called = _json({"name": "process_name", "args": {"name": "network"}})
        yield _event("M", _network(contents), 0, called)
    if contents.path:
        for event in ("process_name", "thread_name"):
            yield _event("M", _path(contents), 0, _json({"name": event, "args": {"name": ON_PATH}}))
    for rank in contents.shown.ranks:
        yield _event("M", rank, 0, _json({"name": "process_name", "args": {"name": f"rank {rank}"}}))
        yield _event("M", rank, 0, _json({"name": "process_sort_index", "args": {"sort_index": rank}}))
    tracks = contents.tracks
    for thread, (place, lane, row) in enumerate(zip(tracks.place, tracks.lane, tracks.row, strict=True)):
        rank, name = contents.shown.ranks[place], f"{lane} {row + 1}" if row else lane
        yield _event("M", rank, thread, _json({"name": "thread_name", "args": {"name": name}}))
        yield _event("M", rank, thread, _json({"name": "thread_sort_index", "args": {"sort_index": thread}}))


def _slices(contents: Contents) -> Iterator[bytes]:
    ranks = [contents.shown.ranks[place] for place in contents.tracks.place]
    columns = contents.tracks.of_slice, contents.start_ns, contents.end_ns
    for first in range(0, len(contents.slices), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        facts = contents.facts(part)
        groups, heads = facts.group.texts, _Heads(facts.nodes.names, facts.nodes.kinds)
        placed = zip(*(column[part].tolist() for column in columns), strict=True)
        for (track, start, end), fact in zip(placed, facts.rows(), strict=True):
            name, kind, group, node, size, waited, completed = fact
            notes = {"node": node, "bytes": max(size, 0), "group": groups[group], "waited_ns": waited}
            notes = {key: value for key, value in notes.items() if value or key == "node"}
            if not completed:
                notes["never_completed"] = True
            length = f'"dur":{_micros(end - start)},'.encode()
            rest = b"{" + length + heads[name, kind] + b',"args":' + _json(notes) + b"}"
            yield _event("X", ranks[track], track, rest, start)


class _Heads(dict[tuple[int, int], bytes]):
    """Encoded name and kind of slices by their codes."""

    def __init__(self, names: Sequence[str | None], kinds: Sequence[str | None]) -> None:
        self._names, self._kinds = names, kinds

    def __missing__(self, codes: tuple[int, int]) -> bytes:
        name, kind = codes
        head = self[codes] = _json({"name": self._names[name] or "", "cat": self._kinds[kind] or ""})[1:-1]
        return head


def _added(contents: Contents) -> Iterator[bytes]:
    """Yield slices that are not nodes."""
    arrivals = contents.arrivals
    columns = arrivals.parent, arrivals.start_ns, arrivals.end_ns
    for at, (parent, start, end) in enumerate(in_rows(*columns)):
        fields = {"name": arrivals.name(at), "cat": FROM_ANOTHER, "args": {}}
        yield _event("X", *_track(contents, parent), _lasting(end - start, fields), start)
    for step in contents.path:
        fields = {"name": step.name, "cat": ON_PATH, "args": dict(step.notes)}
        yield _event("X", _path(contents), 0, _lasting(step.end_ns - step.start_ns, fields), step.start_ns)


def _lasting(length_ns: int, fields: dict[str, Any]) -> bytes:
    return f'{{"dur":{_micros(length_ns)},'.encode() + _json(fields)[1:]


def _track(contents: Contents, entry: int) -> tuple[int, int]:
    """Return rank and thread of a slice."""
    thread = int(contents.tracks.of_slice[entry])
    return contents.shown.ranks[contents.tracks.place[thread]], thread


def _arrows(contents: Contents) -> Iterator[bytes]:
    """Yield arrows: from the begin of a send to the end of its receive, and chains of collectives."""

    def at(phase: str, entry: int, time_ns: int, name: str, flow: int) -> bytes:
        rest = _json({"id": flow, "name": name, "cat": name, **({"bp": "e"} if phase == "f" else {})})
        return _event(phase, *_track(contents, entry), rest, time_ns)

    messages, starts = contents.messages, contents.start_ns
    columns = messages.send, starts[messages.send], messages.receive, _arrive(contents)
    for flow, (send, leaves, receive, arrives) in enumerate(in_rows(*columns), start=1):
        yield at("s", send, leaves, "message", flow)
        yield at("f", receive, arrives, "message", flow)
    for flow, members in enumerate(contents.collectives, start=1 + len(messages)):
        for position, member in enumerate(members.tolist()):
            phase = "s" if position == 0 else "f" if position == len(members) - 1 else "t"
            yield at(phase, member, int(starts[member]), "collective", flow)


def _arrive(contents: Contents) -> Any:
    """Return the ends of arrows: in the added slice, or in the receive before any added slice."""
    messages, arrivals = contents.messages, contents.arrivals
    parent, receive = arrivals.parent, messages.receive
    ends = contents.end_ns[receive].copy()
    if len(parent):
        first = np.minimum(np.searchsorted(parent, receive), len(parent) - 1)
        ends = np.where(parent[first] == receive, arrivals.start_ns[first], ends)
        ends = np.where(messages.arrival == NONE, ends, arrivals.end_ns[messages.arrival])
    return np.maximum(ends - 1, contents.start_ns[receive])  # the end itself is outside
