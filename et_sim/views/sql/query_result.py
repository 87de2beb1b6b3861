"""Answers to SQL: one query on a run, as a text table, CSV, JSON or an Arrow file.

What DuckDB refuses is reported as a sentence, with the tables and columns that there are. Answers are passed
on in blocks, so that their length does not matter. Not here: which tables there are (`database`).
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.files import new_file
from et_sim.views.sql.database import Database
from et_sim.views.text import cut, fitted, terminal_width

AT_ONCE = 10_000  # rows
SHOWN_ROWS = 200
WIDEST_CELL, NARROWEST_TEXT = 60, 12
ANY_WIDTH = 1 << 16  # where there is no terminal to fit
NUMBERS = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL.*)", re.ASCII)
_MAIN = "timeline"  # whose columns are told if a query names no table
_NO_TABLE = re.compile(r"Table with name (\S+) does not exist")
_NO_COLUMN = re.compile(
    r'Referenced column "([^"]+)" not found|"([^"]+)" does not have a column named "([^"]+)"'
)
_GROUP = re.compile(r'(?<!")\bgroup\b(?!"|\s+by\b)', re.IGNORECASE)
_NEAR = re.compile(r'syntax error at or near "(.*)"')


class QueryResult:
    """The rows of one query, still to be fetched."""

    def __init__(self, database: Database, query: str) -> None:
        self._database, self._query = database, query
        with _Refusals(database, query):
            _check_is_one_question(database.connection.extract_statements(query))
            self._relation = database.connection.sql(query)
        self.columns: tuple[str, ...] = tuple(self._relation.columns)
        self._is_number = [bool(NUMBERS.fullmatch(str(kind))) for kind in self._relation.types]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """All rows; each call asks again."""
        with _Refusals(self._database, self._query):
            cursor = self._database.connection.execute(self._query)
        while True:
            with _Refusals(self._database, self._query):
                block = cursor.fetchmany(AT_ONCE)
            if not block:
                return
            yield from block

    def text(self) -> str:
        """The first rows as a table for people."""
        shown, width = list(islice(self.rows(), SHOWN_ROWS + 1)), terminal_width(ANY_WIDTH)
        rows = [self.columns, *([_cell(value) for value in row] for row in shown[:SHOWN_ROWS])]
        texts = [column for column, is_number in enumerate(self._is_number) if not is_number]
        lines = fitted(
            [[cut(cell, WIDEST_CELL) for cell in row] for row in rows],
            "".join(">" if is_number else "<" for is_number in self._is_number),
            width,
            shrink=dict.fromkeys(texts, NARROWEST_TEXT),
            drop=range(len(self.columns) - 1, 0, -1),
            names=texts,
        )
        if len(shown) > SHOWN_ROWS:
            lines.append(f"… and more rows than these {SHOWN_ROWS}: --csv, --json and --arrow give all")
        return "\n".join(lines)

    def csv_lines(self) -> Iterator[str]:
        """CSV with a line of column names; null is empty."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.columns)
        for row in self.rows():
            writer.writerow(row)
            if buffer.tell() > 1 << 16:
                yield buffer.getvalue()
                buffer.seek(0)
                buffer.truncate()
        yield buffer.getvalue()

    def json_lines(self) -> Iterator[str]:
        """A JSON list with an object for each row."""
        self._check_names_differ()
        before = "[\n"
        for row in self.rows():
            values = {name: _plain(value) for name, value in zip(self.columns, row, strict=True)}
            yield f"{before}  {json.dumps(values, ensure_ascii=False, default=str)}"
            before = ",\n"
        yield "[]\n" if before == "[\n" else "\n]\n"

    def write_arrow(self, target: Path) -> None:
        """An Arrow IPC file; sums, which DuckDB makes in 128 bits, are 64 bits wide where they fit."""
        import pyarrow as pa

        with _Refusals(self._database, self._query), new_file(target) as sink:
            reader = self._relation.to_arrow_reader(AT_ONCE)
            schema = pa.schema([_narrowed(column) for column in reader.schema])
            with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as out:
                for batch in reader:
                    out.write_batch(_fitted(batch, schema))

    def _check_names_differ(self) -> None:
        for place, name in enumerate(self.columns):
            if name in self.columns[:place]:
                raise UsageError(f"two columns are called {name!r}", remedy="give one another name with AS")


def _check_is_one_question(statements: Sequence[Any]) -> None:
    if len(statements) != 1:
        error = "the query is empty" if not statements else f"these are {len(statements)} statements"
        raise UsageError(error, remedy="ask one question, beginning with SELECT")
    kind = statements[0].type.name
    if kind != "SELECT":
        raise UsageError(
            f"a run is asked with SELECT, not {kind}", remedy="ask one question, beginning with SELECT"
        )


class _Refusals:
    """Tells DuckDB's errors as ours."""

    def __init__(self, database: Database, query: str) -> None:
        self._database, self._query = database, query

    def __enter__(self) -> None: ...

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        import duckdb

        if isinstance(error, duckdb.Error):
            raise _refusal(self._database, self._query, str(error)) from None


def _refusal(database: Database, query: str, message: str) -> UsageError:
    tables = database.tables
    if match := _NO_TABLE.search(message):
        name = match[1]
        if remedy := database.absent.get(name.lower()):
            return UsageError(f"this run has no table {name!r}", remedy=remedy)
        guess = did_you_mean(name, tuple(tables))
        return UsageError(
            f"there is no table {name!r}", remedy="; ".join(filter(None, (guess, _known(database))))
        )
    if match := _NO_COLUMN.search(message):
        return UsageError(f"there is no column {match[1] or match[3]!r}", remedy=_columns(database, query))
    if match := _NEAR.search(message):
        hint = 'the column "group" is written in double quotes; ' if _GROUP.search(query) else ""
        return UsageError(f"the query is not SQL near {match[1]!r}", remedy=hint + _known(database))
    kind, _, text = message.partition(": ")
    if kind == "Permission Error":
        return UsageError("a query reads these tables and nothing else", remedy=_known(database))
    first = text.partition("\n")[0].strip() or message.partition("\n")[0]
    return UsageError(f"the query cannot be answered: {first}", remedy=_known(database))


def _known(database: Database) -> str:
    return f"tables: {', '.join(database.tables)}"


def _columns(database: Database, query: str) -> str:
    """The columns of the tables that the query names."""
    named = [name for name in database.tables if re.search(rf"\b{name}\b", query, re.IGNORECASE)]
    return "; ".join(
        f"columns of {name}: {', '.join(database.tables[name])}"
        for name in named or [_MAIN if _MAIN in database.tables else next(iter(database.tables))]
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text.replace("\n", " ")


def _plain(value: Any) -> Any:
    """A value that JSON can say."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _fitted(batch: Any, schema: Any) -> Any:
    import pyarrow as pa

    try:
        return batch.cast(schema)
    except pa.ArrowInvalid:
        raise UsageError("a sum does not fit 64 bits", remedy="cast it: sum(…)::DOUBLE") from None


def _narrowed(column: Any) -> Any:
    import pyarrow as pa

    is_sum = pa.types.is_decimal(column.type) and column.type.precision == 38 and column.type.scale == 0
    return column.with_type(pa.int64()) if is_sum else column
