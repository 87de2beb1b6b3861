"""Bytes of files, read whole and written atomically.

A reader sees the old file or the new one, never half of it; and files written together get their names
together. Not here: what the files hold.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from et_sim.errors import TraceError
from et_sim.limits import ungzipped

_GZIP = b"\x1f\x8b"


def read_bytes(path: Path) -> bytes:
    """The bytes of a file as they are."""
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(
            f"cannot be read: {reason}", place=str(path), remedy="name a readable file"
        ) from None


def read_unpacked(path: Path) -> bytes:
    """The content of a file, unpacked if it is compressed with gzip."""
    return unpacked(read_bytes(path), str(path))


def unpacked(content: bytes, source: str) -> bytes:
    """The content of a file that may be compressed with gzip."""
    if not content.startswith(_GZIP):
        return content
    try:
        return ungzipped(content, source, TraceError)
    except (EOFError, OSError, zlib.error) as error:
        raise TraceError(
            f"the gzip data is damaged: {error}", place=source, remedy="fetch or compress the file again"
        ) from None


def replace_all(contents: Iterable[tuple[Path, bytes]]) -> None:
    """Write every file beside its target, then rename them all; whatever ends this early leaves no more
    than files that already have their names."""
    ending = f".{secrets.token_hex(4)}.tmp"
    written: list[tuple[Path, Path]] = []
    try:
        for target, content in contents:
            temporary = target.with_name(f".{target.name}{ending}")
            with _refused_as_unwritable(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                written.append((temporary, target))  # noted first: an interrupt may come at any time
                with temporary.open("xb") as file:
                    file.write(content)
        for temporary, target in written:
            with _refused_as_unwritable(target):
                temporary.replace(target)
    except BaseException:  # KeyboardInterrupt too
        for temporary, _ in written:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _refused_as_unwritable(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(
            f"cannot be written: {reason}", place=str(target), remedy="choose a writable place"
        ) from None
