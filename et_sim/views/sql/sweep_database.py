"""The tables of a sweep in SQL: its points, and how long they took."""

from __future__ import annotations

from et_sim.tables.of_sweeps import FILES
from et_sim.views.sql.database import Database, columns_of, connect, restrict
from et_sim.views.sweep.directory import SweepDirectory


class SweepDatabase(Database):
    """A sweep's tables, for queries as on those of a run."""

    def __init__(self, sweep: SweepDirectory) -> None:
        self.connection = connect()
        for name in FILES:
            self.connection.register(name, sweep.table_of(name))
        restrict(self.connection)
        self.tables = {name: columns_of(self.connection, name) for name in FILES}
        self.absent = {}
