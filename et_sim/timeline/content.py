"""Contents of the tables of a run, column by column, before Arrow.

`et_sim.tables` declares the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, field


class Texts(Struct, frozen=True):
    """A column of texts: the index of each row's text, negative for null. All blocks share the texts."""

    codes: Any
    texts: tuple[str, ...]


class Nullable(NamedTuple):
    """A column with nulls where a mask is set; the values there have no meaning."""

    values: Any
    is_null: Any

    @staticmethod
    def of(column: Any) -> Nullable:
        """Return any column of figures as a nullable one."""
        return column if isinstance(column, Nullable) else Nullable(column, np.zeros(len(column), np.bool_))

    def tolist(self) -> list[Any]:
        """Return Python's values, with None for null."""
        pairs = zip(self.values.tolist(), self.is_null.tolist(), strict=True)
        return [None if is_null else value for value, is_null in pairs]


class Block(NamedTuple):
    """Rows of a table by the names of its columns: numpy arrays, `Nullable` ones, or `Texts`.

    An output filter keeps the rows of its ranks and window. Rows without actors or times are all kept.
    """

    columns: Mapping[str, Any]
    actor: Any = None
    since_ns: Any = None
    until_ns: Any = None  # negative: for ever

    def where(self, mask: Any) -> Block:
        """Return the rows of a mask."""
        columns = {name: rows_of(column, mask) for name, column in self.columns.items()}
        return Block(columns, *(None if column is None else column[mask] for column in self[1:]))


class TableContent(Struct, frozen=True, eq=False):
    """Content of a table."""

    blocks: Iterator[Block]
    metadata: Mapping[str, str] = field(default_factory=dict)  # of this file only
    without: tuple[str, ...] = ()  # columns that this run does not have


def whole(columns: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> TableContent:
    """Return a table that is always written completely."""
    return TableContent(iter([Block(columns)]), metadata or {})


def rows_of(column: Any, rows: Any) -> Any:
    """Return some rows of a column of any kind."""
    if isinstance(column, Texts):
        return Texts(column.codes[rows], column.texts)
    if isinstance(column, Nullable):
        return Nullable(column.values[rows], column.is_null[rows])
    return column[rows]
