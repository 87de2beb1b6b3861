"""Reading of a Kineto timeline into columns.

Events are decoded block by block. Redundant ones are dropped and counted, and the others are appended to
columns; no event outlives its block.

Microseconds become whole nanoseconds without rounding errors. A timeline may contain 1706850123211542,
4384738595456.951 or 1712345678901234.567. A float represents the second to within half a nanosecond, so its
integer and fractional parts give the exact digits; the third exceeds this precision and is parsed again digit
by digit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from converters.pytorch.columns import ABSENT, DeviceTrace, EventKind, Numbers, Times
from converters.pytorch.reading.json_chunks import BLOCK_BYTES, JsonBatch, Member, Progress, json_chunks
from converters.pytorch.reading.kineto_events import (
    KINDS,
    NO_ARGUMENTS,
    Details,
    EventArguments,
    EventTimes,
    KinetoEvent,
)
from converters.pytorch.reading.values import (
    Decoder,
    Kinds,
    Lanes,
    Memo,
    Numbering,
    ValueColumns,
    decoded,
    numbers,
    process_groups,
    rank_of_name,
    texts_of,
    whole_number,
)
from et_sim.basics.errors import TraceError

_FLOATS_EXACT_BELOW = (
    2.0**43
)  # microseconds; neighbours are 0.98 ns apart there, so the nearest is within 0.49
_NS_PER_US = 1000
_LARGEST_US = 2**63 // _NS_PER_US


def nanoseconds(values: Sequence[Any]) -> npt.NDArray[np.int64] | None:
    """Return exact nanoseconds of decoded microseconds; None if floats are too imprecise: use `digits`."""
    times: npt.NDArray[Any] = np.array(values)
    if times.dtype == np.int64 and bool((np.abs(times) < _LARGEST_US).all()):
        scaled: npt.NDArray[np.int64] = times * _NS_PER_US
        return scaled
    if times.dtype != np.float64 or not bool((np.abs(times) < _FLOATS_EXACT_BELOW).all()):
        return None
    whole = np.floor(times)
    exact: npt.NDArray[np.int64] = whole.astype(np.int64) * _NS_PER_US
    exact += np.rint((times - whole) * _NS_PER_US).astype(np.int64)
    return exact


def digits(numbers: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Return exact nanoseconds of microseconds in decimal notation, with or without quotation marks."""
    return np.array([round(Decimal(number.decode().strip('"')) * _NS_PER_US) for number in numbers], np.int64)


_SPAN, _DROP = 100, 101  # beside the numbers of EventKind
_MEMORY = "[memory]"  # the name of instants of the allocator
_NOT_ON_DEVICE = (EventKind.OPERATOR, EventKind.ANNOTATION, EventKind.LAUNCH, EventKind.OVERHEAD)
_ON_DEVICE = frozenset(int(kind) for kind in EventKind if kind not in _NOT_ON_DEVICE)
_COLUMNS: Kinds = {
    "kind": np.uint8,
    "name": np.int32,
    "ts_ns": np.int64,
    "dur_ns": np.int64,
    "correlation": None,
    "external_id": None,
    "record_function": None,
    "sequence": None,
    "lane": np.int32,
    "arguments": np.int32,
}


