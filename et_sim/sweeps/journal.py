"""The journal of a sweep: a line for every finished point, handed to the system as soon as it is there.

So a process that is killed loses nothing that was finished; a machine that goes down, the last moment. A torn
last line is cut off. One process at a time writes to a directory.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from msgspec import Struct, field

from et_sim.basics.errors import UsageError
from et_sim.basics.files import exists, is_folder
from et_sim.tables.sweep_tables import FIGURES, FILES, JOURNAL, TABLE

LOCK = "lock"
_TYPES: Mapping[str, Any] = MappingProxyType({"int64": int, "float64": int | float, "string": str})
SECONDS_BETWEEN_SYNCS = 0.25  # a disk takes its time for each, points may take less


class Finished(Struct, frozen=True):
    """A point that was evaluated: its row, and how long that took."""

    digest: str
    row: dict[str, Any]
    seconds: float

    def line(self) -> str:
        """As it stands in the journal."""
        return json.dumps(
            {"digest": self.digest, "seconds": self.seconds, "row": self.row}, ensure_ascii=False
        )


def check_folder(folder: Path) -> None:
    """Refuse a directory that holds something else than a sweep, or cannot be written."""
    if not exists(folder):
        return
    if not is_folder(folder):
        raise UsageError(f"{folder} is a file", remedy="name a directory with --out")
    names = sorted(file.name for file in folder.iterdir())
    if names and not {JOURNAL, LOCK, FILES[TABLE]} & set(names):
        raise UsageError(
            f"{folder} is not empty and does not hold a sweep",
            remedy="choose another directory with --out; nothing was overwritten",
        )


def holds_journal(folder: Path) -> bool:
    """Whether a sweep has begun in a directory."""
    return exists(folder / JOURNAL)


class Journal(Struct):
    """The journal of a directory, held alone; use as a context manager."""

    folder: Path
    finished: dict[str, Finished] = field(default_factory=dict)
    _synced: float = 0.0
    _lock: Any = None
    _file: Any = None

    def __enter__(self) -> Self:
        check_folder(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._read()
            self._file = (self.folder / JOURNAL).open("ab")
        except OSError as error:
            self._close()
            raise cannot_write(self.folder, error) from None
        except BaseException:
            self._close()
            raise
        return self

    def _take_lock(self) -> None:
        self._lock = (self.folder / LOCK).open("a+")
        try:
            import fcntl
        except ImportError:  # no locks here
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            owner = self._lock.read().strip()
            who = f" (process {owner})" if owner.isdecimal() else ""
            raise UsageError(
                f"another sweep is writing to this directory{who}",
                place=str(self.folder),
                remedy="wait until it is done, or choose another directory with --out",
            ) from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def _read(self) -> None:
        """Take what is there; the rest of a line that was being written is cut off."""
        path = self.folder / JOURNAL
        if not exists(path):
            return
        with path.open("r+b") as file:
            end = 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                end += len(line)
                record = _finished(line)
                if record is not None:
                    self.finished[record.digest] = record
            file.truncate(end)

    def add(self, finished: Iterable[Finished]) -> None:
        """Write points down."""
        records = list(finished)
        try:
            self._file.write(
                "".join(f"{record.line()}\n" for record in records).encode("utf-8", "surrogatepass")
            )
            self._file.flush()
        except OSError as error:
            raise cannot_write(self.folder, error) from None
        self.finished.update((record.digest, record) for record in records)
        if time.monotonic() - self._synced >= SECONDS_BETWEEN_SYNCS:
            self.sync()

    def sync(self) -> None:
        """Have all that was written on the disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise cannot_write(self.folder, error) from None
        self._synced = time.monotonic()

    def _close(self) -> None:
        for file in (self._file, self._lock):
            if file is not None:
                try:
                    file.close()
                except OSError:  # what a full disk did not take was refused before
                    continue

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


def _finished(line: bytes) -> Finished | None:
    """The point of a line; None if it is damaged: then it is evaluated again."""
    try:
        content = json.loads(line)
        digest, row, seconds = content["digest"], content["row"], float(content["seconds"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_sound = isinstance(digest, str) and isinstance(row, dict) and isinstance(row.get("status"), str)
    return Finished(digest, row, seconds) if is_sound and all(map(_fits, row.items())) else None


def _fits(entry: tuple[str, Any]) -> bool:
    """Whether the value of a row is of its column's kind."""
    name, value = entry
    if name == "warnings":
        return isinstance(value, list) and all(isinstance(text, str) for text in value)
    kind = next((figure.kind for figure in FIGURES if figure.name == name), "")
    return value is None or isinstance(value, _TYPES.get(kind, object))


def cannot_write(folder: Path, error: OSError) -> UsageError:
    """The refusal of a directory that does not take what is written."""
    return UsageError(
        f"cannot be written: {error.strerror or error}",
        place=str(folder),
        remedy="what is finished is kept; make room, or choose another directory with --out, and sweep again",
    )
