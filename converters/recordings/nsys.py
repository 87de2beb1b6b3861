"""Reports of Nsight Systems, exported to SQLite or Parquet: kernels, copies, calls, ranges, by process.

A table exists only if it has rows, and columns differ from version to version. A process with kernels is a
rank. Waits of streams for events carry no record of the event: the converter concludes them from the order of
calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from converters.recordings.format import RecordingFormat, RecordingTask
from converters.recordings.kineto_files import DeviceEvent, RankTimeline, convert_timelines, ranks_of_names
from converters.recordings.nsys_collectives import (
    Members,
    NcclRanges,
    kernel_arguments,
    members_of,
    nccl_ranges,
)
from converters.recordings.parquet_tables import SUFFIX, ParquetTables
from converters.recordings.sqlite_tables import SIGN, SqliteTables, has_table, whole
from et_sim.basics.errors import InputError
from et_sim.basics.units import plural

KERNEL, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
SYNC, GRAPH = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NVTX, START = "NVTX_EVENTS", "TARGET_INFO_SESSION_START_TIME"
PUSH_POP, START_END = 59, 60
COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
SYNCS = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
REMEDY = "export again: nsys export --type sqlite REPORT.nsys-rep"
_Tables = SqliteTables | ParquetTables
_VERSION = re.compile(r"_v\d+$")

TIMES = {"start": ("start",), "end": ("end",)}
NAME_OF_KERNEL = ("demangledName", "shortName")
WORK = {
    **TIMES,
    "device": ("deviceId",),
    "stream": ("streamId",),
    "correlation": ("correlationId",),
    "process": ("globalPid", "globalTid"),
}


def _recognises(path: Path, begin: bytes) -> bool:
    if begin.startswith(b"PAR1"):
        return any((path.parent / f"{table}{SUFFIX}").is_file() for table in (KERNEL, RUNTIME, NVTX, START))
    return begin.startswith(SIGN) and has_table(path, "CUPTI_ACTIVITY_KIND", "TARGET_INFO_SESSION")


def _convert(task: RecordingTask) -> Iterator[str]:
    timelines, notes, inside = [], list[str](), dict[int, NcclRanges]()
    reports = list(dict.fromkeys(path.parent if path.suffix == SUFFIX else path for path in task.files))
    processes = [(path, process) for path in reports for process in _processes(path)]
    named = ranks_of_names(reports) if len(processes) == len(reports) else []
    ranges = {path: _ranges_of_nccl(path) for path in reports}
    for at, (path, process) in enumerate(processes):
        inside[named[at] if named else at] = ranges[path].get(process, NcclRanges())
    members = members_of(inside)
    for (path, process), (rank, own) in zip(processes, inside.items(), strict=True):
        events = _events(path, process, own, members)
        timelines.append(RankTimeline(rank, path, _epoch(path), events))
    for path in reports:
        notes += _notes(path)
    lacks_sizes = not any(ranges.values()) and any(_has_nccl(path) for path in reports)
    notes += _notes_of_nccl(members, lacks_sizes=lacks_sizes)
    if len(processes) > 1 and not named:
        notes.append("ranks are numbered by file, then by process and device: no file states them")
    yield from convert_timelines(timelines, task, members.ranks)
    if not task.as_json:
        yield from (f"note: {note}" for note in dict.fromkeys(notes))


def _tables(path: Path) -> _Tables:
    """Return the tables of a report: a file of SQLite, or a folder of Parquet files."""
    return ParquetTables(path) if path.is_dir() else SqliteTables(path)


def pid_of(number: int) -> int:
    """Return the process of a global process or thread number."""
    return number >> 24 & 0xFFFFFF


def _processes(path: Path) -> list[int]:
    """Return the processes with kernels, in the order of their devices."""
    with _tables(path) as tables:
        for table in (KERNEL, GRAPH):
            if table in tables.columns:
                tables.require(table, ("start", "end", "streamId"), REMEDY)
        pairs = {
            (whole(device, 0), pid_of(whole(process, 0)))
            for table in (KERNEL, GRAPH)
            for device, process in tables.rows(table, {name: WORK[name] for name in ("device", "process")})
        }
    if not pairs:
        raise InputError("the report has no kernels", place=str(path), remedy="record with --trace=cuda")
    return list(dict.fromkeys(process for _, process in sorted(pairs)))


def _epoch(path: Path) -> int:
    with _tables(path) as tables:
        return max((whole(value, 0) for (value,) in tables.rows(START, {"time": ("utcEpochNs",)})), default=0)


def _notes(path: Path) -> Iterator[str]:
    """Yield what the report cannot show."""
    with _tables(path) as tables:
        if GRAPH in tables.columns:
            yield "CUDA graphs are one block each: record with --cuda-graph-trace=node for their kernels"
        if RUNTIME not in tables.columns:
            yield "no calls of CUDA were recorded: kernels have no launches"
        if SYNC in tables.columns:
            yield "waits of streams for events name no record: they are concluded from the order of calls"
        yield "operators of PyTorch are not in the report, only ranges of NVTX"


def _ranges_of_nccl(path: Path) -> dict[int, NcclRanges]:
    with _tables(path) as tables:
        return nccl_ranges(tables)


def _has_nccl(path: Path) -> bool:
    """Check whether a report names kernels of NCCL."""
    with _tables(path) as tables:
        texts = tables.rows("StringIds", {"value": ("value",)})
        named = {text for (value,) in texts if "nccl" in (text := str(value).lower())}
    return any("kernel" in text for text in named)


def _notes_of_nccl(members: Members, *, lacks_sizes: bool) -> Iterator[str]:
    """Yield what is not known about collectives."""
    if lacks_sizes:
        yield "collectives have no sizes: record with --trace=cuda,nvtx, and NCCL 2.18 or later"
    if members.guessed:
        few = plural(members.guessed, "communicator")
        yield f"the creation of {few} was not recorded: the ranks that used one are taken as its members"
    if members.unknown:
        few = plural(members.unknown, "communicator")
        yield f"not all ranks of {few} have a report: such collectives have no sizes"


def _events(path: Path, process: int, ranges: NcclRanges, members: Members) -> Iterator[DeviceEvent]:
    """Yield the events of a process."""
    with _tables(path) as tables:
        texts = {
            whole(number): str(text)
            for number, text in tables.rows("StringIds", {"id": ("id",), "value": ("value",)})
        }
        sizes = kernel_arguments(_launches(tables, process, texts), ranges, members) if ranges.calls else {}
        yield from _work(tables, process, texts, sizes)
        yield from _calls(tables, process, texts)
        yield from _ranges(tables, process, texts)


def _launches(tables: _Tables, process: int, texts: dict[int, str]) -> dict[int, list[tuple[int, int, str]]]:
    """Return time, correlation and name of the launches of NCCL's kernels, by thread."""
    kernels = {}
    names = {"correlation": WORK["correlation"], "process": WORK["process"], "name": NAME_OF_KERNEL}
    for correlation, owner, code in tables.rows(KERNEL, names):
        name = texts.get(whole(code), "")
        is_own = pid_of(whole(owner, process << 24)) == process and whole(correlation) > 0
        if is_own and "nccl" in name.lower():
            kernels[whole(correlation)] = name
    found: dict[int, list[tuple[int, int, str]]] = {}
    calls = {"start": ("start",), "thread": ("globalTid",), "correlation": ("correlationId",)}
    for start, thread, correlation in tables.rows(RUNTIME, calls):
        number = whole(thread, 0)
        if whole(correlation) in kernels and pid_of(number) == process:
            launch = whole(start), whole(correlation), kernels[whole(correlation)]
            found.setdefault(number & 0xFFFFFF, []).append(launch)
    return found


