"""Rows of a table that is too large for the memory, in a file that vanishes with the program.

Not here: which rows are kept (`reading.growing`), and in what order they are wanted (`windows`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from et_sim.errors import TraceError

CHUNK_ROWS = 1 << 17
Table = npt.NDArray[np.void]  # rows with named columns


class RowFile:
    """Rows of one kind, appended at the end or put into places that were set aside for them."""

    def __init__(self, kind: np.dtype[np.void], overflow: Overflow) -> None:
        self.kind = kind
        self._folder = overflow.folder
        self._file = overflow.file()
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def append(self, columns: Mapping[str, Any]) -> None:
        """Put rows at the end."""
        rows = np.empty(len(next(iter(columns.values()))), self.kind)
        for name in self.kind.names or ():
            rows[name] = columns[name]
        self.put(self._rows, rows)

    def put(self, first: int, rows: Table) -> None:
        """Put rows at a place."""
        try:
            self._file.seek(first * self.kind.itemsize)
            self._file.write(rows.tobytes())
            self._file.flush()
        except OSError as error:
            raise no_room(self._folder, error) from None
        self._rows = max(self._rows, first + len(rows))

    def rows(self, first: int, last: int) -> Table:
        """Rows from one to before another."""
        self._file.seek(first * self.kind.itemsize)
        return np.fromfile(self._file, self.kind, last - first)

    def chunks(self) -> Iterator[Table]:
        """All rows, some at a time."""
        for first in range(0, self._rows, CHUNK_ROWS):
            yield self.rows(first, min(first + CHUNK_ROWS, self._rows))


@dataclass(slots=True)
class Overflow:
    """Where the tables of a recording go, each under its name, if one has more than so many bytes.

    Files are in a folder, but without names: the system removes them when the program ends, however it ends.
    """

    folder: Path
    most_bytes: int
    tables: dict[str, RowFile] = field(default_factory=dict)
    _files: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Overflow:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def table(self, name: str, kind: np.dtype[np.void]) -> RowFile:
        """The table of this name."""
        if name not in self.tables:
            self.tables[name] = RowFile(kind, self)
        return self.tables[name]

    def file(self) -> IO[bytes]:
        """A new file, which is there until all of this is left."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return self._files.enter_context(tempfile.TemporaryFile(dir=self.folder))
        except OSError as error:
            raise no_room(self.folder, error) from None


def no_room(folder: Path, error: OSError) -> TraceError:
    """A large recording cannot be set aside."""
    reason = error.strerror or str(error)
    remedy = "write to a folder with room for as many bytes as the recordings have"
    return TraceError(f"takes no temporary file: {reason}", place=str(folder), remedy=remedy)
