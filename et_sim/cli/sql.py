"""`et-sim sql`: query the tables of a run in SQL."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from et_sim.basics.declared_options import EITHER, Command, Option
from et_sim.basics.errors import UsageError
from et_sim.basics.files import new_file

SCREEN = Path("-")


class Options(Command):
    """Query the tables of a run in SQL (DuckDB's dialect). Tables: timeline, actors, ranks, run, and phases,
    layers, memory, path where the run holds them; of et-sim serve: requests, iterations; of a sweep:
    sweep, times.
    """

    directory: Annotated[str, "directory that et-sim run, serve or sweep wrote", "RUN"]
    query: Annotated[str, 'such as "SELECT kind, count(*) FROM timeline GROUP BY kind"', "QUERY"]
    csv: Annotated[
        Path | None, "give all rows as CSV, on stdout if no FILE is named", "FILE", Option(words="?"), EITHER
    ] = None
    json: Annotated[
        Path | None,
        "give all rows as a JSON list of objects, on stdout if no FILE is named",
        "FILE",
        Option(words="?"),
        EITHER,
    ] = None
    arrow: Annotated[
        Path | None,
        "give all rows as an Arrow IPC file",
        "FILE",
        Option(words="?"),
        EITHER,
    ] = None


def run(options: Options) -> int:
    """Print or write the result."""
    from et_sim.views.run.directory import open_tables
    from et_sim.views.sql import Database, QueryResult, SweepDatabase
    from et_sim.views.sweep.directory import is_sweep, open_sweep

    targets = {"csv": options.csv, "json": options.json, "arrow": options.arrow}
    given = ((form, target) for form, target in targets.items() if target is not None)
    form, target = next(given, ("text", SCREEN))
    if form == "arrow" and target == SCREEN:
        raise UsageError("--arrow needs a file", remedy="--arrow answer.arrow")
    folder = options.directory
    opened = SweepDatabase(open_sweep(folder)) if is_sweep(folder) else Database(open_tables(folder))
    with opened as database:
        answer = QueryResult(database, options.query)
        if form == "text":
            print(answer.text())
        elif form == "arrow":
            answer.write_arrow(target)
        else:
            _give(answer.csv_lines() if form == "csv" else answer.json_lines(), target)
    return 0


def _give(texts: Iterator[str], target: Path) -> None:
    if target == SCREEN:
        for text in texts:
            sys.stdout.write(text)
        return

    with new_file(target) as sink:
        for text in texts:
            sink.write(text.encode())
