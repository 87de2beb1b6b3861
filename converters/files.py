"""Bytes of input files, the check that no output replaces an input, and progress while many are written.

Not here: writing, which is `et_sim.trace.write_trace`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from et_sim.errors import TraceError, UsageError
from et_sim.trace.disk import unpacked

SECONDS_BETWEEN_LINES = 2.0


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if it is compressed with gzip."""
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(
            f"cannot be read: {reason}", place=str(path), remedy="name a readable file"
        ) from None
    return unpacked(content, str(path))


def trace_path(prefix: str, rank: int) -> Path:
    """Where the trace of a rank is written."""
    return Path(f"{prefix}.{rank}.et")


def refuse_overwriting(inputs: Iterable[Path], outputs: Iterable[Path]) -> None:
    """An output that is one of the inputs would destroy what cannot be made again."""
    read = {path.resolve() for path in inputs}
    for path in outputs:
        if path.resolve() in read:
            raise UsageError(
                "would be overwritten, and it is an input", place=str(path), remedy="choose another -o PREFIX"
            )


def watched(files: Iterable[tuple[Path, bytes]], count: int) -> Iterator[tuple[Path, bytes]]:
    """The files, with a line on stderr now and then."""
    said = time.monotonic()
    for number, file in enumerate(files):
        yield file
        if time.monotonic() - said >= SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            sys.stderr.write(f"et-convert: {number + 1:,} of {count:,} files\n")
