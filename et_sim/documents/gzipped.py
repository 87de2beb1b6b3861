"""Reading of files that may be compressed with gzip, within limits: a small one may unpack to any size."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import BinaryIO

from et_sim.basics.errors import InputError

MOST_UNPACKED, MOST_TIMES_UNPACKED = 1 << 26, 200  # bytes, and the bytes added per compressed byte
AT_A_TIME = 1 << 20


class Ungzipped(gzip.GzipFile):
    """File of gzip content that refuses more output than data can have."""

    def __init__(self, file: BinaryIO, size: int, place: str, error_type: type[InputError]) -> None:
        super().__init__(fileobj=file)
        self._size, self._place, self._error_type, self._unpacked = size, place, error_type, 0

    def _counted(self, part: bytes) -> bytes:
        self._unpacked += len(part)
        most = MOST_UNPACKED + MOST_TIMES_UNPACKED * self._size
        if self._unpacked > most:
            raise self._error_type(
                f"{self._size:,} bytes of gzip unpack to more than {most:,}",
                place=self._place,
                remedy=f"the limit is {MOST_TIMES_UNPACKED} times that and {MOST_UNPACKED >> 20} MiB: "
                "if the file is right, unpack it",
            )
        return part

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` bytes, or all that are left."""
        if size is not None and size >= 0:
            return self._counted(super().read(size))
        parts = []
        while part := self.read(AT_A_TIME):
            parts.append(part)
        return b"".join(parts)

    def read1(self, size: int = -1) -> bytes:
        """Return some bytes."""
        return self._counted(super().read1(size))


def ungzipped(content: bytes, place: str, error_type: type[InputError]) -> bytes:
    """Return all unpacked bytes; damage raises the errors of gzip."""
    with Ungzipped(io.BytesIO(content), len(content), place, error_type) as packed:
        return packed.read()


def opened(path: Path) -> BinaryIO | gzip.GzipFile:
    """Open a file for its bytes, unpacked if it is compressed with gzip."""
    with path.open("rb") as plain:
        is_packed = plain.read(2) == b"\x1f\x8b"
    return gzip.open(path) if is_packed else path.open("rb")