def _work(
    tables: _Tables, process: int, texts: dict[int, str], sizes: dict[int, dict[str, Any]]
) -> Iterator[DeviceEvent]:
    """Yield kernels, graphs, copies, memsets and synchronisations."""
    further = {"name": (*NAME_OF_KERNEL, "graphId", "copyKind", "syncType"), "size": ("bytes",)}
    categories = {
        KERNEL: "kernel",
        GRAPH: "kernel",
        MEMCPY: "gpu_memcpy",
        MEMSET: "gpu_memset",
        SYNC: "cuda_sync",
    }
    for table, category in categories.items():
        for row in tables.rows(table, WORK | further, "start"):
            start, end, device, stream, correlation, owner, code, size = row
            if not _is_sound(start, end) or pid_of(whole(owner, process << 24)) != process:
                continue
            number = whole(code)
            args: dict[str, Any] = {
                "device": whole(device, 0),
                "stream": whole(stream, 0),
                "correlation": whole(correlation),
            }
            if table == KERNEL:
                args |= sizes.get(args["correlation"], {})
            if table in (MEMCPY, MEMSET):
                args["bytes"] = whole(size, 0)
            if table == SYNC:
                args |= {"cuda_sync_kind": SYNCS.get(number, ""), "wait_on_stream": whole(stream, 0)}
                if number not in SYNCS or number <= 2:  # waits for events: which record, is not stated
                    continue
            name = {
                KERNEL: texts.get(number, f"kernel {number}"),
                GRAPH: f"CUDA graph {number}",
                MEMCPY: f"Memcpy {COPIES.get(number, 'of another kind')}",
                MEMSET: "Memset (Device)",
                SYNC: SYNCS.get(number, ""),
            }[table]
            yield DeviceEvent(category, name, args["device"], args["stream"], start, end, args)


def _calls(tables: _Tables, process: int, texts: dict[int, str]) -> Iterator[DeviceEvent]:
    """Yield calls of CUDA."""
    names = {**TIMES, "thread": ("globalTid",), "correlation": ("correlationId",), "name": ("nameId",)}
    for start, end, thread, correlation, code in tables.rows(RUNTIME, names, "start"):
        number = whole(thread, 0)
        if not _is_sound(start, end) or pid_of(number) != process:
            continue
        name = _VERSION.sub("", texts.get(whole(code), "call of CUDA"))
        args = {"correlation": whole(correlation)}
        yield DeviceEvent("cuda_runtime", name, process, number & 0xFFFFFF, start, end, args)


def _ranges(tables: _Tables, process: int, texts: dict[int, str]) -> Iterator[DeviceEvent]:
    """Yield ranges of NVTX."""
    names = {
        **TIMES,
        "thread": ("globalTid",),
        "kind": ("eventType",),
        "text": ("text",),
        "code": ("textId",),
    }
    for start, end, thread, kind, text, code in tables.rows(NVTX, names, "start"):
        number = whole(thread, 0)
        if kind not in (PUSH_POP, START_END) or not _is_sound(start, end) or pid_of(number) != process:
            continue
        name = str(text) if text else texts.get(whole(code), "range")
        yield DeviceEvent("user_annotation", name, process, number & 0xFFFFFF, start, end, {})


def _is_sound(start: object, end: object) -> bool:
    return isinstance(start, int) and isinstance(end, int) and 0 <= start <= end < 1 << 62


FORMAT = RecordingFormat(
    "reports of Nsight Systems, exported to SQLite or Parquet", recognises=_recognises, convert=_convert
)
