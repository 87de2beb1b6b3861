"""What a run puts into a table, column by column, before Arrow.

Not here: which columns there are (`et_sim.tables`), and Arrow (`tables`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


class Texts(NamedTuple):
    """A column of texts: which of them every row has, negative for null. All blocks share the texts."""

    codes: Any
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """Blocks of columns: numpy arrays, masked where a value is null, or `Texts`; by the declared names."""

    blocks: Iterator[Mapping[str, Any]]
    metadata: Mapping[str, str] = field(default_factory=dict)  # of the file, besides that of every table
    without: tuple[str, ...] = ()  # columns that only some runs have, and this one has not


def unless(values: Any, missing: Any) -> Any:
    """A column with nulls where a mask says so."""
    return np.ma.masked_array(values, missing)


def not_negative(values: Any) -> Any:
    """A column whose negative values stand for null."""
    return unless(values, values < 0)
