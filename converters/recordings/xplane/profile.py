"""A profile as events of devices: kernels and copies by stream, the launches that started them, collectives.

A plane of a device with events is a rank. Lines of streams have the kernels; a plane without streams (a TPU)
has lines of operations, of which those that hold others are left out. Times are whole nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from converters.recordings.kineto_files import DeviceEvent
from converters.recordings.xplane.collectives import HloProgram, read_program
from converters.recordings.xplane.schema import message_class
from et_sim.basics.errors import InputError

REMEDY = "record again with jax.profiler.trace"
_DEVICE = re.compile(r"/device:(GPU|TPU):(\d{1,6})")
_STREAM = re.compile(r"Stream #(\d{1,18})")
ASYNC = "Async XLA Ops"
_OPERATIONS = ("XLA Ops", ASYNC)
_PROGRAM = re.compile(r"\((\d{1,20})\)$")
_HLO_NAME = re.compile(r"%?([A-Za-z_][\w.-]*)")
MOST_NS = 1 << 62


class DevicePlane(Struct, frozen=True):
    """A device with events."""

    number: int
    plane: Any
    names: dict[int, str]  # of stats
    lines: list[tuple[int, Any]]  # with the number of the stream


class Profile(Struct):
    """A file: its devices, programs, and host."""

    path: Path
    begin_ns: int
    devices: list[DevicePlane]
    programs: dict[int, HloProgram] = field(default_factory=dict)
    host: Any = None

    @property
    def world(self) -> int:
        """Return the devices of the largest program, at least those of the file."""
        return max((program.devices for program in self.programs.values()), default=0)


def read_profile(path: Path) -> Profile:
    """Read a file."""
    from google.protobuf.message import DecodeError

    from et_sim.trace.disk import read_unpacked

    try:
        space = message_class("Space").FromString(read_unpacked(path))
    except DecodeError:
        raise InputError("cannot be read as XPlane", place=str(path), remedy=REMEDY) from None
    planes = {plane.name: plane for plane in space.planes}
    devices = sorted(
        (known for plane in space.planes if (known := _device(plane)) is not None),
        key=lambda known: known.number,
    )
    if not devices:
        listed = ", ".join(list(planes)[:5])
        cause = f"no device has events; planes: {listed}"
        raise InputError(cause, place=str(path), remedy="record a step that runs on a GPU or TPU")
    begin = max(_values(planes.get("Task Environment")).get("profile_start_time", 0), 0)
    is_relative = all(line.timestamp_ns < begin for known in devices for _, line in known.lines)
    programs = dict(_programs(planes.get("/host:metadata")))
    return Profile(path, begin if is_relative else 0, devices, programs, planes.get("/host:CPU"))


def _device(plane: Any) -> DevicePlane | None:
    named = _DEVICE.fullmatch(plane.name)
    if named is None:
        return None
    streams = [
        (int(found[1]), line) for line in plane.lines if (found := _STREAM.match(line.name)) is not None
    ]
    others = [(at, line) for at, line in enumerate(plane.lines, 1) if line.name in _OPERATIONS]
    lines = [(number, line) for number, line in streams or others if len(line.events)]
    names = {entry.key: entry.value.name for entry in plane.stat_metadata}
    return DevicePlane(int(named[2]), plane, names, lines) if lines else None


def _values(plane: Any) -> dict[str, int]:
    if plane is None:
        return {}
    names = {entry.key: entry.value.name for entry in plane.stat_metadata}
    return {names.get(stat.metadata_id, ""): stat.uint64_value or stat.int64_value for stat in plane.stats}


def _programs(plane: Any) -> Iterator[tuple[int, HloProgram]]:
    for entry in plane.event_metadata if plane is not None else ():
        named = _PROGRAM.search(entry.value.name)
        number = int(named[1]) if named is not None else entry.key
        for stat in entry.value.stats:
            program = read_program(stat.bytes_value) if stat.bytes_value else None
            if program is not None:
                yield number, program


class EventStats(Struct, frozen=True):
    """A reader of the stats of a plane's events."""

    names: Mapping[int, str]

    def of(self, event: Any) -> dict[str, Any]:
        """Return the stats of an event by name."""
        values: dict[str, Any] = {}
        for stat in event.stats:
            text = stat.str_value or (self.names.get(stat.ref_value, "") if stat.ref_value else "")
            values[self.names.get(stat.metadata_id, "")] = text or stat.uint64_value or stat.int64_value
        return values


