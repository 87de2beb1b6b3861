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
from et_sim.documents.gzipped import Ungzipped
from et_sim.trace.columns import Trace
from et_sim.trace.goal.columns import OperationColumns, columns_of
from et_sim.trace.goal.programs import Programs
from et_sim.trace.goal.schedule import Reading, Totals, stack_of_ranks
from et_sim.trace.goal.statements import statements
from et_sim.trace.stack import Templates
from et_sim.trace.workload import Workload

_BYTES_AT_ONCE = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_goal(path: Path, ranks: int | None) -> Workload:
    """Read the workload of a file, which must have `ranks` ranks if given."""
    totals = Totals()
    reading = Reading(str(path), totals)
    parts = [*_parts(path, reading, shares=True)]
    if ranks is not None and ranks != totals.ranks:
        raise TraceError(
            f"there are schedules of {totals.ranks} ranks, but the machine has {plural(ranks, 'NPU')}",
            place=str(path),
            remedy=f"describe a machine of {totals.ranks} NPUs",
        )
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return _workload(path, totals.ranks, parts, reading.programs, digest)


def _workload(
    path: Path, ranks: int, parts: list[OperationColumns], programs: Programs, digest: str
) -> Workload:
    """Return the workload of ranks with traces of their own, and of ranks that share programs."""
    source, of_rank = str(path), np.zeros(ranks, np.int32)
    stacks = [stack_of_ranks(columns, source) for columns in parts]
    stacks += [stack_of_ranks(columns, source, is_shared=True) for columns in programs.columns]
    users = [numbers for columns in parts for numbers in columns.rank.reshape(-1, 1)] + programs.ranks
    order = np.argsort([int(numbers.min()) for numbers in users])
    for number, place in enumerate(order.tolist()):
        of_rank[users[place]] = number
    templates = Templates(stacks=stacks)
    if 2 * len(stacks) > len(order) or (order[1:] < order[:-1]).any():
        templates = Templates(templates[place] for place in order.tolist())
    relative = tuple((order >= len(users) - len(programs.ranks)).tolist()) if programs.ranks else ()
    return Workload(templates, of_rank, source, ((source, digest),), relative_peers=relative)


Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def schedules(path: Path, totals: Totals, progress: Progress | None = None) -> Iterator[tuple[int, Trace]]:
    """Yield (rank, trace) of a file that may be gzipped; `progress` receives the bytes read."""
    for columns in _parts(path, Reading(str(path), totals), progress):
        yield from zip(columns.rank.tolist(), stack_of_ranks(columns, str(path)).traces, strict=True)


def _parts(
    path: Path, reading: Reading, progress: Progress | None = None, *, shares: bool = False
) -> Iterator[OperationColumns]:
    """Yield the ranks of a file; if it `shares`, without those that share a program."""
    source = reading.source
    try:
        watched = progress(path.name, path.stat().st_size) if progress else nullcontext(lambda _: None)
        with path.open("rb") as file, watched as watch:
            yield from _schedules(file, path, reading, watch, shares=shares)
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


def _schedules(
    file: BinaryIO, path: Path, reading: Reading, watch: Callable[[int], None], *, shares: bool
) -> Iterator[OperationColumns]:
    is_packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    content: BinaryIO | Ungzipped = file
    if is_packed:
        content = Ungzipped(file, path.stat().st_size, str(path), TraceError)
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
        if not reading.add(columns) or not shares:
            yield columns
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
