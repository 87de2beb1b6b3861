"""A timeline as Chrome trace events, which chrome://tracing, Perfetto and others read.

Times are in microseconds there; three decimals keep every nanosecond. Ranks are processes, lanes are threads.
Not here: what is shown (`contents`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from et_sim.views.drawing.nodes import NONE
from et_sim.views.export.added import ON_PATH, Message
from et_sim.views.export.contents import AT_ONCE, Contents


def pieces(contents: Contents, about: dict[str, Any]) -> Iterator[bytes]:
    """The file, event by event; `about` is kept beside the events."""
    yield b'{"displayTimeUnit":"ns","otherData":' + _json(about) + b',"traceEvents":['
    before = b"\n"
    for event in _events(contents):
        yield before + event
        before = b",\n"
    yield b"\n]}\n"


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
        for time, value in zip(counter.time_ns.tolist(), counter.value.tolist(), strict=True):
            yield _event("C", rank, 0, _json({"name": counter.name, "args": {counter.unit: value}}), time)


def _network(contents: Contents) -> int:
    """What stands for the network where others have their rank."""
    return max(contents.shown.ranks, default=0) + 1


def _path(contents: Contents) -> int:
    """What stands for the critical path where others have their rank."""
    return _network(contents) + 1


def _names(contents: Contents) -> Iterator[bytes]:
    if any(counter.place == NONE for counter in contents.counters):
        called = _json({"name": "process_name", "args": {"name": "network"}})
        yield _event("M", _network(contents), 0, called)
    if contents.has_path:
        for what in ("process_name", "thread_name"):
            yield _event("M", _path(contents), 0, _json({"name": what, "args": {"name": ON_PATH}}))
    for rank in contents.shown.ranks:
        yield _event("M", rank, 0, _json({"name": "process_name", "args": {"name": f"rank {rank}"}}))
        yield _event("M", rank, 0, _json({"name": "process_sort_index", "args": {"sort_index": rank}}))
    tracks = contents.tracks
    for thread, (place, lane, row) in enumerate(zip(tracks.place, tracks.lane, tracks.row, strict=True)):
        rank, name = contents.shown.ranks[place], f"{lane} {row + 1}" if row else lane
        yield _event("M", rank, thread, _json({"name": "thread_name", "args": {"name": name}}))
        yield _event("M", rank, thread, _json({"name": "thread_sort_index", "args": {"sort_index": thread}}))


def _slices(contents: Contents) -> Iterator[bytes]:
    heads = [_json({"name": name or ""})[1:-1] for name in contents.nodes.names]
    kinds = [_json({"cat": kind or ""})[1:-1] for kind in contents.nodes.kinds]
    groups = contents.slices.group.texts
    ranks = [contents.shown.ranks[place] for place in contents.tracks.place]
    columns = contents.tracks.of_slice, contents.start_ns, contents.end_ns
    for first in range(0, len(contents.slices), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        placed = zip(*(column[part].tolist() for column in columns), strict=True)
        for (track, start, end), facts in zip(placed, contents.facts(part), strict=True):
            name, kind, group, node, size, waited, completed = facts
            notes = {"node": node, "bytes": max(size, 0), "group": groups[group], "waited_ns": waited}
            notes = {key: value for key, value in notes.items() if value or key == "node"}
            if not completed:
                notes["never_completed"] = True
            length = f'"dur":{_micros(end - start)},'.encode()
            rest = b"{" + length + heads[name] + b"," + kinds[kind] + b',"args":' + _json(notes) + b"}"
            yield _event("X", ranks[track], track, rest, start)


def _added(contents: Contents) -> Iterator[bytes]:
    """Slices that are no nodes."""
    for one in contents.added:
        length = f'{{"dur":{_micros(one.end_ns - one.start_ns)},'.encode()
        said = {"name": one.name, "cat": one.category, "args": dict(one.notes)}
        place, thread = _path(contents), 0
        if one.parent != NONE:
            place, thread = _track(contents, one.parent)
        yield _event("X", place, thread, length + _json(said)[1:], one.start_ns)


def _track(contents: Contents, entry: int) -> tuple[int, int]:
    """Rank and thread of a slice."""
    thread = int(contents.tracks.of_slice[entry])
    return contents.shown.ranks[contents.tracks.place[thread]], thread


def _arrows(contents: Contents) -> Iterator[bytes]:
    """A message leaves where its send begins, and arrives where its receive ends; collectives are chains."""

    def at(phase: str, entry: int, time_ns: int, name: str, flow: int) -> bytes:
        rest = _json({"id": flow, "name": name, "cat": name, **({"bp": "e"} if phase == "f" else {})})
        return _event(phase, *_track(contents, entry), rest, time_ns)

    starts, arrives = contents.start_ns, _arrives(contents)
    for flow, one in enumerate(contents.messages, start=1):
        yield at("s", one.send, int(starts[one.send]), "message", flow)
        yield at("f", one.receive, arrives(one), "message", flow)
    for flow, members in enumerate(contents.collectives, start=1 + len(contents.messages)):
        for position, member in enumerate(members):
            phase = "s" if position == 0 else "f" if position == len(members) - 1 else "t"
            yield at(phase, member, int(starts[member]), "collective", flow)


def _arrives(contents: Contents) -> Callable[[Message], int]:
    """A function that says where in a receive an arrow ends: in the slice added for it, or before any."""
    starts, ends, first = contents.start_ns, contents.end_ns, dict[int, int]()
    for one in reversed(contents.added):
        first[one.parent] = one.start_ns

    def arrives(one: Message) -> int:
        if one.arrival != NONE:
            return contents.added[one.arrival].end_ns - 1  # the end itself is outside
        return max(int(first.get(one.receive, ends[one.receive])) - 1, int(starts[one.receive]))

    return arrives
