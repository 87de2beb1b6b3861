"""The text of a recording in blocks: plain or gzip, without holding more than a block.

Not here: what the text says (`json_chunks`).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from et_sim.basics.errors import TraceError

BLOCK_BYTES = 1 << 18  # decoded objects of one block fit into the cache of a core
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

Progress = Callable[[int], None]


class Blocks:
    """An open file; `read` gives the next bytes of its text, b"" at its end."""

    def __init__(self, path: Path, progress: Progress | None = None) -> None:
        self.path = path
        self._progress = progress
        try:
            self._file = path.open("rb")
            packed = self._file.read(2) == _GZIP
            self._file.seek(0)
        except OSError as error:
            reason = error.strerror or str(error)
            raise TraceError(
                f"cannot be read: {reason}", place=str(path), remedy="name a readable file"
            ) from None
        self._text = gzip.GzipFile(fileobj=self._file) if packed else self._file
        self._at_start = True

    def __enter__(self) -> Blocks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._text.close()
        self._file.close()

    def last(self, size: int) -> bytes:
        """The last bytes of the text; what is compressed has to be read for that."""
        if self._text is self._file:
            self._file.seek(max(0, self.path.stat().st_size - size))
            return self.read(size)
        tail = b""
        while block := self.read(size):
            tail = (tail + block)[-size:]
        return tail

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, fewer than that only at the end; tells how much of the file is read."""
        try:
            block = self._text.read(size)
        except (EOFError, OSError, zlib.error) as error:
            what = "ends early" if isinstance(error, EOFError) else f"is damaged: {error}"
            raise TraceError(
                f"the gzip data {what}",
                place=str(self.path),
                remedy="fetch it again, or record again: whoever wrote it was probably stopped meanwhile",
            ) from None
        if self._progress is not None:
            self._progress(self._file.tell())
        if self._at_start:
            self._at_start = False
            block = block.removeprefix(_BYTE_ORDER_MARK)
        return block
