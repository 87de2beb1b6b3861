"""Open the directory of a run, or say precisely why it is none.

Tables are read when asked for, and only the columns that are asked for. Not here: what they mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from et_sim.errors import UsageError, did_you_mean
from et_sim.views.shape import (
    ACTOR_COLUMNS,
    MEMORY_COLUMNS,
    STALL_SHAPE,
    SUMMARY_SHAPE,
    TIMELINE_COLUMNS,
    column_misfit,
    misfit,
)

MANIFEST, SUMMARY, TIMELINE, ACTORS, MEMORY, STALL = (
    "run.json",
    "summary.json",
    "timeline.arrow",
    "actors.arrow",
    "memory.arrow",
    "stall.json",
)
NEEDED = (MANIFEST, SUMMARY, TIMELINE, ACTORS)
AGAIN = "simulate again with et-sim run"


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A complete directory of a run: its JSON files in memory, its tables within reach."""

    path: Path
    summary: dict[str, Any]
    manifest: dict[str, Any]
    stall: dict[str, Any] | None

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
        is_part = folder.name in (*NEEDED, MEMORY, STALL)
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
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            schema = pa.ipc.open_file(source).schema
            if found := column_misfit(schema, needed):
                raise UsageError(f"is not as et-sim run writes it: {found}", place=str(path), remedy=AGAIN)
            wanted = None if columns is None else [schema.get_field_index(name) for name in columns]
            options = pa.ipc.IpcReadOptions(included_fields=wanted)
            return pa.ipc.open_file(source, options=options).read_all()
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"cannot be read: {reason}", place=str(path), remedy=AGAIN) from None
