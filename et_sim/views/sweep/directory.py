"""Access to the directory of a sweep, with precise errors for directories that hold none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.basics.files import is_file
from et_sim.tables.sweep_tables import (
    ABOUT,
    BASE,
    DESCRIPTION,
    FIGURES,
    FILES,
    NUMBER,
    OBJECTIVES,
    SEARCH,
    TABLE,
)

AGAIN = "sweep again with et-sim sweep"
COMPLETE = "complete"  # status of a point with all figures
ALWAYS_KNOWN = ("makespan_ns", "bottleneck", "digest")


class SweepDirectory(Struct, frozen=True):
    """A sweep's table in memory, and its description."""

    path: Path
    table: Any
    axes: tuple[str, ...]
    points: int  # of the sweep; the table has the finished ones
    version: str = ""  # version of et-sim that wrote it
    search: Mapping[str, Any] | None = None  # result of a search, if it was one
    description: str = "DESCRIPTION.yml"  # name of its file
    base: Mapping[str, Any] | None = None  # the run that axes change; None: not recorded

    @property
    def spec(self) -> str:
        """Return the description file: beside the directory, if it exists there."""
        beside = self.path.parent / self.description
        return str(beside) if is_file(beside) else self.description

    def table_of(self, name: str) -> Any:
        """Return a table by its name."""
        return self.table if name == TABLE else _read(self.path / FILES[name])


def is_sweep(path: str | Path) -> bool:
    """Return whether a directory holds the table of a sweep."""
    return is_file(Path(path) / FILES[TABLE])


def open_sweep(path: str | Path) -> SweepDirectory:
    """Open a sweep's directory; raise a `UsageError` if it cannot be read."""
    folder = Path(path)
    table = _read(folder / FILES[TABLE])
    try:
        about = json.loads((table.schema.metadata or {})[ABOUT.encode()])
        axes, points = tuple(str(axis["name"]) for axis in about["axes"]), int(about["points"])
        search = _checked(about.get(SEARCH))
        description, base = str(about.get(DESCRIPTION, "DESCRIPTION.yml")), about.get(BASE)
    except (KeyError, TypeError, ValueError):
        raise UsageError(
            "has no description of the sweep", place=str(folder / FILES[TABLE]), remedy=AGAIN
        ) from None
    missing = {NUMBER, *axes, *(figure.name for figure in FIGURES)} - set(table.column_names)
    if missing:
        raise UsageError(
            f"column {sorted(missing)[0]!r} is missing", place=str(folder / FILES[TABLE]), remedy=AGAIN
        )
    _check(table, str(folder / FILES[TABLE]))
    version = str(about.get("et_sim", ""))
    return SweepDirectory(folder, table, axes, points, version, search, description, base)


def _check(table: Any, place: str) -> None:
    """Refuse figures of the wrong type, and complete points without figures."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for figure in FIGURES:
        column_type = table[figure.name].type
        if column_type != getattr(pa, figure.kind)():
            raise UsageError(
                f"column {figure.name!r} is of type {column_type}, not {figure.kind}",
                place=place,
                remedy=AGAIN,
            )
    for name in (NUMBER, "status"):
        if table[name].null_count:
            raise UsageError(f"column {name!r} has rows without a value", place=place, remedy=AGAIN)
    for name in table.column_names:
        column = table[name]
        if pa.types.is_floating(column.type) and pc.any(pc.invert(pc.is_finite(column))).as_py():
            raise UsageError(f"column {name!r} has values that are no numbers", place=place, remedy=AGAIN)
    done = table.filter(pc.equal(table["status"], COMPLETE))
    for name in ALWAYS_KNOWN:
        if done[name].null_count:
            raise UsageError(f"a point is complete, and its {name} is not known", place=place, remedy=AGAIN)


def _checked(search: Any) -> Mapping[str, Any] | None:
    """Return the description of a search; raise an error if it is invalid."""
    if search is None:
        return None
    numbers = {name: int(search[name]) for name in ("evaluated", "impossible", "ruled_out", "left")}
    objectives = {key: [str(name) for name in search.get(key, ())] for key in ("minimise", "maximise")}
    every = {name for names in objectives.values() for name in names}
    if not every or not every <= set(OBJECTIVES):
        raise ValueError("no objectives")
    return {**search, **numbers, **objectives, "front": list(map(int, search["front"]))}


def _read(path: Path) -> Any:
    import pyarrow as pa

    try:
        with pa.OSFile(str(path)) as source:
            table = pa.ipc.open_file(source).read_all()
            table.validate(full=True)
            return table
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"cannot be read: {reason}", place=str(path), remedy=AGAIN) from None
