"""Every table of a run. A new table is one declaration beside similar ones, an entry here, and its writer."""

from __future__ import annotations

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.tables.collective_tables import LAYERS, PATH, PEERS, PHASES
from et_sim.tables.declaration import Table
from et_sim.tables.goodput_tables import COURSES, MONTHS, SAMPLES
from et_sim.tables.network_tables import FLOWS, LINKS, MESSAGES, PAUSES, PORTS, QUEUES, RESOURCES
from et_sim.tables.rank_tables import ACTORS, GROUPS, ITERATIONS, JOBS, MEMORY, REQUESTS, TIMELINE

MANIFEST, SUMMARY, STALL = "run.json", "summary.json", "stall.json"
KEPT = "path.kept"  # cached results of views for a long path.arrow: not part of a run, but deleted with it
# Increases whenever a column is renamed, removed or changes its meaning: only this version is read.
VERSION = 6


TABLES = (
    TIMELINE,
    ACTORS,
    JOBS,
    GROUPS,
    PEERS,
    LAYERS,
    PHASES,
    MESSAGES,
    LINKS,
    RESOURCES,
    PORTS,
    QUEUES,
    PAUSES,
    FLOWS,
    MEMORY,
    PATH,
    SAMPLES,
)


# Tables that et-sim serve writes beside a manifest and a summary.
SERVING_TABLES = (REQUESTS, ITERATIONS)
# Tables that et-sim goodput writes beside a manifest and a summary.
GOODPUT_TABLES = (MONTHS, COURSES)


def all_tables() -> tuple[Table, ...]:
    """Return the tables in the order in which they are written and shown."""
    return TABLES


def table_named(name: str) -> Table:
    """Return the table of a name, or raise."""
    tables = {table.name: table for table in (*all_tables(), *SERVING_TABLES, *GOODPUT_TABLES)}
    if name not in tables:
        remedy = did_you_mean(name, tuple(tables)) or f"tables: {', '.join(tables)}"
        raise UsageError(f"there is no table {name!r}", remedy=remedy)
    return tables[name]


def details() -> tuple[str, ...]:
    """Return the values of --detail, besides nodes."""
    return tuple(dict.fromkeys(table.detail for table in all_tables() if table.detail))


def needed_files() -> tuple[str, ...]:
    """Return the files that every run holds."""
    return (MANIFEST, SUMMARY, *(table.file for table in all_tables() if not table.is_optional))


def all_files() -> tuple[str, ...]:
    """Return the files that the directory of a run, a serving, or a job's months may hold."""
    every = (*all_tables(), *SERVING_TABLES, *GOODPUT_TABLES)
    return (MANIFEST, SUMMARY, STALL, KEPT, *(table.file for table in every))
