"""The journal of a sweep: a line for every finished point, passed to the system at once.

So a killed process loses no finished point; a machine that fails loses the last moment. A torn last line is
cut off. One process at a time writes to a directory.

The table of a sweep follows from the journal: a row for every finished point, in the order of points,
independent of the runner. Evaluation times are a separate table, since they vary.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from msgspec import Struct, field

from et_sim.basics.errors import UsageError, unreadable
from et_sim.basics.files import exists, is_folder, new_file
from et_sim.sweeps.axes import SweepAxis, Values
from et_sim.tables.sweep_tables import (
    ABOUT,
    FIGURES,
    FILES,
    JOURNAL,
    NUMBER,
    TABLE,
    TIMES,
)
from et_sim.version import __version__

LOCK = "lock"
_TYPES: Mapping[str, Any] = MappingProxyType({"int64": int, "float64": int | float, "string": str})
SECONDS_BETWEEN_SYNCS = 0.25  # syncing a disk may take longer than a point


class Finished(Struct, frozen=True):
    """An evaluated point: its row, and the time that its evaluation took."""

    digest: str
    row: dict[str, Any]
    seconds: float

    def line(self) -> str:
        """Return its line of the journal."""
        return json.dumps(
            {"digest": self.digest, "seconds": self.seconds, "row": self.row}, ensure_ascii=False
        )


def check_folder(folder: Path) -> None:
    """Refuse a directory that holds anything but a sweep, or cannot be written."""
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
    """Return whether a sweep has begun in a directory."""
    return exists(folder / JOURNAL)


class Journal(Struct):
    """The journal of a directory, locked for this process; a context manager."""

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
        except ImportError:  # no locks on this system
            return
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            owner = self._lock.read().strip()
            process = f" (process {owner})" if owner.isdecimal() else ""
            raise UsageError(
                f"another sweep is writing to this directory{process}",
                place=str(self.folder),
                remedy="wait until it is done, or choose another directory with --out",
            ) from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()

    def _read(self) -> None:
        """Read finished points; cut off a torn last line."""
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
        """Append points."""
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
        """Flush everything to the disk."""
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
                except OSError:  # a full disk was refused before
                    continue

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()


def _finished(line: bytes) -> Finished | None:
    """Return the point of a line; None if it is damaged, so that it is evaluated again."""
    try:
        content = json.loads(line)
        digest, row, seconds = content["digest"], content["row"], float(content["seconds"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    is_sound = isinstance(digest, str) and isinstance(row, dict) and isinstance(row.get("status"), str)
    return Finished(digest, row, seconds) if is_sound and all(map(_fits, row.items())) else None


def _fits(entry: tuple[str, Any]) -> bool:
    """Return whether the value of a row is of its column's kind."""
    name, value = entry
    if name == "warnings":
        return isinstance(value, list) and all(isinstance(text, str) for text in value)
    kind = next((figure.kind for figure in FIGURES if figure.name == name), "")
    return value is None or isinstance(value, _TYPES.get(kind, object))


def cannot_write(folder: Path, error: OSError) -> UsageError:
    """Return the refusal of a directory that cannot be written."""
    return UsageError(
        f"cannot be written: {unreadable(error)}",
        place=str(folder),
        remedy="finished points are kept; free some space, or choose another --out, and sweep again",
    )


class Point(Struct, frozen=True):
    """A point of a sweep: its number, from 0 on, the values of its axes, and the digest of its inputs."""

    number: int
    values: Values
    digest: str


def table_of(
    axes: Sequence[SweepAxis],
    points: Sequence[Point],
    finished: Mapping[str, Finished],
    about: Mapping[str, Any],
) -> Any:
    """Return the rows of the finished points, as a pyarrow.Table.

    `about` is added to its metadata.
    """
    import pyarrow as pa

    done = [point for point in points if point.digest in finished]
    columns: dict[str, Any] = {NUMBER: pa.array([point.number for point in done], pa.int64())}
    for place, axis in enumerate(axes):
        columns[axis.name] = _column([point.values[place] for point in done])
    rows = [{**finished[point.digest].row, "digest": point.digest} for point in done]
    for row in rows:
        row["warnings"] = "; ".join(row.get("warnings", ()))
    types = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}
    for figure in FIGURES:
        columns[figure.name] = pa.array([row.get(figure.name) for row in rows], types[figure.kind])
    metadata = {
        "et_sim": __version__,
        "points": len(points),
        "axes": [{"name": axis.name, "field": str(axis.field)} for axis in axes],
        **about,
    }
    return pa.table(columns).replace_schema_metadata({ABOUT: json.dumps(metadata, ensure_ascii=False)})


def times_of(finished: Mapping[str, Finished]) -> Any:
    """Return the evaluation time of every point that was ever evaluated in a directory."""
    import pyarrow as pa

    records = sorted(finished.values(), key=lambda record: record.digest)
    seconds = pa.array([record.seconds for record in records], pa.float64())
    return pa.table(
        {"digest": pa.array([record.digest for record in records], pa.string()), "seconds": seconds}
    )


def write_tables(folder: Path, table: Any, times: Any) -> None:
    """Write both tables, each whole or not at all."""
    import pyarrow as pa

    for name, content in ((TIMES, times), (TABLE, table)):
        try:
            with new_file(folder / FILES[name]) as sink, pa.ipc.new_file(sink, content.schema) as out:
                out.write_table(content)
        except OSError as error:
            raise cannot_write(folder, error) from None
        except UsageError as error:
            raise UsageError(
                error.cause,
                place=error.place,
                remedy="finished points are kept: free some space, and sweep again",
            ) from None


def _column(values: Sequence[Any]) -> Any:
    """Return values of an axis in the narrowest type that holds all of them; composite values become JSON."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pa.array(values, pa.int64())
    if kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    texts = [value if isinstance(value, str) or value is None else json.dumps(value) for value in values]
    return pa.array(texts, pa.string())
