"""Search for damage in a run's tables: values against the declared columns, and tables against each other.

It reads the whole run, so it only runs after a view has failed; a run that et-sim wrote is sound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from et_sim.basics.errors import EtSimError, UsageError
from et_sim.basics.units import parse_ranks
from et_sim.tables.declaration import Column
from et_sim.tables.registry import all_tables
from et_sim.views.run.columns import extent, integers, numbers
from et_sim.views.run.directory import AGAIN, RunDirectory, open_run

_MOST = 1e100  # limit of figures without a unit and of averages, so that a product of two is finite


def explain_damage(path: Any) -> EtSimError | None:
    """Return the reason why a directory of a run cannot be read; None if it is sound."""
    try:
        run = open_run(path)
        finding = next(_findings(run), None)
    except EtSimError as error:
        return error
    return finding and UsageError(f"is damaged: {finding[1]}", place=str(run.path / finding[0]), remedy=AGAIN)


def _findings(run: RunDirectory) -> Iterator[tuple[str, str]]:
    """Yield (file, predicate of a sentence about the fault)."""
    yield from _of_actors(run)
    for table in all_tables():
        if not run.holds(table.name):
            continue
        content = run.table(table.name)
        for column in table.columns:
            if column.name not in content.column_names:
                continue
            for wrong in _of_column(column, content[column.name]):
                yield table.file, wrong
    for name, whose in (("groups", "a group's"), ("resources", "a link's")):
        if run.holds(name):
            named = run.table(name, ("ranks",))["ranks"].unique().drop_null().to_pylist()
            yield from (
                (f"{name}.arrow", f"{whose} ranks are {text!r}") for text in named if not _are_ranks(text)
            )
    if not _is_in_order(run.table("timeline"), "node", 1):
        yield "timeline.arrow", "its nodes are not in the order of actors and ids, each once"
    if run.holds("memory") and not _is_in_order(run.table("memory"), "time_ns", 0):
        yield "memory.arrow", "its changes are not in the order of actors and time"


def _of_actors(run: RunDirectory) -> Iterator[tuple[str, str]]:
    """Yield faults of actors: they are numbered from 0, and every rank belongs to one."""
    table = run.actors()
    if table["actor"].to_pylist() != list(range(len(table))):
        yield "actors.arrow", "its actors are not numbered from 0 on"
    if not len(table):
        yield "actors.arrow", "it has no actors"
    total = 0
    for ranks, count in zip(table["ranks"].to_pylist(), table["rank_count"].to_pylist(), strict=True):
        try:
            named = sum(len(piece) for piece in parse_ranks(ranks))
        except UsageError:
            named = -1
        if named != count:
            yield "actors.arrow", f"an actor has {count} ranks and names {ranks!r}"
        total += count or 0
    if total != run.summary["ranks"]:
        yield "actors.arrow", f"its actors have {total} ranks, and the run has {run.summary['ranks']}"


def _of_column(column: Column, values: Any) -> Iterator[str]:
    if values.null_count and not column.may_be_null:
        yield f"column {column.name!r} lacks a value"
    if column.kind == "float64" and (np.abs(numbers(values)) > _MOST).any():
        yield f"column {column.name!r} has a figure above {_MOST:.0e}"
    if column.range is None or column.kind == "float64" or (bounds := extent(values)) is None:
        return
    (least, most), (low, high) = column.range, bounds
    if not least <= low <= high <= most:
        quantity = "time" if column.unit == "ns" else "size"
        yield f"column {column.name!r} has a {quantity} of {high if high > most else low} {column.unit}"


def _is_in_order(content: Any, name: str, least: int) -> bool:
    """Return whether rows are ordered by actor, and values of an actor grow by at least `least`."""
    actor, value = integers(content["actor"], missing=-1), numbers(content[name])
    later = value[1:] >= value[:-1] + value.dtype.type(least)
    return bool(((np.diff(actor) > 0) | ((np.diff(actor) == 0) & later)).all())


def _are_ranks(text: str) -> bool:
    try:
        return bool(parse_ranks(text))
    except UsageError:
        return False
