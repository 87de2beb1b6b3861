"""`et-sim sql`: ask a run's tables a question in SQL."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from et_sim.basics.errors import UsageError

SCREEN = Path("-")
FORMATS = ("csv", "json", "arrow")


def add_parser(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "sql",
        description="Ask a run's tables a question in SQL (DuckDB's dialect). Tables: timeline, actors, "
        "ranks, run, and phases, layers, memory, path where the run holds them; of et-sim serve: requests, "
        "iterations; of a sweep: sweep, times.",
    )
    parser.add_argument("directory", metavar="RUN", help="directory that et-sim run, serve or sweep wrote")
    parser.add_argument(
        "query", metavar="QUERY", help='such as "SELECT kind, count(*) FROM timeline GROUP BY kind"'
    )
    where = parser.add_mutually_exclusive_group()
    for name, meaning in (("csv", "CSV"), ("json", "a JSON list of objects"), ("arrow", "an Arrow IPC file")):
        where.add_argument(
            f"--{name}",
            nargs="?",
            const=SCREEN,
            type=Path,
            metavar="FILE",
            help=f"give all rows as {meaning}"
            + (", on stdout if no FILE is named" if name != "arrow" else ""),
        )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print or write the answer."""
    from et_sim.views.run.directory import open_tables
    from et_sim.views.sql import Database, QueryResult, SweepDatabase
    from et_sim.views.sweep.directory import is_sweep, open_sweep

    form = next((name for name in FORMATS if getattr(options, name) is not None), "text")
    if form == "arrow" and options.arrow == SCREEN:
        raise UsageError("--arrow needs a file", remedy="--arrow answer.arrow")
    folder = options.directory
    opened = SweepDatabase(open_sweep(folder)) if is_sweep(folder) else Database(open_tables(folder))
    with opened as database:
        answer = QueryResult(database, options.query)
        if form == "text":
            print(answer.text())
        elif form == "arrow":
            answer.write_arrow(options.arrow)
        else:
            _give(answer.csv_lines() if form == "csv" else answer.json_lines(), getattr(options, form))
    return 0


def _give(texts: Iterator[str], target: Path) -> None:
    if target == SCREEN:
        for text in texts:
            sys.stdout.write(text)
        return
    from et_sim.basics.files import new_file

    with new_file(target) as sink:
        for text in texts:
            sink.write(text.encode())
