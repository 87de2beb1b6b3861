"""The declaration of a format of recordings, and the bytes by which it is recognised."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from et_sim.basics.errors import InputError, UsageError, unreadable

BYTES_READ = 1 << 16
_GZIP = b"\x1f\x8b"
_WITH_HEADER = 16 + zlib.MAX_WBITS
REFUSED = "other kinds"  # the name of the format that refuses all


class RecordingTask(Struct, frozen=True):
    """The files of one recording, and what is to be made of them."""

    path: Path  # as given: a file, or a folder
    files: Sequence[Path]  # the files of this format, in the order of their names
    output: str  # a prefix; empty if none was given
    as_json: bool

    @property
    def prefix(self) -> str:
        """Return the prefix of the traces to write, which must be given."""
        if not self.output:
            raise UsageError("-o is missing", remedy="name the traces to write: -o PREFIX")
        return self.output


class RecordingFormat(Struct, frozen=True):
    """A format: `recognises` decides by the path and the first bytes of a file, unpacked if it is gzipped;
    `convert` yields the lines to print.
    """

    name: str  # as messages state it, such as "flight-recorder dumps of PyTorch"
    recognises: Callable[[Path, bytes], bool]
    convert: Callable[[RecordingTask], Iterator[str]]


def first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked if it is gzipped, as far as it is whole."""
    try:
        with path.open("rb") as file:
            begin = file.read(BYTES_READ)
        if not begin.startswith(_GZIP):
            return begin
        return zlib.decompressobj(_WITH_HEADER).decompress(begin, BYTES_READ)
    except zlib.error:
        return b""
    except OSError as error:
        raise InputError(
            f"cannot be read: {unreadable(error)}", place=str(path), remedy="name a readable file"
        ) from None
