"""Events of other profilers as Kineto timelines, which the converter of PyTorch's recordings takes.

Each rank becomes a temporary file; times stay exact to the nanosecond.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec import json as packed

from converters.recordings.format import RecordingTask
from et_sim.basics.errors import InputError, TraceError

_RANK = re.compile(r"rank[^0-9]{0,3}([0-9]{1,7})", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,7}")


class DeviceEvent(Struct, frozen=True, gc=False):
    """An event, with times in nanoseconds."""

    category: str  # of Kineto
    name: str
    pid: int
    tid: int
    start_ns: int
    end_ns: int
    args: dict[str, Any]


class RankTimeline(Struct, frozen=True):
    """The events of one rank, and the time of their zero in nanoseconds of the epoch."""

    rank: int
    source: Path
    epoch_ns: int
    events: Iterable[DeviceEvent]


def ranks_of_names(files: Sequence[Path]) -> list[int]:
    """Return the ranks in the names of files: after the word rank, or the last numbers if these differ; an
    empty list if the names do not state them.
    """
    after = [_RANK.search(path.name) for path in files]
    last = [_NUMBER.findall(path.stem)[-1:] for path in files]
    if all(after):
        ranks = [int(found[1]) for found in after if found is not None]
    elif len(files) > 1 and all(last):
        ranks = [int(found[0]) for found in last]
    else:
        return []
    return ranks if len(set(ranks)) == len(files) else []


def write_timeline(timeline: RankTimeline, path: Path, ranks: int) -> int:
    """Write a Kineto timeline and return the number of its events."""
    count = 0
    with path.open("wb") as file:
        distributed = {"rank": timeline.rank} | ({"world_size": ranks} if ranks > 1 else {})
        head = {"schemaVersion": 1, "distributedInfo": distributed, "baseTimeNanoseconds": timeline.epoch_ns}
        file.write(json.dumps(head).removesuffix("}").encode() + b', "traceEvents": [')
        for event in timeline.events:
            file.write(b",\n" if count else b"\n")
            file.write(_text(event))
            count += 1
        file.write(b"\n]}")
    return count


def _text(event: DeviceEvent) -> bytes:
    length = max(event.end_ns - event.start_ns, 0)
    head = {"ph": "X", "cat": event.category, "name": event.name, "pid": event.pid, "tid": event.tid}
    body = packed.encode({**head, "args": event.args})
    return b'{"ts": %s, "dur": %s, %s' % (_micros(event.start_ns), _micros(length), body[1:])


def _micros(time_ns: int) -> bytes:
    """Return microseconds in decimal notation."""
    sign = b"-" if time_ns < 0 else b""
    whole, rest = divmod(abs(time_ns), 1000)
    return b"%s%d.%03d" % (sign, whole, rest)


def convert_timelines(
    timelines: Iterable[RankTimeline], task: RecordingTask, ranks: int = 0
) -> Iterator[str]:
    """Convert the timelines of all ranks, of which there are at least so many, and yield the report."""
    from converters.pytorch.converting import ConversionJob
    from converters.pytorch.folders import convert_all
    from converters.pytorch.report import lines_of_ranks
    from et_sim.basics.command_line import processors

    chosen = list(timelines)
    world = max([ranks, len(chosen), *(timeline.rank + 1 for timeline in chosen)])
    with tempfile.TemporaryDirectory(prefix="et-convert-") as folder:
        jobs = []
        for timeline in chosen:
            path = Path(folder) / f"rank_{timeline.rank}.json"
            if not write_timeline(timeline, path, world):
                remedy = "record with the device's kernels"
                raise InputError("holds no events", place=str(timeline.source), remedy=remedy)
            jobs.append(ConversionJob(Path(f"{task.prefix}.{timeline.rank}.et"), device=path))
        notes: list[str] = []
        try:
            done = convert_all(jobs, processors(), lambda _: None, notes)
        except TraceError as error:  # the temporary file has no meaning to readers
            place = str(task.path) if error.place.startswith(folder) else error.place
            raise TraceError(error.cause, place=place, remedy=error.remedy) from None
    sources = {timeline.rank: str(timeline.source) for timeline in chosen}
    reports = [dict(job.report, inputs=[source]) for job, source in zip(done, sources.values(), strict=True)]
    yield from lines_of_ranks(reports, notes, as_json=task.as_json)


def convert_processes(
    processes: Sequence[tuple[Path, Iterable[DeviceEvent]]],
    task: RecordingTask,
    has_calls: Callable[[], bool],
) -> Iterator[str]:
    """Convert the events of processes with GPUs of AMD, each of which is a rank, and yield the report."""
    named = ranks_of_names(task.files) if len(processes) == len(task.files) else []
    ranks = named or range(len(processes))
    timelines = [RankTimeline(rank, path, 0, of) for rank, (path, of) in zip(ranks, processes, strict=True)]
    yield from convert_timelines(timelines, task)
    if task.as_json:
        return
    if len(processes) > 1 and not named:
        yield "note: ranks are numbered by file and process: no file states them"
    if not has_calls():
        yield "note: no calls of HIP were recorded: kernels have no launches"
