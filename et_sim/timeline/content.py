"""What a run puts into a table, column by column, before Arrow.

Not here: which columns there are (`et_sim.tables`), and Arrow (`arrow_tables`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field


class Texts(NamedTuple):
    """A column of texts: which of them every row has, negative for null. All blocks share the texts."""

    codes: Any
    texts: tuple[str, ...]


class Nullable(NamedTuple):
    """A column with nulls where a mask says so, whatever the values there."""

    values: Any
    is_null: Any

    @staticmethod
    def of(column: Any) -> Nullable:
        """Any column of figures as one."""
        return column if isinstance(column, Nullable) else Nullable(column, np.zeros(len(column), np.bool_))

    def tolist(self) -> list[Any]:
        """As Python's values, of which None stands for null."""
        pairs = zip(self.values.tolist(), self.is_null.tolist(), strict=True)
        return [None if is_null else value for value, is_null in pairs]


class Block(NamedTuple):
    """Rows of a table by the names of its columns: numpy arrays, `Nullable` ones, or `Texts`.

    An output filter keeps those of its ranks and window; where nobody says whose rows are and when they were
    under way, all of them.
    """

    columns: Mapping[str, Any]
    actor: Any = None
    since_ns: Any = None
    until_ns: Any = None  # negative: for ever

    def where(self, mask: Any) -> Block:
        """Return some of the rows."""
        columns = {name: rows_of(column, mask) for name, column in self.columns.items()}
        return Block(columns, *(None if column is None else column[mask] for column in self[1:]))


class TableContent(Struct, frozen=True, eq=False):
    """What becomes a table."""

    blocks: Iterator[Block]
    metadata: Mapping[str, str] = field(default_factory=dict)  # of the file, besides that of every table
    without: tuple[str, ...] = ()  # columns that only some runs have, and this one has not


def whole(columns: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> TableContent:
    """Return a table that is always written as a whole."""
    return TableContent(iter([Block(columns)]), metadata or {})


def rows_of(column: Any, rows: Any) -> Any:
    """Return some rows of a column of any kind."""
    if isinstance(column, Texts):
        return Texts(column.codes[rows], column.texts)
    if isinstance(column, Nullable):
        return Nullable(column.values[rows], column.is_null[rows])
    return column[rows]
