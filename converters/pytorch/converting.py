"""One rank, from its files to a file: read, convert, write, report.

The result stands under a temporary name, for whoever converts many ranks gives them their names together.

Not here: which files belong together (`folders`).
"""

from __future__ import annotations

import gzip
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.pytorch.allocation import give_back_freed_arrays
from converters.pytorch.columns import DeviceTrace, HostTrace
from converters.pytorch.emission import trace_bytes
from converters.pytorch.graph import Link
from converters.pytorch.rank import ConvertedRank
from converters.pytorch.reading import read_device, read_host, read_linked
from converters.pytorch.timed import convert_timed
from converters.pytorch.totals import report_on
from converters.pytorch.untimed import convert_untimed
from et_sim.errors import TraceError

Watch = Callable[[int], None]


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


def convert(job: Job, watch: Watch | None = None) -> Done:
    """Convert one rank; `watch` is told how many bytes of its files have been read."""
    give_back_freed_arrays()
    host, device = _read(job, watch)
    rank = convert_rank(host, device, job.without)
    temporary = job.output.with_name(f".{job.output.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        opened = (
            gzip.GzipFile(temporary, "wb", mtime=0) if job.output.suffix == ".gz" else temporary.open("xb")
        )
        size = 0
        with opened as file:
            for part in trace_bytes(rank):
                size += file.write(part)
        report = report_on(rank, [str(path) for path in job.inputs], str(job.output), size)
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


def convert_rank(
    host: HostTrace | None, device: DeviceTrace | None, without: frozenset[Link] = frozenset()
) -> ConvertedRank:
    """Convert what was read."""
    if device is not None:
        return convert_timed(device, host, without)
    assert host is not None
    return convert_untimed(host, without)


def _read(job: Job, watch: Watch | None) -> tuple[HostTrace | None, DeviceTrace | None]:
    if job.linked is not None:
        return read_linked(job.linked, progress=watch)
    before = 0

    def after(size: int) -> None:
        if watch is not None:
            watch(before + size)

    host = read_host(job.host, progress=after) if job.host is not None else None
    before = job.host.stat().st_size if job.host is not None else 0
    device = read_device(job.device, progress=after) if job.device is not None else None
    return host, device
