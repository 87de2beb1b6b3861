"""SQL queries on a run: one query's result as a text table, CSV, JSON or an Arrow file.

Errors of DuckDB become sentences with the tables and columns that exist. Results are passed on in blocks, so
that their length does not matter.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.basics.files import new_file
from et_sim.tables.registry import SERVING_TABLES, all_tables
from et_sim.tables.sweep_tables import FILES
from et_sim.views.run.directory import RunDirectory
from et_sim.views.sheet import ANY_WIDTH, Sheet, SheetColumn, csv_blocks
from et_sim.views.text import cut, terminal_width

if TYPE_CHECKING:
    from et_sim.views.sweep.directory import SweepDirectory


FIGURES_OF_RUN = ("status", "makespan_ns", "ranks", "messages", "model", "profile")
OF_RANKS = ("ranks", "rank_groups", "rank_timeline")
VIEWS = """
CREATE VIEW ranks AS
SELECT unnest(range(spans.first, spans.last + 1))::INTEGER AS rank, actors.* EXCLUDE (ranks, rank_count)
FROM spans JOIN actors USING (actor);

CREATE VIEW rank_groups AS
SELECT unnest(range(first, last + 1))::INTEGER AS rank, name AS "group",
group_spans.* EXCLUDE (actor, "group", name, first, last) FROM group_spans;

CREATE VIEW rank_timeline AS
SELECT ranks.rank, timeline.* REPLACE (group_spans.name AS "group", {peer} AS peer)
FROM timeline JOIN ranks USING (actor) LEFT JOIN group_spans
ON group_spans.actor = timeline.actor AND group_spans."group" = timeline."group"
AND ranks.rank BETWEEN group_spans.first AND group_spans.last {peers};
"""
# Columns of a table by actor, with ranges of its ranks.
SPANS = """
CREATE VIEW {view} AS
SELECT {table}.* EXCLUDE (ranks), spans.first, spans.last FROM {table} JOIN spans USING (actor)
WHERE {table}.ranks IS NULL
UNION ALL
SELECT * EXCLUDE (span), string_split(span, '-')[1]::BIGINT, string_split(span, '-')[-1]::BIGINT
FROM (SELECT {table}.* EXCLUDE (ranks), unnest(string_split(ranks, ',')) AS span FROM {table});
"""
PEERS_JOINED = """
LEFT JOIN peer_spans ON peer_spans.actor = timeline.actor AND peer_spans.node = timeline.node
AND ranks.rank BETWEEN peer_spans.first AND peer_spans.last
"""
# In an unfolded run, actors are numbered by rank.
PEER = "((ranks.rank + peer_spans.distance) % (SELECT run.ranks FROM run))::INTEGER"


class Database:
    """Tables of a directory; `tables` maps views to columns, `absent` maps missing tables to remedies."""

    def __init__(self, run: RunDirectory) -> None:
        self.connection = connect()
        every = SERVING_TABLES if run.is_serving else all_tables()
        present = [table.name for table in every if run.holds(table.name)]
        for name in present:
            self.connection.register(name, _rows_of(run, name))
        views: tuple[str, ...] = ()
        if not run.is_serving:
            self._add_views(run)
            views = (*OF_RANKS, "run")
        restrict(self.connection)
        self.tables = {name: columns_of(self.connection, name) for name in (*present, *views)}
        self.absent = {table.name: table.how_to_get_it for table in every if table.name not in present}

    def _add_views(self, run: RunDirectory) -> None:
        """Add views that only runs have: ranks, and figures of the whole."""
        self.connection.register("spans", _spans(run))
        self.connection.register("run", _figures(run))
        self.connection.execute(SPANS.format(view="group_spans", table="groups"))
        how = {"peer": "timeline.peer", "peers": ""}
        if run.holds("peers"):
            self.connection.execute(SPANS.format(view="peer_spans", table="peers"))
            how = {"peer": PEER, "peers": PEERS_JOINED}
        self.connection.execute(VIEWS.format(**how))

    def close(self) -> None:
        """Close the files."""
        self.connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SweepDatabase(Database):
    """The tables of a sweep, its points and how long they took, for queries as on those of a run."""

    def __init__(self, sweep: SweepDirectory) -> None:
        self.connection = connect()
        for name in FILES:
            self.connection.register(name, sweep.table_of(name))
        restrict(self.connection)
        self.tables = {name: columns_of(self.connection, name) for name in FILES}
        self.absent = {}


def connect() -> Any:
    """Return a database without tables."""
    import duckdb

    # Names of Python variables must not change the meaning of a query.
    return duckdb.connect(config={"python_enable_replacements": False, "temp_directory": ""})


def restrict(connection: Any) -> None:
    """Restrict later queries to the registered tables."""
    for setting in (
        "enable_progress_bar = false",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")


def columns_of(connection: Any, table: str) -> tuple[str, ...]:
    """Return the columns of a table."""
    return tuple(row[0] for row in connection.execute(f"DESCRIBE {table}").fetchall())


def _rows_of(run: RunDirectory, name: str) -> Any:
    """Return a table that DuckDB can scan repeatedly, column by column."""
    if name == "actors":
        return run.actors()
    import pyarrow.dataset as dataset

    run.check_table(name)
    return dataset.dataset(str(run.table_path(name)), format="ipc")


def _spans(run: RunDirectory) -> Any:
    """Return the ranks of each actor as ranges: few rows, however many ranks there are."""
    import pyarrow as pa

    actors = run.actors()
    columns: tuple[list[int], list[int], list[int]] = ([], [], [])
    for actor, ranks in zip(actors["actor"].to_pylist(), actors["ranks"].to_pylist(), strict=True):
        for span in ranks.split(","):
            first, _, last = span.partition("-")
            for column, value in zip(columns, (actor, int(first), int(last or first)), strict=True):
                column.append(value)
    types = (("actor", pa.int32()), ("first", pa.int64()), ("last", pa.int64()))
    return pa.table(
        {name: pa.array(column, kind) for (name, kind), column in zip(types, columns, strict=True)}
    )


def _figures(run: RunDirectory) -> Any:
    """Return one row with the figures of the whole run."""
    import pyarrow as pa

    summary: Mapping[str, Any] = run.summary
    figures = {name: summary[name] for name in FIGURES_OF_RUN}
    figures["actors"] = run.summary["folded"]["actors"]
    return pa.table({name: [value] for name, value in figures.items()})


AT_ONCE = 10_000  # rows
SHOWN_ROWS = 200
WIDEST_CELL, NARROWEST_TEXT = 60, 12
NUMBERS = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL.*)", re.ASCII)
_MAIN = "timeline"  # its columns are listed if a query names no table
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
            _check_is_one_query(database.connection.extract_statements(query))
            self._relation = database.connection.sql(query)
        self.columns: tuple[str, ...] = tuple(self._relation.columns)
        self._is_number = [bool(NUMBERS.fullmatch(str(kind))) for kind in self._relation.types]

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield all rows; each call runs the query again."""
        with _Refusals(self._database, self._query):
            cursor = self._database.connection.execute(self._query)
        while True:
            with _Refusals(self._database, self._query):
                block = cursor.fetchmany(AT_ONCE)
            if not block:
                return
            yield from block

    def text(self) -> str:
        """Return the first rows as a text table."""
        columns = tuple(
            SheetColumn(
                cut(name, WIDEST_CELL), partial(_cell, at), ">" if is_number else "<", key=f"{at} {name}"
            )
            for at, (name, is_number) in enumerate(zip(self.columns, self._is_number, strict=True))
        )
        texts = [column.name for column in columns if column.side == "<"]
        sheet = Sheet(
            columns,
            cut=dict.fromkeys(texts, NARROWEST_TEXT),
            drop=tuple(column.name for column in columns[:0:-1]),
            names=tuple(texts),
        )
        shown = list(islice(self.rows(), SHOWN_ROWS + 1))
        lines = sheet.lines(shown[:SHOWN_ROWS], terminal_width(ANY_WIDTH))
        if len(shown) > SHOWN_ROWS:
            lines.append(f"… and more rows than these {SHOWN_ROWS}: --csv, --json and --arrow give all")
        return "\n".join(lines)

    def csv_lines(self) -> Iterator[str]:
        """Yield CSV with a line of column names; null is empty."""
        yield from csv_blocks(chain([self.columns], self.rows()))

    def json_lines(self) -> Iterator[str]:
        """Yield a JSON list with an object for each row."""
        for place, name in enumerate(self.columns):
            if name in self.columns[:place]:
                raise UsageError(f"two columns are called {name!r}", remedy="give one another name with AS")
        before = "[\n"
        for row in self.rows():
            values = {name: _plain(value) for name, value in zip(self.columns, row, strict=True)}
            yield f"{before}  {json.dumps(values, ensure_ascii=False, default=str)}"
            before = ",\n"
        yield "[]\n" if before == "[\n" else "\n]\n"

    def write_arrow(self, target: Path) -> None:
        """Write an Arrow IPC file; sums, which DuckDB makes in 128 bits, are 64 bits wide if they fit."""
        import pyarrow as pa

        with _Refusals(self._database, self._query), new_file(target) as sink:
            reader = self._relation.to_arrow_reader(AT_ONCE)
            schema = pa.schema([_narrowed(column) for column in reader.schema])
            with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as out:
                for batch in reader:
                    out.write_batch(_fitted(batch, schema))


