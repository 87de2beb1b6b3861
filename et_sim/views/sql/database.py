"""The tables of a run in SQL: a DuckDB database whose views read the run's Arrow files.

Nothing is loaded beforehand: a query reads the columns that it names, block by block. Ranks are not spelled
out either: the view `ranks` expands ranges when asked. A query can read nothing but the run, and write
nothing.

Not here: putting answers on the screen or into files (`query_result`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from et_sim.tables.registry import SERVING_TABLES, all_tables
from et_sim.tables.sweep_tables import FILES
from et_sim.views.run.directory import RunDirectory

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
# What a table says of an actor's ranks, by ranges of them.
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
# In an unfolded run, an actor is the rank of its number.
PEER = "((ranks.rank + peer_spans.distance) % (SELECT run.ranks FROM run))::INTEGER"


class Database:
    """Tables of a directory; `tables` names the views and their columns, `absent` what it could also hold."""

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
        """What only runs have: ranks, and figures of the whole."""
        self.connection.register("spans", _spans(run))
        self.connection.register("run", _figures(run))
        self.connection.execute(SPANS.format(view="group_spans", table="groups"))
        how = {"peer": "timeline.peer", "peers": ""}
        if run.holds("peers"):
            self.connection.execute(SPANS.format(view="peer_spans", table="peers"))
            how = {"peer": PEER, "peers": PEERS_JOINED}
        self.connection.execute(VIEWS.format(**how))

    def close(self) -> None:
        """Let go of the files."""
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
    """A database without tables."""
    import duckdb

    # What Python variables are called must not decide what a query means.
    return duckdb.connect(config={"python_enable_replacements": False, "temp_directory": ""})


def restrict(connection: Any) -> None:
    """From here on, queries read what is there, and nothing else."""
    for setting in (
        "enable_progress_bar = false",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")


def columns_of(connection: Any, table: str) -> tuple[str, ...]:
    """The columns of a table."""
    return tuple(row[0] for row in connection.execute(f"DESCRIBE {table}").fetchall())


def _rows_of(run: RunDirectory, name: str) -> Any:
    """A table as something that DuckDB scans column by column, as often as it likes."""
    if name == "actors":
        return run.actors()
    import pyarrow.dataset as dataset

    run.check_table(name)
    return dataset.dataset(str(run.table_path(name)), format="ipc")


def _spans(run: RunDirectory) -> Any:
    """Which ranks an actor stands for, as ranges: few rows, however many ranks there are."""
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
    """One row: the figures of the whole run."""
    import pyarrow as pa

    figures = {name: run.summary[name] for name in FIGURES_OF_RUN}
    figures["actors"] = run.summary["folded"]["actors"]
    return pa.table({name: [value] for name, value in figures.items()})
