"""Databases of rocprofv3 (rocpd, SQLite): kernels, copies, calls of HIP and RCCL, ranges, by process.

Each process writes tables whose names end with its identity; views without it are for readers of SQL, and are
not needed. An operation and the call that started it have the same number in the table of events.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from converters.recordings.format import RecordingFormat, RecordingTask
from converters.recordings.kineto_files import DeviceEvent, convert_processes
from converters.recordings.sqlite_tables import SIGN, SqliteTables, has_table, whole
from et_sim.basics.errors import InputError

KERNELS, COPIES, REGIONS = "rocpd_kernel_dispatch", "rocpd_memory_copy", "rocpd_region"
TRACKS, MOMENTS, EVENTS, STRINGS = "rocpd_track", "rocpd_timestamp", "rocpd_event", "rocpd_string"
REMEDY = "record with rocprofv3 --kernel-trace --hip-trace --output-format rocpd"
CALL = "call of HIP"
PLACE = ("pid", "tid", "agent_id", "queue_id", "stream_id")


class _Process(Struct, frozen=True):
    """A process with kernels: the end of the names of its tables, and its number there."""

    path: Path
    identity: str
    number: int


class _Place(Struct, frozen=True, gc=False):
    pid: int
    thread: int
    agent: int
    queue: int
    stream: int


class _Row(Struct, frozen=True, gc=False):
    place: _Place
    start: int
    end: int
    correlation: int
    category: str
    name: int
    size: int


class _Reader(Struct, frozen=True):
    """A reader of the tables of an identity. Places and times are in the rows, or in tables of their own."""

    tables: SqliteTables
    identity: str

    def texts(self, table: str, columns: tuple[str, ...]) -> dict[int, str]:
        """Return the texts of a table by number."""
        wanted = {"id": ("id",), "text": columns}
        return {whole(number): str(text) for number, text in self.tables.rows(table + self.identity, wanted)}

    def require(self, table: str) -> None:
        """Refuse a table without times."""
        known = self.tables.columns[table + self.identity]
        for name in ("start", "end"):
            if name not in known:
                self.tables.require(table + self.identity, (f"{name}_id",), REMEDY)
                self.tables.require(MOMENTS + self.identity, ("value",), REMEDY)

    def places(self, table: str) -> dict[int, _Place]:
        """Return the places of a table's rows."""
        own, tracks = self.tables.columns.get(table + self.identity, ()), TRACKS + self.identity
        if "track_id" in own and "pid" not in own:
            wanted = {key: (key,) for key in PLACE}
            known = {
                whole(number): _Place(*(whole(value, 0) for value in values))
                for number, *values in self.tables.rows(tracks, {"id": ("id",), **wanted})
            }
            rows = self.tables.rows(table + self.identity, {"id": ("id",), "track": ("track_id",)})
            return {whole(number): known.get(whole(track), _Place(0, 0, 0, 0, 0)) for number, track in rows}
        rows = self.tables.rows(table + self.identity, {"id": ("id",), **{key: (key,) for key in PLACE}})
        return {whole(number): _Place(*(whole(value, 0) for value in values)) for number, *values in rows}

    def moments(self, table: str) -> dict[int, int] | None:
        """Return the times that a table's rows refer to; None if rows have their own."""
        if "start" in self.tables.columns.get(table + self.identity, ()):
            return None
        wanted = {"id": ("id",), "value": ("value",)}
        rows = self.tables.rows(MOMENTS + self.identity, wanted)
        return {whole(number): whole(value) for number, value in rows}

    def rows(self, table: str, process: int) -> Iterator[_Row]:
        """Yield the rows of a process with possible times, in the order of the table."""
        places, moments = self.places(table), self.moments(table)
        categories = self.texts(STRINGS, ("string",))
        events = {
            whole(number): (whole(stack), categories.get(whole(category), ""))
            for number, stack, category in self.tables.rows(
                EVENTS + self.identity, {key: (key,) for key in ("id", "stack_id", "category_id")}
            )
        }
        wanted = {
            "id": ("id",),
            "start": ("start", "start_id"),
            "end": ("end", "end_id"),
            "event": ("event_id",),
            "name": ("kernel_id", "name_id"),
            "size": ("size",),
        }
        for number, begin, finish, event, name, size in self.tables.rows(
            table + self.identity, wanted, "start"
        ):
            start, end = whole(begin), whole(finish)
            if moments is not None:
                start, end = moments.get(start, -1), moments.get(end, -1)
            place = places.get(whole(number))
            if place is not None and place.pid == process and 0 <= start <= end:
                stack, category = events.get(whole(event), (-1, ""))
                yield _Row(place, start, end, stack, category, whole(name), whole(size, 0))