def read_device(
    path: Path,
    *,
    progress: Progress | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> DeviceTrace:
    """Read a Kineto timeline, plain or compressed with gzip."""
    reader = DeviceReader(path)
    for piece in json_chunks(path, ("traceEvents", "nodes"), block_bytes=block_bytes, progress=progress):
        if piece.key in ("nodes", "schema"):
            raise TraceError(
                "is an execution trace of PyTorch, not a Kineto timeline",
                place=str(path),
                remedy="give it as --host, and the file that the profiler exported as --device",
            )
        if isinstance(piece, Member):
            reader.member(piece)
        else:
            reader.batch(piece)
    return reader.finish()


class DeviceReader:
    """A collector of the events and the other members of one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decode = Decoder(KinetoEvent, path)
        self._members: dict[str, Any] = {}
        self._dropped: Counter[tuple[str, str]] = Counter()
        self._remarks: Counter[str] = Counter()
        self._codes: Memo[tuple[str, str], int] = Memo(_code)
        self._names: Numbering[str] = Numbering()
        self._lanes = Lanes()
        self._columns = ValueColumns(_COLUMNS)
        self._details = Details()
        self._spans: list[tuple[int, int]] = []
        self._lists: set[str] = set()

    def member(self, member: Member) -> None:
        """Add a member of the file's object."""
        self._members[member.key] = decoded(member, self._path)

    def batch(self, batch: JsonBatch) -> None:
        """Add some elements of the list of events."""
        self.events(self._decode(batch), batch)

    def events(self, events: list[KinetoEvent], batch: JsonBatch) -> list[int]:
        """Add the decoded events of a batch; return those that became rows."""
        self._lists.add(batch.key)
        codes = [self._codes[event.phase, event.category] for event in events]
        kept = [row for row, code in enumerate(codes) if code < _SPAN]
        others = [row for row, code in enumerate(codes) if code >= _SPAN]
        dropped = [row for row in others if codes[row] == _DROP]
        memory = [row for row in dropped if _is_memory_change(events[row])]
        self._dropped.update([(events[row].phase, events[row].category) for row in dropped])
        self._dropped.subtract([(events[row].phase, events[row].category) for row in memory])
        if memory:
            self._add_memory([events[row] for row in memory], memory, batch)
        kept = self._with_times(events, kept)
        if kept:
            chosen = [events[row] for row in kept]
            starts, lengths = (self._times(chosen, kept, key, batch) for key in ("ts", "dur"))
            below = int((lengths < 0).sum())
            self._count("durations below zero, taken as zero", below)
            self._append(chosen, [codes[row] for row in kept], starts, np.maximum(lengths, 0))
        spans = self._with_times(events, [row for row in others if codes[row] == _SPAN])
        if spans:
            chosen = [events[row] for row in spans]
            starts, lengths = (self._times(chosen, spans, key, batch) for key in ("ts", "dur"))
            self._spans += zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        return kept

    def finish(self, node_id: Numbers | None = None) -> DeviceTrace:
        """Return the columns of everything added; `node_id` becomes the column of this name."""
        self._refuse_other_files()
        distributed = self._members.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}
        properties = self._members.get("deviceProperties")
        properties = properties if isinstance(properties, list) else []
        rank = whole_number(distributed.get("rank"))
        details = self._details
        return DeviceTrace(
            path=str(self._path),
            rank=rank_of_name(self._path) if rank == ABSENT else rank,
            world_size=whole_number(distributed.get("world_size")),
            backend=str(distributed.get("backend") or ""),
            base_ns=max(0, whole_number(self._members.get("baseTimeNanoseconds"))),
            names=tuple(self._names),
            lanes=tuple(self._lanes.lanes),
            groups=tuple(process_groups(distributed.get("pg_config"))),
            device_properties=tuple(entry for entry in properties if isinstance(entry, dict)),
            metadata={
                key: value for key, value in self._members.items() if not isinstance(value, list | dict)
            },
            window_ns=self._window(),
            dropped=self._all_dropped(),
            repaired=self._decode.repaired,
            node_id=node_id,
            waits=details.waits(),
            transfers=details.transfers(),
            collectives=details.collectives(),
            memory=details.memory(),
            texts=texts_of(details.texts),
            **self._columns.finish(),
        )

    def _append(self, events: list[KinetoEvent], kinds: list[int], starts: Times, lengths: Times) -> None:
        """Append one row for each event."""
        arguments = [event.args or NO_ARGUMENTS for event in events]
        names = self._names
        functions = numbers([argument.record_function for argument in arguments])
        values: dict[str, Any] = {
            "kind": kinds,
            "name": [names[event.name] for event in events],
            "ts_ns": starts,
            "dur_ns": lengths,
            "correlation": [argument.correlation for argument in arguments],
            "external_id": [
                argument.external_id if argument.external_id_of_old == ABSENT else argument.external_id_of_old
                for argument in arguments
            ],
            "record_function": np.where(functions == 0, ABSENT, functions),  # 0 means none
            "sequence": [argument.sequence for argument in arguments],
            "lane": self._lanes_of(events, kinds, arguments),
            "arguments": self._details.inputs_of(events, arguments),
        }
        self._details.add(self._columns.rows, events, kinds, arguments)
        self._columns.add(values)

    def _add_memory(self, events: list[KinetoEvent], rows: list[int], batch: JsonBatch) -> None:
        starts = self._times(events, rows, "ts", batch).tolist()
        for event, start in zip(events, starts, strict=True):
            if event.args is not None:
                self._details.add_memory(start, self._lanes[event.pid, event.tid], event.args)

    def _lanes_of(
        self, events: list[KinetoEvent], kinds: list[int], arguments: list[EventArguments]
    ) -> list[int]:
        lanes = self._lanes
        return [
            lanes[event.pid, event.tid, argument.device, argument.stream]
            if kind in _ON_DEVICE
            else lanes[event.pid, event.tid]
            for event, kind, argument in zip(events, kinds, arguments, strict=True)
        ]

    def _with_times(self, events: list[KinetoEvent], rows: list[int]) -> list[int]:
        """Return the rows whose events have a start and a duration; count the others."""
        timed = [row for row in rows if events[row].ts is not None and events[row].dur is not None]
        if len(timed) < len(rows):
            self._count("events without a time", len(rows) - len(timed))
        return timed

    def _count(self, subject: str, number: int) -> None:
        if number:
            self._remarks[subject] += number

    def _times(self, chosen: list[KinetoEvent], rows: list[int], key: str, batch: JsonBatch) -> Times:
        """Return exact nanoseconds of the events, which are elements `rows` of the batch."""
        times = nanoseconds([event.ts if key == "ts" else event.dur for event in chosen])
        if times is not None:
            return times
        written = Decoder(EventTimes, self._path)(batch)
        try:
            return digits([bytes(getattr(written[row], key)) for row in rows])
        except (ArithmeticError, ValueError):
            raise TraceError(
                f'"{key}" of an event is no time of the last centuries',
                place=f"{self._path}: byte {batch.offset}",
                remedy="the file is damaged; record again, or fetch it again",
            ) from None

    def _refuse_other_files(self) -> None:
        if not self._lists:
            cause = 'holds no "traceEvents"'
        elif "" in self._lists and self._has_only_unnamed():
            cause = "is a list of something else than events"
        else:
            return
        remedy = "name the file that PyTorch's profiler exported (export_chrome_trace)"
        raise TraceError(cause, place=str(self._path), remedy=remedy)

    def _all_dropped(self) -> dict[str, int]:
        self._count("kinds of recorded inputs that cannot be read", self._details.unreadable_inputs)
        by_category = {f"{phase}/{category}": n for (phase, category), n in (+self._dropped).items()}
        return dict(sorted({**by_category, **self._remarks}.items()))

    def _window(self) -> tuple[int, int] | None:
        if not self._spans:
            return None
        return min(start for start, _ in self._spans), max(end for _, end in self._spans)

    def _has_only_unnamed(self) -> bool:
        return not self._columns.rows and all(not phase for phase, _ in self._dropped)


def _code(key: tuple[str, str]) -> int:
    """Return the treatment of a phase and category: a number of EventKind, _SPAN or _DROP."""
    phase, category = key
    if phase == "X":
        kind = KINDS.get(category.lower())
        return int(kind) if kind is not None else _SPAN if category == "Trace" else _DROP
    return _DROP


def _is_memory_change(event: KinetoEvent) -> bool:
    is_timed = event.name == _MEMORY and event.phase == "i" and event.ts is not None
    return is_timed and event.args is not None and event.args.changes_device
