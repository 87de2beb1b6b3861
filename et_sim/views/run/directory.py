"""Open the directory of a run, or say precisely why it is none.

Tables are read when asked for, and only the columns that are asked for. Not here: what they mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from et_sim.errors import UsageError, did_you_mean
from et_sim.units import parse_ranks
from et_sim.views.run.schema import (
    ACTOR_COLUMNS,
    LAYER_COLUMNS,
    LINK_COLUMNS,
    MEMORY_COLUMNS,
    MESSAGE_COLUMNS,
    PATH_COLUMNS,
    PHASE_COLUMNS,
    STALL_SHAPE,
    SUMMARY_SHAPE,
    TIMELINE_COLUMNS,
    column_misfit,
    misfit,
    version_misfit,
)

MANIFEST, SUMMARY, TIMELINE, ACTORS, MEMORY, PHASES, MESSAGES, LINKS, LAYERS, PATH, STALL = (
    "run.json",
    "summary.json",
    "timeline.arrow",
    "actors.arrow",
    "memory.arrow",
    "phases.arrow",
    "messages.arrow",
    "links.arrow",
    "layers.arrow",
    "path.arrow",
    "stall.json",
)
NEEDED = (MANIFEST, SUMMARY, TIMELINE, ACTORS)
AGAIN = "simulate again with et-sim run"
# Every table that a run may hold, by the columns that views read, and how to come by those that it need not.
TABLES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "timeline": TIMELINE_COLUMNS,
        "actors": ACTOR_COLUMNS,
        "layers": LAYER_COLUMNS,
        "phases": PHASE_COLUMNS,
        "messages": MESSAGE_COLUMNS,
        "links": LINK_COLUMNS,
        "memory": MEMORY_COLUMNS,
        "path": PATH_COLUMNS,
    }
)
ABSENT: Mapping[str, str] = MappingProxyType(
    {
        "layers": "only runs of layer files hold it",
        "phases": "simulate with --detail phases",
        "messages": "simulate with --detail messages",
        "links": "simulate with --detail links",
        "memory": 'set "track-local-mem": 1 in the system file',
        "path": "simulate with --detail path",
    }
)


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A complete directory of a run: its JSON files in memory, its tables within reach."""

    path: Path
    summary: dict[str, Any]
    manifest: dict[str, Any]
    stall: dict[str, Any] | None

    def table_path(self, name: str) -> Path:
        """Where a table lies, if the run holds it."""
        return self.path / f"{name}.arrow"

    def holds(self, name: str) -> bool:
        """Whether the run holds a table."""
        return self.table_path(name).exists()

    def check_table(self, name: str) -> None:
        """Refuse a table that cannot be read."""
        with _opened(self.table_path(name), TABLES[name], ()):
            pass

    def batches(self, name: str, columns: Sequence[str], some: Sequence[int] | None = None) -> Iterator[Any]:
        """A table's rows with these columns, a record batch at a time, or `some` batches by their numbers.

        All share their dictionaries.
        """
        with _opened(self.table_path(name), TABLES[name], columns) as file:
            for number in range(file.num_record_batches) if some is None else some:
                yield file.get_batch(number).select(columns)

    def metadata(self, name: str) -> dict[bytes, bytes]:
        """What a table says of itself."""
        with _opened(self.table_path(name), TABLES[name], ()) as file:
            return dict(file.schema.metadata or {})

    def timeline(self, columns: Sequence[str] | None = None) -> Any:
        """timeline.arrow as a pyarrow.Table with these columns, or all."""
        return _read_table(self.path / TIMELINE, TIMELINE_COLUMNS, columns)

    def actors(self) -> Any:
        """actors.arrow as a pyarrow.Table, one row per actor in ascending order."""
        return _read_table(self.path / ACTORS, ACTOR_COLUMNS, None)

    def memory(self) -> Any:
        """memory.arrow as a pyarrow.Table; None if local memory was not tracked."""
        path = self.path / MEMORY
        return _read_table(path, MEMORY_COLUMNS, tuple(MEMORY_COLUMNS)) if path.exists() else None

    def phases(self, columns: Sequence[str]) -> Any:
        """phases.arrow as a pyarrow.Table with these columns; None if phases were not logged."""
        path = self.path / PHASES
        return _read_table(path, PHASE_COLUMNS, columns) if path.exists() else None

    def layers(self) -> Any:
        """layers.arrow as a pyarrow.Table; None if the workload is not a layer file."""
        path = self.path / LAYERS
        return _read_table(path, LAYER_COLUMNS, None) if path.exists() else None

    def actor_of(self, rank: int) -> int:
        """The actor that stands for a rank."""
        table = self.actors()
        for actor, ranks in zip(table["actor"].to_pylist(), table["ranks"].to_pylist(), strict=True):
            if any(rank in piece for piece in parse_ranks(ranks)):
                return int(actor)
        raise UsageError(f"there is no rank {rank}", place=str(self.path))

    def summary_text(self) -> str:
        """summary.json exactly as it lies on disk."""
        return (self.path / SUMMARY).read_text(encoding="utf-8")


