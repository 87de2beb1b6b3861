"""Conversion of one rank: read its files, convert, write, report.

The result is a draft; the caller names the files of all ranks together.

Memory of large arrays that are no longer needed is returned to the system. With glibc, freed blocks above a
threshold are returned at once, but glibc raises the threshold to the largest freed block, up to 32 MiB;
smaller holes between arrays then stay. A fixed threshold saves a tenth of the peak of a large conversion.
"""

from __future__ import annotations

import ctypes
import gzip
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from converters.pytorch.columns import DeviceTrace, HostTrace
from converters.pytorch.emission import trace_bytes
from converters.pytorch.graph import Link
from converters.pytorch.meetings import Meetings, meetings_of
from converters.pytorch.rank import ConvertedRank
from converters.pytorch.reading import read_device, read_host, read_linked
from converters.pytorch.report import report_on
from converters.pytorch.timed import convert_timed
from converters.pytorch.untimed import convert_untimed
from et_sim.basics.errors import TraceError, unreadable

_M_MMAP_THRESHOLD = -3
_THRESHOLD_BYTES = 1 << 20


def give_back_freed_arrays() -> None:
    """Fix the threshold for this process; without glibc, do nothing."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)


Watch = Callable[[int], None]
_READING = 0.75  # share of the time of a conversion


class ConversionJob(Struct, frozen=True):
    """The files of one conversion; `linked` is a file that holds both recordings."""

    output: Path
    host: Path | None = None
    device: Path | None = None
    linked: Path | None = None
    without: frozenset[Link] = frozenset()
    force: bool = False  # convert recordings that seem not to belong together

    @property
    def inputs(self) -> tuple[Path, ...]:
        """Return the files to read."""
        return tuple(path for path in (self.host, self.device, self.linked) if path is not None)


class Done(Struct, frozen=True):
    """The draft of a file, and its report."""

    job: ConversionJob
    draft: Path
    report: dict[str, Any]
    meetings: Meetings | None  # None: without times


def convert(job: ConversionJob, draft: Path, watch: Watch | None = None) -> Done:
    """Convert one rank into a draft of its output; `watch` receives the bytes done."""
    give_back_freed_arrays()

    def read(size_bytes: int) -> None:
        if watch is not None:
            watch(int(_READING * size_bytes))

    try:
        rank = convert_rank(*_read(job, read), job.without, force=job.force)
        size = _write(draft, job.output.suffix == ".gz", rank)
        report = report_on(rank, [str(path) for path in job.inputs], str(job.output), size)
    except OSError as error:
        raise TraceError(
            f"cannot be written: {unreadable(error)}", place=str(job.output), remedy="choose a writable place"
        ) from None
    if watch is not None:
        watch(sum(path.stat().st_size for path in job.inputs))
    return Done(job, draft, report, meetings_of(rank) if rank.is_timed else None)


def _write(path: Path, is_packed: bool, rank: ConvertedRank) -> int:
    """Write the trace and return its number of bytes."""
    with gzip.GzipFile(path, "wb", mtime=0) if is_packed else path.open("wb") as file:
        return sum(file.write(part) for part in trace_bytes(rank))


def convert_rank(
    host: HostTrace | None,
    device: DeviceTrace | None,
    without: frozenset[Link] = frozenset(),
    *,
    force: bool = False,
) -> ConvertedRank:
    """Convert the recordings that were read."""
    if device is not None:
        return convert_timed(device, host, without, force=force)
    assert host is not None
    return convert_untimed(host, without)


def _read(job: ConversionJob, progress: Watch) -> tuple[HostTrace | None, DeviceTrace | None]:
    if job.linked is not None:
        return read_linked(job.linked, progress=progress)
    before = 0

    def after(size: int) -> None:
        progress(before + size)

    host = read_host(job.host, progress=after) if job.host is not None else None
    before = job.host.stat().st_size if job.host is not None else 0
    device = read_device(job.device, progress=after) if job.device is not None else None
    return host, device
