"""Results of rocprofv3 as JSON: kernels, copies and calls of HIP of each process, by stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from converters.recordings.format import RecordingFormat, RecordingTask
from converters.recordings.kineto_files import DeviceEvent, convert_processes
from et_sim.basics.errors import InputError

MOST_NS = 1 << 62
REMEDY = "record with rocprofv3 --kernel-trace --hip-trace --output-format json"


class _Handle(Struct, frozen=True):
    handle: int = 0


class _Correlation(Struct, frozen=True):
    internal: int = -1


class _Dispatch(Struct, frozen=True):
    agent: _Handle = field(default=_Handle(), name="agent_id")
    queue: _Handle = field(default=_Handle(), name="queue_id")
    kernel: int = field(default=0, name="kernel_id")


class _Row(Struct, frozen=True):
    start: int = field(default=-1, name="start_timestamp")
    end: int = field(default=-1, name="end_timestamp")
    thread: int = field(default=0, name="thread_id")
    correlation: _Correlation = field(default=_Correlation(), name="correlation_id")
    kind: int = 0
    operation: int = 0
    dispatch: _Dispatch = field(default=_Dispatch(), name="dispatch_info")
    stream: _Handle = field(default=_Handle(), name="stream_id")
    size: int = field(default=0, name="bytes")

    @property
    def is_sound(self) -> bool:
        """Return whether the times are possible."""
        return 0 <= self.start <= self.end < MOST_NS


class _Kind(Struct, frozen=True):
    operations: list[str] = []


class _Symbol(Struct, frozen=True):
    number: int = field(default=-1, name="kernel_id")
    name: str = field(default="", name="formatted_kernel_name")
    mangled: str = field(default="", name="kernel_name")


class _Texts(Struct, frozen=True):
    buffer_records: list[_Kind] = []


class _Process(Struct, frozen=True):
    pid: int = 0


class _Tool(Struct, frozen=True):
    metadata: _Process = _Process()
    strings: _Texts = _Texts()
    kernel_symbols: list[_Symbol] = []
    buffer_records: dict[str, msgspec.Raw] = {}


class _Results(Struct, frozen=True):
    tools: list[_Tool] = field(default_factory=list, name="rocprofiler-sdk-tool")


def _recognises(path: Path, begin: bytes) -> bool:  # noqa: ARG001
    return begin.lstrip().startswith(b"{") and b'"rocprofiler-sdk-tool"' in begin[:4096]


def _convert(task: RecordingTask) -> Iterator[str]:
    tools = [(path, tool) for path in task.files for tool in _read(path)]
    yield from convert_processes(
        [(path, _events(tool, str(path))) for path, tool in tools],
        task,
        lambda: any(bytes(tool.buffer_records.get("hip_api", b"")).strip(b"[] \n") for _, tool in tools),
    )


def _read(path: Path) -> list[_Tool]:
    """Return the processes of a file that have kernels."""
    from et_sim.trace.disk import read_unpacked

    try:
        results = msgspec.json.decode(read_unpacked(path), type=_Results)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"cannot be read: {error}", place=str(path), remedy=REMEDY) from None
    tools = [tool for tool in results.tools if "kernel_dispatch" in tool.buffer_records]
    if not tools:
        raise InputError("the results have no kernels", place=str(path), remedy=REMEDY)
    return tools


def _rows(tool: _Tool, name: str, place: str) -> list[_Row]:
    raw = tool.buffer_records.get(name)
    if raw is None:
        return []
    try:
        return [row for row in msgspec.json.decode(raw, type=list[_Row]) if row.is_sound]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{name} cannot be read: {error}", place=place, remedy=REMEDY) from None


def _events(tool: _Tool, place: str) -> Iterator[DeviceEvent]:
    """Yield the events of a process; without streams, those of its queues."""
    names = {symbol.number: symbol.name or symbol.mangled for symbol in tool.kernel_symbols}
    kernels = _rows(tool, "kernel_dispatch", place)
    has_streams = any(row.stream.handle for row in kernels)
    devices: dict[int, int] = {}
    for row in kernels:
        device = devices.setdefault(row.dispatch.agent.handle, len(devices))
        stream = row.stream.handle if has_streams else row.dispatch.queue.handle
        name = names.get(row.dispatch.kernel) or f"kernel {row.dispatch.kernel}"
        yield _on_device("kernel", name, row, {"device": device, "stream": stream})
    for row in _rows(tool, "memory_copy", place):
        args = {"device": 0, "stream": row.stream.handle, "bytes": row.size}
        yield _on_device("gpu_memcpy", _operation(tool, row, "Memcpy"), row, args)
    for group in ("hip_api", "rccl_api"):
        for row in _rows(tool, group, place):
            args = {"correlation": row.correlation.internal}
            name = _operation(tool, row, "call of HIP")
            yield DeviceEvent("cuda_runtime", name, tool.metadata.pid, row.thread, row.start, row.end, args)


def _on_device(category: str, name: str, row: _Row, args: Mapping[str, Any]) -> DeviceEvent:
    full = {**args, "correlation": row.correlation.internal}
    return DeviceEvent(category, name, args["device"], args["stream"], row.start, row.end, full)


def _operation(tool: _Tool, row: _Row, otherwise: str) -> str:
    """Return the name of an operation of a kind."""
    kinds = tool.strings.buffer_records
    known = kinds[row.kind].operations if 0 <= row.kind < len(kinds) else []
    return known[row.operation] if 0 <= row.operation < len(known) else otherwise


FORMAT = RecordingFormat("results of rocprofv3 (JSON)", recognises=_recognises, convert=_convert)