def _check_is_one_query(statements: Sequence[Any]) -> None:
    if len(statements) != 1:
        error = "the query is empty" if not statements else f"these are {len(statements)} statements"
        raise UsageError(error, remedy="give one query that begins with SELECT")
    kind = statements[0].type.name
    if kind != "SELECT":
        raise UsageError(
            f"a run is queried with SELECT, not {kind}", remedy="give one query that begins with SELECT"
        )


class _Refusals:
    """Conversion of DuckDB's errors to ours."""

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
            f"there is no table {name!r}", remedy="; ".join(filter(None, (guess, _tables_text(database))))
        )
    if match := _NO_COLUMN.search(message):
        return UsageError(f"there is no column {match[1] or match[3]!r}", remedy=_columns(database, query))
    if match := _NEAR.search(message):
        hint = 'the column "group" is written in double quotes; ' if _GROUP.search(query) else ""
        return UsageError(f"the query is not SQL near {match[1]!r}", remedy=hint + _tables_text(database))
    kind, _, text = message.partition(": ")
    if kind == "Permission Error":
        return UsageError("a query reads these tables and nothing else", remedy=_tables_text(database))
    first = text.partition("\n")[0].strip() or message.partition("\n")[0]
    return UsageError(f"the query cannot be answered: {first}", remedy=_tables_text(database))


def _tables_text(database: Database) -> str:
    return f"tables: {', '.join(database.tables)}"


def _columns(database: Database, query: str) -> str:
    """Return the columns of the tables that the query names."""
    named = [name for name in database.tables if re.search(rf"\b{name}\b", query, re.IGNORECASE)]
    return "; ".join(
        f"columns of {name}: {', '.join(database.tables[name])}"
        for name in named or [_MAIN if _MAIN in database.tables else next(iter(database.tables))]
    )


def _cell(at: int, row: tuple[Any, ...]) -> str:
    value = row[at]
    if value is None:
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return cut(text.replace("\n", " "), WIDEST_CELL)


def _plain(value: Any) -> Any:
    """Return a value that JSON can represent."""
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
