"""Tables of an SQLite file that may be damaged, or made to harm: plain tables only, read row by row."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from et_sim.basics.errors import InputError

SIGN = b"SQLite format 3\x00"
_PLAIN = re.compile(r"\s*CREATE\s+(TEMP(ORARY)?\s+)?TABLE\b", re.IGNORECASE)
_AT_A_TIME = 4096
MOST_NUMBER = 1 << 62
LONGEST_CAUSE, NEW_LINE = 200, "\n"
ERRORS = sqlite3.Error, OverflowError, UnicodeDecodeError


class Tables:
    """Tables with their columns, whose damage is refused."""

    def __init__(self, path: Path, noun: str) -> None:
        self.path = path
        self.columns: dict[str, tuple[str, ...]] = {}
        self._noun = noun

    def require(self, table: str, names: Sequence[str], remedy: str) -> None:
        """Refuse a table that lacks a column."""
        for name in names:
            if name not in self.columns.get(table, ()):
                raise InputError(f"table {table} has no column {name}", place=str(self.path), remedy=remedy)

    @contextmanager
    def refused(self, place: Path, *errors: type[Exception]) -> Iterator[None]:
        """Raise errors of a library that reads a file as refusals."""
        try:
            yield
        except errors as error:
            text = str(error).partition("\n")[0][:LONGEST_CAUSE]
            remedy = "export or fetch it again"
            raise InputError(
                f"the {self._noun} is damaged: {text}", place=str(place), remedy=remedy
            ) from None


class SqliteTables(Tables):
    """The plain tables of a file, with their columns."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "database")
        with self.refused(path, *ERRORS):
            self._connection = sqlite3.connect(
                f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1", uri=True
            )
            self._connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            for pragma in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON"):
                self._connection.execute(f"PRAGMA {pragma}")
            named = self._connection.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
            ).fetchall()
            for name, sql in named:
                if isinstance(name, str) and _PLAIN.match(str(sql)):
                    info = self._connection.execute(f"PRAGMA table_info({_quoted(name)})").fetchall()
                    self.columns[name] = tuple(str(row[1]) for row in info)

    def __enter__(self) -> SqliteTables:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def rows(
        self, table: str, names: Mapping[str, Sequence[str]], order: str = ""
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the values of columns; each has its possible names, and is None where the table lacks it."""
        known = self.columns.get(table, ())
        if not known:
            return
        chosen = [next((name for name in choices if name in known), None) for choices in names.values()]
        listed = ", ".join("NULL" if name is None else _quoted(name) for name in chosen)
        sorting = f" ORDER BY {_quoted(order)}" if order in known else ""
        with self.refused(self.path, *ERRORS), closing(self._connection.cursor()) as cursor:
            cursor.execute(f"SELECT {listed} FROM {_quoted(table)}{sorting}")
            while several := cursor.fetchmany(_AT_A_TIME):
                yield from several


def has_table(path: Path, *beginnings: str) -> bool:
    """Check whether a file has a table whose name begins like that; a damaged one has none."""
    try:
        with SqliteTables(path) as tables:
            return any(name.startswith(beginnings) for name in tables.columns)
    except InputError:
        return False


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""').replace("\0", "") + '"'


def whole(value: Any, otherwise: int = -1) -> int:
    """Return a value of a row that is a whole number of limited size, or another number."""
    return value if isinstance(value, int) and abs(value) < MOST_NUMBER else otherwise
