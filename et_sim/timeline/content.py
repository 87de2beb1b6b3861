"""What a run puts into a table, column by column, before Arrow.

Not here: which columns there are (`et_sim.tables`), and Arrow (`tables`).
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


class Block(NamedTuple):
    """Rows of a table by the names of its columns: numpy arrays, or `Texts`.

    An output filter keeps those of its ranks and window; where nobody says whose rows are and when they were
    under way, all of them.
    """

    columns: Mapping[str, Any]
    actor: Any = None
    since_ns: Any = None
    until_ns: Any = None  # negative: for ever

    def where(self, mask: Any) -> Block:
        """Some of the rows."""
        columns = {
            name: Texts(column.codes[mask], column.texts) if isinstance(column, Texts) else column[mask]
            for name, column in self.columns.items()
        }
        return Block(columns, *(None if column is None else column[mask] for column in self[1:]))


class Content(Struct, frozen=True, eq=False):
    """What becomes a table."""

    blocks: Iterator[Block]
    metadata: Mapping[str, str] = field(default_factory=dict)  # of the file, besides that of every table
    without: tuple[str, ...] = ()  # columns that only some runs have, and this one has not


def whole(columns: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> Content:
    """A table that is always written as a whole."""
    return Content(iter([Block(columns)]), metadata or {})


def unless(values: Any, missing: Any) -> Any:
    """A column with nulls where a mask says so, whatever its values."""
    return np.ma.masked_array(values, missing)