def _recognises(path: Path, begin: bytes) -> bool:
    return begin.startswith(SIGN) and has_table(path, "rocpd_")


def _convert(task: RecordingTask) -> Iterator[str]:
    processes = [process for path in task.files for process in _processes(path)]
    yield from convert_processes(
        [(process.path, _events(process)) for process in processes],
        task,
        lambda: any(_has_calls(process) for process in processes),
    )


def _processes(path: Path) -> list[_Process]:
    """Return the processes with kernels, in the order of their tables."""
    found = []
    with SqliteTables(path) as tables:
        for name in sorted(tables.columns):
            if name.startswith(KERNELS):
                reader = _Reader(tables, name.removeprefix(KERNELS))
                reader.require(KERNELS)
                numbers = {place.pid for place in reader.places(KERNELS).values()}
                found += [_Process(path, reader.identity, number) for number in sorted(numbers)]
    if not found:
        raise InputError("the database has no kernels", place=str(path), remedy=REMEDY)
    return found


def _has_calls(process: _Process) -> bool:
    with SqliteTables(process.path) as tables:
        return any(True for _ in tables.rows(REGIONS + process.identity, {"id": ("id",)}))


def _events(process: _Process) -> Iterator[DeviceEvent]:
    """Yield the events of a process; without streams, those of its queues."""
    with SqliteTables(process.path) as tables:
        reader = _Reader(tables, process.identity)
        yield from _kernels(reader, process.number)
        texts = reader.texts(STRINGS, ("string",))
        for row in reader.rows(COPIES, process.number):
            lane = row.place.stream
            args = {"device": 0, "stream": lane, "bytes": row.size, "correlation": row.correlation}
            yield DeviceEvent("gpu_memcpy", texts.get(row.name, "Memcpy"), 0, lane, row.start, row.end, args)
        for row in reader.rows(REGIONS, process.number):
            yield from _call(row, texts.get(row.name, CALL))


def _kernels(reader: _Reader, process: int) -> Iterator[DeviceEvent]:
    symbols = reader.texts("rocpd_info_kernel_symbol", ("display_name", "kernel_name"))
    has_streams = any(place.stream for place in reader.places(KERNELS).values() if place.pid == process)
    devices: dict[int, int] = {}
    for row in reader.rows(KERNELS, process):
        device = devices.setdefault(row.place.agent, len(devices))
        lane = row.place.stream if has_streams else row.place.queue
        args = {"device": device, "stream": lane, "correlation": row.correlation}
        name = symbols.get(row.name) or f"kernel {row.name}"
        yield DeviceEvent("kernel", name, device, lane, row.start, row.end, args)


def _call(row: _Row, name: str) -> Iterator[DeviceEvent]:
    """Yield a call of HIP or RCCL, or a range of the program; calls below them are left out."""
    place = row.place
    if row.category.startswith("MARKER"):
        yield DeviceEvent("user_annotation", name, place.pid, place.thread, row.start, row.end, {})
    elif name.startswith(("hip", "nccl", CALL)):
        args = {"correlation": row.correlation}
        yield DeviceEvent("cuda_runtime", name, place.pid, place.thread, row.start, row.end, args)


FORMAT = RecordingFormat("databases of rocprofv3 (rocpd)", recognises=_recognises, convert=_convert)
