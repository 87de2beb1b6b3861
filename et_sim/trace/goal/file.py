"""A GOAL file as a workload or as a sequence of traces; it may be gzipped.

Some ranks are read at a time: as columns (`columns`) in the plainest form, and statement by statement from
the first ranks on in another form. Only these ranks and the unmatched messages are in memory.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from et_sim.basics.errors import TraceError, unreadable
from et_sim.basics.units import plural
from et_sim.documents.reading import Ungzipped
from et_sim.trace.columns import Trace
from et_sim.trace.goal.columns import columns_of
from et_sim.trace.goal.schedule import Part, Reading, Totals
from et_sim.trace.goal.statements import statements
from et_sim.trace.stack import Templates
from et_sim.trace.workload import Workload

_BYTES_AT_ONCE = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_goal(path: Path, ranks: int | None) -> Workload:
    """Read the workload of a file, which must have `ranks` ranks if given."""
    totals = Totals()
    parts = [*_parts(path, totals)]
    if ranks is not None and ranks != totals.ranks:
        raise TraceError(
            f"there are schedules of {totals.ranks} ranks, but the machine has {plural(ranks, 'NPU')}",
            place=str(path),
            remedy=f"describe a machine of {totals.ranks} NPUs",
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    templates = Templates(stacks=[stack for _, stack in parts])
    order = np.argsort([rank for numbers, _ in parts for rank in numbers])
    if 2 * len(parts) > totals.ranks or (order[1:] < order[:-1]).any():
        templates = Templates(templates[place] for place in order.tolist())
    return Workload(templates, np.arange(totals.ranks, dtype=np.int32), str(path), ((str(path), digest),))


Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def schedules(path: Path, totals: Totals, progress: Progress | None = None) -> Iterator[tuple[int, Trace]]:
    """Yield (rank, trace) of a file that may be gzipped; `progress` receives the bytes read."""
    for ranks, stack in _parts(path, totals, progress):
        yield from zip(ranks, stack.traces, strict=True)


def _parts(path: Path, totals: Totals, progress: Progress | None = None) -> Iterator[Part]:
    source = str(path)
    try:
        watched = progress(path.name, path.stat().st_size) if progress else nullcontext(lambda _: None)
        with path.open("rb") as file, watched as watch:
            yield from _schedules(file, path, totals, watch)
    except UnicodeDecodeError as error:
        cause = f"byte {error.object[error.start]} is not UTF-8 text"
        raise TraceError(cause, place=source, remedy="GOAL is text; binary schedules are not read") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(
            f"the gzip data is damaged: {error}", place=source, remedy="fetch or compress the file again"
        ) from None
    except OSError as error:
        raise TraceError(
            f"cannot be read: {unreadable(error)}", place=source, remedy="name a readable file"
        ) from None


def _schedules(file: BinaryIO, path: Path, totals: Totals, watch: Callable[[int], None]) -> Iterator[Part]:
    is_packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    content: BinaryIO | Ungzipped = file
    if is_packed:
        content = Ungzipped(file, path.stat().st_size, str(path), TraceError)
    reading = Reading(str(path), totals)
    line, rest = 1, content.read(len(_BYTE_ORDER_MARK)).removeprefix(_BYTE_ORDER_MARK)
    while True:
        part = content.read(max(_BYTES_AT_ONCE, len(rest)))
        watch(file.tell())
        ranks, rest = _whole_ranks(rest + part) if part else (rest, b"")
        if part and not ranks:
            continue
        columns = columns_of(ranks, line)
        if columns is None or not reading.accepts(columns):
            break
        yield reading.columns(columns)
        line += ranks.count(b"\n")
        if not part:
            reading.check_end()
            return
    given = io.TextIOWrapper(io.BufferedReader(_Joined(ranks + rest, content)), encoding="utf-8")
    yield from reading.statements(statements(_watched(given, file, watch), reading.source, line))
    reading.check_end()


def _whole_ranks(text: bytes) -> tuple[bytes, bytes]:
    """Return all ranks that end in a text, and the rest of the text."""
    end = text.rfind(b"\n}\n") + len(b"\n}\n")
    return (text[:end], text[end:]) if end >= len(b"\n}\n") else (b"", text)


_LINES_BETWEEN_LOOKS = 10_000


def _watched(lines: Iterable[str], file: BinaryIO, watch: Callable[[int], None]) -> Iterator[str]:
    for number, line in enumerate(lines):
        if number % _LINES_BETWEEN_LOOKS == 0:
            watch(file.tell())
        yield line


class _Joined(io.RawIOBase):
    """Bytes that have been read already, and the rest of their file."""

    def __init__(self, before: bytes, rest: BinaryIO | Ungzipped) -> None:
        self._before, self._rest = io.BytesIO(before), rest

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer and return the number of bytes."""
        part = self._before.read(len(buffer)) or self._rest.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)
