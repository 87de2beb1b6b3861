"""The table of a sweep: a row for every finished point, in the order of the points, whoever evaluated them.

How long points took is a table of its own, since that differs from time to time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import UsageError
from et_sim.sweeps.axes import Axis, Values
from et_sim.sweeps.journal import Finished, cannot_write
from et_sim.tables.sweep_tables import ABOUT, DESCRIPTION, FIGURES, FILES, NUMBER, SEARCH, TABLE, TIMES
from et_sim.version import __version__


class Point(Struct, frozen=True):
    """A point of a sweep: its number, from 0 on, the values of its axes, and the digest of its inputs."""

    number: int
    values: Values
    digest: str


def table_of(
    axes: Sequence[Axis],
    points: Sequence[Point],
    finished: Mapping[str, Finished],
    search: Mapping[str, Any] | None = None,
    description: str | None = None,
) -> Any:
    """The rows of the points that are finished, as a pyarrow.Table; `search` is what a search found, and
    `description` the name of the file."""
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
    about = {
        "et_sim": __version__,
        "points": len(points),
        "axes": [{"name": axis.name, "field": str(axis.field)} for axis in axes],
        **({} if description is None else {DESCRIPTION: description}),
        **({} if search is None else {SEARCH: search}),
    }
    return pa.table(columns).replace_schema_metadata({ABOUT: json.dumps(about, ensure_ascii=False)})


def times_of(finished: Mapping[str, Finished]) -> Any:
    """How long every point took that was ever evaluated in a directory."""
    import pyarrow as pa

    records = sorted(finished.values(), key=lambda record: record.digest)
    seconds = pa.array([record.seconds for record in records], pa.float64())
    return pa.table(
        {"digest": pa.array([record.digest for record in records], pa.string()), "seconds": seconds}
    )


def write_tables(folder: Path, table: Any, times: Any) -> None:
    """Write both, each complete or not at all."""
    import pyarrow as pa

    from et_sim.basics.files import new_file

    for name, content in ((TIMES, times), (TABLE, table)):
        try:
            with new_file(folder / FILES[name]) as sink, pa.ipc.new_file(sink, content.schema) as out:
                out.write_table(content)
        except OSError as error:
            raise cannot_write(folder, error) from None
        except UsageError as error:
            raise UsageError(
                error.cause, place=error.place, remedy="what is finished is kept: make room, and sweep again"
            ) from None


def _column(values: Sequence[Any]) -> Any:
    """Values of an axis in the narrowest type that holds all of them; what is no plain value, as JSON."""
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
