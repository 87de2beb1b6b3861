"""Records of a run, kept in a file on their way from the engine to a table, so that memory stays flat.

Not here: what the records are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

IN_MEMORY = 1 << 24  # bytes
AT_A_TIME = 1 << 18  # records


class Spool:
    """Records of one type, in the order in which they came."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 (lives as long as this)
        self.count = 0

    def clear(self) -> None:
        """Forget them: the run begins again."""
        self._file.seek(0)
        self._file.truncate()
        self.count = 0

    def add(self, records: Any) -> None:
        """Take a block of them."""
        self._file.write(np.ascontiguousarray(records).tobytes())
        self.count += len(records)

    def blocks(self) -> Iterator[Any]:
        """All of them, block by block."""
        self._file.seek(0)
        while content := self._file.read(AT_A_TIME * self._dtype.itemsize):
            yield np.frombuffer(content, self._dtype)
        self._file.seek(0, 2)
