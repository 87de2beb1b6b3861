"""One rank, from its files to a file: read, convert, write, report.

The result stands under a temporary name, for whoever converts many ranks gives them their names together.

Not here: which files belong together (`folders`).
"""

from __future__ import annotations

import gzip
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.pytorch.allocation import give_back_freed_arrays
from converters.pytorch.columns import DeviceTrace, HostTrace
from converters.pytorch.emission import header_bytes, row_bytes
from converters.pytorch.graph import Link
from converters.pytorch.path_steps import InFile
from converters.pytorch.rank import ConvertedRank
from converters.pytorch.reading import read_device, read_host, read_linked
from converters.pytorch.row_file import Overflow
from converters.pytorch.timed import convert_timed
from converters.pytorch.totals import Totals
from converters.pytorch.untimed import convert_untimed
from converters.pytorch.windows import LargeExecutionTrace, LargeRecording, Sizes
from et_sim.errors import TraceError

Watch = Callable[[int], None]
_READING, _LOOKING = 0.6, 0.1  # of the time that a recording takes


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be made of which files; `linked` is a file that holds both recordings."""

    output: Path
    host: Path | None = None
    device: Path | None = None
    linked: Path | None = None
    without: frozenset[Link] = frozenset()

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The files to read."""
        return tuple(path for path in (self.host, self.device, self.linked) if path is not None)


@dataclass(frozen=True, slots=True)
class Done:
    """A file under its temporary name, and what is to be said about it."""

    job: Job
    temporary: Path
    report: dict[str, Any]


def convert(job: Job, watch: Watch | None = None, sizes: Sizes = Sizes()) -> Done:  # noqa: B008  (frozen)
    """Convert one rank; `watch` is told how much is done, as bytes of its files.

    Recordings of more than so many bytes (of `sizes`) are converted in windows.
    """
    give_back_freed_arrays()
    whole = sum(path.stat().st_size for path in job.inputs)

    def done(part: float) -> None:
        if watch is not None:
            watch(int(part * whole))

    temporary = job.output.with_name(f".{job.output.name}.{secrets.token_hex(4)}.tmp")
    sides = [Overflow(job.output.parent, sizes.memory_bytes) for _ in range(2)]
    try:
        with sides[0], sides[1]:
            totals = Totals()
            ranks = _ranks(job, whole, done, sides, sizes, totals)
            size = _write(temporary, job.output.suffix == ".gz", ranks)
            report = totals.report([str(path) for path in job.inputs], str(job.output), size)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise TraceError(
            f"cannot be written: {reason}", place=str(job.output), remedy="choose a writable place"
        ) from None
    except BaseException:  # KeyboardInterrupt too
        temporary.unlink(missing_ok=True)
        raise
    return Done(job, temporary, report)


def _write(path: Path, is_packed: bool, ranks: Iterator[ConvertedRank]) -> int:
    """The windows of a rank, one after another; gives how many bytes they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with gzip.GzipFile(path, "wb", mtime=0) if is_packed else path.open("xb") as file:
        for rank in ranks:
            if not size:
                size = file.write(header_bytes(rank))
            for part in row_bytes(rank):
                size += file.write(part)
            del rank  # it is large, and the next one is made now
    return size


def convert_rank(
    host: HostTrace | None, device: DeviceTrace | None, without: frozenset[Link] = frozenset()
) -> ConvertedRank:
    """Convert what was read."""
    if device is not None:
        return convert_timed(device, host, without)
    assert host is not None
    return convert_untimed(host, without)


def _ranks(
    job: Job,
    size_bytes: int,
    done: Callable[[float], None],
    sides: list[Overflow],
    sizes: Sizes,
    totals: Totals,
) -> Iterator[ConvertedRank]:
    """The rank, as a whole or in windows, counted in `totals`."""
    host, device = _read(job, lambda size: done(_READING * size / max(size_bytes, 1)), sides)
    if device is not None and any(side.tables for side in sides):
        large, looked = LargeRecording(device, host, sides, sizes), _READING + _LOOKING
        large.survey(lambda part: done(_READING + _LOOKING * part))
        totals.steps = InFile(sides[1].file())
        yield from large.converted(job.without, totals, lambda part: done(looked + (1 - looked) * part))
        return
    if host is not None and sides[0].tables:
        only = LargeExecutionTrace(host, sides[0], sizes)
        yield from only.converted(job.without, totals, lambda part: done(_READING + (1 - _READING) * part))
        return
    rank = convert_rank(host, device, job.without)
    totals.add(rank)
    yield rank


def _read(job: Job, progress: Watch, sides: list[Overflow]) -> tuple[HostTrace | None, DeviceTrace | None]:
    if job.linked is not None:
        return read_linked(job.linked, progress=progress)
    before = 0

    def after(size: int) -> None:
        progress(before + size)

    host = read_host(job.host, progress=after, overflow=sides[0]) if job.host is not None else None
    before = job.host.stat().st_size if job.host is not None else 0
    device = read_device(job.device, progress=after, overflow=sides[1]) if job.device is not None else None
    return host, device
