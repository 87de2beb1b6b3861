"""A GOAL file, read line by line: no more of it is kept than the schedule of one rank.

Not here: what stands in it (`statements`, `schedule`).
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from converters.goal.schedule import Totals, traces
from converters.goal.statements import statements
from converters.progress import Progress
from et_sim.basics.errors import TraceError
from et_sim.documents.limits import Ungzipped
from et_sim.trace import Trace

_LINES_BETWEEN_LOOKS = 10_000


def schedules(path: Path, totals: Totals) -> Iterator[tuple[int, Trace]]:
    """(rank, trace) of a file that may be gzipped, with progress on stderr."""
    source = str(path)
    try:
        with path.open("rb") as file:
            yield from traces(statements(_lines(file, path), source), source, totals)
    except UnicodeDecodeError as error:
        cause = f"byte {error.object[error.start]} is not UTF-8 text"
        raise TraceError(cause, place=source, remedy="GOAL is text; binary schedules are not read") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(
            f"the gzip data is damaged: {error}", place=source, remedy="fetch or compress the file again"
        ) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(f"cannot be read: {reason}", place=source, remedy="name a readable file") from None


def _lines(file: BinaryIO, path: Path) -> Iterator[str]:
    is_packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    size = path.stat().st_size
    progress = Progress(path.name, size)
    content = Ungzipped(file, size, str(path), TraceError) if is_packed else file
    try:
        for number, line in enumerate(io.TextIOWrapper(content, encoding="utf-8-sig")):
            if number % _LINES_BETWEEN_LOOKS == 0:
                progress(file.tell())
            yield line
    finally:
        progress.close()
