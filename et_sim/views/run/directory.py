"""Access to the directory of a run, with precise errors for directories that hold none.

Tables are read on demand, and only the requested columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from et_sim.basics.errors import UsageError, did_you_mean, unreadable
from et_sim.basics.files import exists, in_shell, is_file, is_folder
from et_sim.basics.units import parse_ranks
from et_sim.tables.declaration import Table
from et_sim.tables.registry import (
    MANIFEST,
    SERVING_TABLES,
    STALL,
    SUMMARY,
    all_files,
    needed_files,
    table_named,
)
from et_sim.views.run.columns import Words, array_of, extent, integers, joined, words
from et_sim.views.run.faults import fault_of
from et_sim.views.run.names import stems_of

if TYPE_CHECKING:
    from et_sim.tables.serving_summary import ServingSummary
    from et_sim.tables.summary import Manifest, Stall, Summary

AGAIN = "simulate again with et-sim run"
SERVING = "serving"  # key of the manifest
MOST_MAPPED = 1 << 20  # bytes of a file


class RunDirectory(Struct, frozen=True, dict=True):
    """A complete directory of a run: its JSON files are in memory, its tables are read on demand."""

    path: Path
    summary: Summary
    manifest: Manifest
    stall: Stall | None

    @property
    def is_serving(self) -> bool:
        """Return whether et-sim serve wrote the directory; such a directory has no ranks."""
        return SERVING in self.manifest

    @property
    def serving_summary(self) -> ServingSummary:
        """Return the summary of what et-sim serve wrote."""
        return cast("ServingSummary", self.summary)

    def table_path(self, name: str) -> Path:
        """Return the path of a table; the file need not exist."""
        return self.path / table_named(name).file

    def holds(self, name: str) -> bool:
        """Return whether the run holds a table."""
        return self.table_path(name).exists()

    def check_table(self, name: str) -> None:
        """Read a whole table to check it, for readers that trust the file; refuse a damaged one."""
        with self._opened(name, None) as file:
            for number in range(file.num_record_batches):
                file.get_batch(number).validate(full=True)

    def batches(
        self, name: str, columns: Sequence[str], numbers: Sequence[int] | None = None
    ) -> Iterator[Any]:
        """Yield these columns of a table, one record batch at a time; `numbers` selects batches.

        All batches share their dictionaries.
        """
        rows_of = self._rows_referred_to(name, columns)
        with self._opened(name, columns) as file:
            for number in range(file.num_record_batches) if numbers is None else numbers:
                batch = file.get_batch(number)
                batch.validate(full=True)
                self._check_references(name, batch, rows_of)
                yield batch.select(columns)

    def columns(self, name: str) -> list[str]:
        """Return the columns that a table has in this run."""
        with self._opened(name, None) as file:
            return list(file.schema.names)

    def metadata(self, name: str) -> dict[bytes, bytes]:
        """Return the metadata of a table."""
        with self._opened(name, ()) as file:
            return dict(file.schema.metadata or {})

    def table(self, name: str, columns: Sequence[str] | None = None) -> Any:
        """Return a table with these columns, or all; None if the run does not hold it."""
        if not self.holds(name):
            return None
        with self._opened(name, columns) as file:
            content = file.read_all()
            content.validate(full=True)
        self._check_references(name, content, self._rows_referred_to(name, columns))
        return content

    def arrays(self, name: str, columns: Sequence[str]) -> dict[str, Any]:
        """Return a whole table as numpy arrays: nulls of whole numbers become -1, texts become `Words`."""
        declared = {column.name: column for column in table_named(name).columns}
        kinds = {column.name: column.kind for column in declared.values()}
        parts: dict[str, list[Any]] = {column: [] for column in columns}
        for rows in self.batches(name, columns):
            for column, arrays in parts.items():
                if rows[column].null_count and not declared[column].may_be_null:
                    message = f"is damaged: column {column!r} lacks a value"
                    raise UsageError(message, place=str(self.table_path(name)), remedy=AGAIN)
                arrays.append(array_of(rows[column], kinds[column]))
        return {column: joined(arrays, kinds[column]) for column, arrays in parts.items()}

    def _rows_referred_to(self, name: str, columns: Sequence[str] | None) -> dict[str, tuple[str, int]]:
        """Return (table, row count) by column that holds row numbers of another table."""
        tables, rows = {}, self._rows
        for column in table_named(name).columns:
            table = column.refers_to
            if not table or (columns is not None and column.name not in columns) or not self.holds(table):
                continue
            if table not in rows:
                with self._opened(table, None) as file:
                    rows[table] = file.count_rows()
            tables[column.name] = table, rows[table]
        return tables

    @cached_property
    def _rows(self) -> dict[str, int]:
        """Return the cache of row counts of tables; views read a table many times."""
        return {}

    def _check_references(self, name: str, content: Any, rows_of: Mapping[str, tuple[str, int]]) -> None:
        """Refuse row numbers that are out of range, before anything is allocated by them."""
        for column, (table, rows) in rows_of.items():
            for row in extent(content[column]) or ():
                if not 0 <= row < rows:
                    place = str(self.table_path(name))
                    message = f"is damaged: column {column!r} names row {row} of {table}"
                    raise UsageError(message, place=place, remedy=AGAIN)

    @cached_property
    def stems(self) -> Words:
        """Return the stems of the names of nodes, by the codes of the names."""
        names = (words(rows["name"]) for rows in self.batches("timeline", ("name",)))
        return stems_of(next(names, Words((None,), ())))

    def actors(self) -> Any:
        """Return actors.arrow: one row per actor, in ascending order."""
        actors = self.table("actors")
        self._check_references("actors", actors, {"actor": ("the actors", len(actors))})
        return actors

    def rank_counts(self) -> Any:
        """Return the number of ranks of every actor; the numbers add up to the ranks of the run."""
        counts, ranks = integers(self.actors()["rank_count"], missing=0), self.summary["ranks"]
        if not all(0 < count <= ranks for count in counts.tolist()) or counts.sum() != ranks:
            place = str(self.table_path("actors"))
            raise UsageError(
                f"is damaged: its actors do not have the run's {ranks} ranks", place=place, remedy=AGAIN
            )
        return counts

    def actor_of(self, rank: int) -> int:
        """Return the actor that stands for a rank."""
        table = self.actors()
        for actor, ranks in zip(table["actor"].to_pylist(), table["ranks"].to_pylist(), strict=True):
            if any(rank in piece for piece in parse_ranks(ranks)):
                return int(actor)
        raise UsageError(f"there is no rank {rank}", place=str(self.path))

    def summary_text(self) -> str:
        """Return the exact text of summary.json."""
        return (self.path / SUMMARY).read_text(encoding="utf-8")

    def _opened(self, name: str, columns: Sequence[str] | None) -> AbstractContextManager[Any]:
        return _opened(self.table_path(name), table_named(name), columns)


def open_tables(path: str | Path) -> RunDirectory:
    """Open the directory of a run or of a serving; for callers that need only tables."""
    return open_serving(path) if is_serving(path) else open_run(path)


def open_serving(path: str | Path) -> RunDirectory:
    """Open a directory that et-sim serve wrote; raise a `UsageError` if it cannot be read."""
    folder = Path(path)
    if missing := [table.file for table in SERVING_TABLES if not (folder / table.file).is_file()]:
        raise UsageError(
            f"is incomplete: {', '.join(missing)} missing", place=str(folder), remedy="serve again"
        )
    from et_sim.tables.serving_summary import ServingSummary

    summary = _read_json(folder / SUMMARY, ServingSummary, "serve")
    return RunDirectory(folder, summary, _read_json(folder / MANIFEST, dict, "serve"), None)


def is_serving(path: str | Path) -> bool:
    """Return whether et-sim serve wrote a directory."""
    manifest = Path(path) / MANIFEST
    return is_file(manifest) and SERVING in _read_json(manifest, dict)


def open_run(path: str | Path) -> RunDirectory:
    """Open the directory of a run; raise a `UsageError` with a remedy if it cannot be read."""
    folder = Path(path)
    if is_serving(folder):
        raise UsageError(
            "was written by et-sim serve, and has no ranks",
            place=str(folder),
            remedy="look at it with et-sim inspect, report or sql",
        )
    _check_is_run(folder)
    from et_sim.tables.summary import Manifest, Stall, Summary

    return _run_in(folder, Summary, Manifest, Stall)


def open_written(folder: Path) -> RunDirectory:
    """Open the directory of a run that this process has written: its files have all keys."""
    return _run_in(folder, dict, dict, dict)


def _run_in(folder: Path, summary: Any, manifest: Any, stall: Any) -> RunDirectory:
    """Return the run in a directory, whose JSON files have the keys of these types."""
    path = folder / STALL
    return RunDirectory(
        path=folder,
        summary=_read_json(folder / SUMMARY, summary),
        manifest=_read_json(folder / MANIFEST, manifest),
        stall=_read_json(path, stall) if path.exists() else None,
    )


def _check_is_run(folder: Path) -> None:
    from et_sim.tables.sweep_tables import FILES, JOURNAL
    from et_sim.tables.sweep_tables import TABLE as SWEEP

    if not exists(folder):
        raise UsageError("there is no such run", place=str(folder), remedy=_nearby(folder))
    if not is_folder(folder):
        is_part = folder.name in all_files()
        remedy = f"name its directory: {folder.parent}" if is_part else _nearby(folder)
        raise UsageError("is a file, not the directory of a run", place=str(folder), remedy=remedy)
    needed = needed_files()
    missing = [name for name in needed if not (folder / name).is_file()]
    if is_file(folder / FILES[SWEEP]):
        remedy = f"look at it with et-sim inspect {in_shell(folder)}"
        raise UsageError("is a sweep, not the directory of a run", place=str(folder), remedy=remedy)
    if is_file(folder / JOURNAL):
        remedy = "finished points are kept: repeat the same et-sim sweep command"
        raise UsageError("is a sweep that ended before it wrote its table", place=str(folder), remedy=remedy)
    if len(missing) == len(needed):
        raise UsageError("is not the directory of a run", place=str(folder), remedy=_nearby(folder))
    if missing:
        raise UsageError(f"is incomplete: {', '.join(missing)} missing", place=str(folder), remedy=AGAIN)


def _nearby(folder: Path) -> str:
    """Return a remedy that lists runs inside or beside a path."""
    if inside := _runs_in(folder):
        return f"runs in it: {', '.join(inside[:5])}"
    beside = _runs_in(folder.parent)
    if guess := did_you_mean(str(folder), beside):
        return guess
    if beside:
        return f"runs beside it: {', '.join(beside[:5])}"
    return "name a directory that et-sim run wrote"


def _runs_in(folder: Path) -> list[str]:
    try:
        return sorted(str(entry) for entry in folder.iterdir() if (entry / MANIFEST).is_file())
    except (OSError, ValueError):
        return []


def _read_json(path: Path, kind: Any, writer: str = "run") -> Any:
    """Return the content of a JSON file that has all keys of a kind; refuse other files."""
    again = f"simulate again with et-sim {writer}"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot be read: {unreadable(error)}", place=str(path), remedy=again) from None
    if not isinstance(content, dict):
        raise UsageError("does not hold a JSON object", place=str(path), remedy=again)
    if reason := fault_of(content, kind):
        raise UsageError(f"is not as et-sim {writer} writes it: {reason}", place=str(path), remedy=again)
    return content


@contextmanager
def _opened(path: Path, table: Table, columns: Sequence[str] | None) -> Iterator[Any]:
    """Open an Arrow file to read these columns, or all; refuse a file that cannot be read."""
    import pyarrow as pa

    from et_sim.tables.arrow import column_misfit, version_misfit

    try:
        is_small = 0 < path.stat().st_size < MOST_MAPPED
        # A mapped file stays in memory, but needs no threads, which cost more than reading a small file.
        with (pa.memory_map if is_small else pa.OSFile)(str(path)) as source:
            schema = pa.ipc.open_file(source).schema
            if reason := version_misfit(schema):
                raise UsageError(reason, place=str(path), remedy=AGAIN)
            if reason := column_misfit(schema, table):
                raise UsageError(f"is not as et-sim run writes it: {reason}", place=str(path), remedy=AGAIN)
            wanted = None if columns is None else [schema.get_field_index(name) for name in columns]
            options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=not is_small)
            yield pa.ipc.open_file(source, options=options)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"cannot be read: {reason}", place=str(path), remedy=AGAIN) from None