def device_events(profile: Profile, known: DevicePlane, devices: int) -> Iterator[DeviceEvent]:
    """Yield what a device ran, and the calls of the host that launched it."""
    stats, launches = EventStats(known.names), set[int]()
    names = {entry.key: entry.value.display_name or entry.value.name for entry in known.plane.event_metadata}
    with_async = any(line.name == ASYNC for _, line in known.lines)
    for stream, line in known.lines:
        is_apart = with_async and line.name != ASYNC
        for start, end, event in _times(line):
            given = stats.of(event)
            name = names.get(event.metadata_id, f"operation {event.metadata_id}")
            correlation = _number(given.get("correlation_id"))
            args = {"device": known.number, "stream": stream}
            if correlation:
                args["correlation"] = correlation
                launches.add(correlation)
            category = "gpu_memcpy" if "memcpy_details" in given else "kernel"
            category = "gpu_memset" if "memset_details" in given else category
            yield DeviceEvent(
                category,
                name,
                known.number,
                stream,
                start,
                end,
                args | _collective(profile, name, given, (known.number, devices), is_apart),
            )
    yield from _launches(profile.host, launches)


def _collective(
    profile: Profile, name: str, given: Mapping[str, Any], place: tuple[int, int], is_apart: bool
) -> dict[str, Any]:
    """Return the arguments of the collective that an event carries out.

    `place` is the device and the number of devices; `is_apart` states that what an event starts has an event
    of its own on another line.
    """
    program = profile.programs.get(_number(given.get("program_id")))
    named = _HLO_NAME.match(str(given.get("hlo_op") or name))
    found = program.collectives.get(named[1]) if program is not None and named is not None else None
    return found.arguments(*place) if found is not None and not (found.is_start and is_apart) else {}


def _times(line: Any) -> Iterator[tuple[int, int, Any]]:
    """Yield the events of a line with their times; outside streams, only those that hold no other one."""
    timed = []
    for event in line.events:
        start = line.timestamp_ns + event.offset_ps // 1000
        end = line.timestamp_ns + (event.offset_ps + event.duration_ps) // 1000
        if 0 <= start <= end < MOST_NS and event.duration_ps >= 0:
            timed.append((start, end, event))
    if line.name not in _OPERATIONS:
        yield from timed
        return
    timed.sort(key=lambda one: (one[0], -one[1]))
    for at, (start, end, event) in enumerate(timed):
        follower = timed[at + 1][0] if at + 1 < len(timed) else end
        if follower >= end:
            yield start, end, event


def _launches(host: Any, launches: set[int]) -> Iterator[DeviceEvent]:
    """Yield the calls of the host that have one of these correlations."""
    if host is None:
        return
    stats = EventStats({entry.key: entry.value.name for entry in host.stat_metadata})
    names = {entry.key: entry.value.name for entry in host.event_metadata}
    correlation_ids = [number for number, name in stats.names.items() if name == "correlation_id"]
    if not correlation_ids:
        return
    for thread, line in enumerate(host.lines, 1):
        for start, end, event in _times(line):
            number = next(
                (
                    stat.uint64_value or stat.int64_value
                    for stat in event.stats
                    if stat.metadata_id in correlation_ids
                ),
                0,
            )
            if number in launches:
                name = names.get(event.metadata_id, "call")
                yield DeviceEvent("cuda_runtime", name, 0, thread, start, end, {"correlation": number})


def _number(value: Any) -> int:
    return value if isinstance(value, int) and value < MOST_NS else 0