def open_run(path: str | Path) -> RunDirectory:
    """Open a run's directory; every refusal is a `UsageError` that says what to do."""
    folder = Path(path)
    _check_is_run(folder)
    stall = folder / STALL
    return RunDirectory(
        path=folder,
        summary=_read_json(folder / SUMMARY, SUMMARY_SHAPE),
        manifest=_read_json(folder / MANIFEST, {}),
        stall=_read_json(stall, STALL_SHAPE) if stall.exists() else None,
    )


def _check_is_run(folder: Path) -> None:
    if not folder.exists():
        raise UsageError("there is no such run", place=str(folder), remedy=_nearby(folder))
    if not folder.is_dir():
        is_part = folder.name in (*NEEDED, MEMORY, PHASES, MESSAGES, LINKS, LAYERS, PATH, STALL)
        remedy = f"name its directory: {folder.parent}" if is_part else _nearby(folder)
        raise UsageError("is a file, not the directory of a run", place=str(folder), remedy=remedy)
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    if len(missing) == len(NEEDED):
        raise UsageError("is not the directory of a run", place=str(folder), remedy=_nearby(folder))
    if missing:
        raise UsageError(f"is incomplete: {', '.join(missing)} missing", place=str(folder), remedy=AGAIN)


def _nearby(folder: Path) -> str:
    """Which runs lie inside or beside a path that holds none."""
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
    except OSError:
        return []


def _read_json(path: Path, shape: Mapping[str, Any]) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot be read: {error}", place=str(path), remedy=AGAIN) from None
    if not isinstance(content, dict):
        raise UsageError("does not hold a JSON object", place=str(path), remedy=AGAIN)
    if found := misfit(content, shape):
        raise UsageError(f"is not as et-sim run writes it: {found}", place=str(path), remedy=AGAIN)
    return content


def _read_table(path: Path, needed: Mapping[str, str], columns: Sequence[str] | None) -> Any:
    with _opened(path, needed, columns) as file:
        return file.read_all()


@contextmanager
def _opened(path: Path, needed: Mapping[str, str], columns: Sequence[str] | None) -> Iterator[Any]:
    """An Arrow file, open for reading these columns, or all; what cannot be read is refused."""
    import pyarrow as pa

    try:
        with pa.OSFile(str(path)) as source:  # mapping it would keep all that was read in memory
            schema = pa.ipc.open_file(source).schema
            if found := version_misfit(schema):
                raise UsageError(found, place=str(path), remedy="look at it with the et-sim that wrote it")
            if found := column_misfit(schema, needed):
                raise UsageError(f"is not as et-sim run writes it: {found}", place=str(path), remedy=AGAIN)
            wanted = None if columns is None else [schema.get_field_index(name) for name in columns]
            yield pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=wanted))
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"cannot be read: {reason}", place=str(path), remedy=AGAIN) from None
