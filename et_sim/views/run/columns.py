"""Columns of Arrow tables as numpy arrays: integers with a value for nulls, and texts as codes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """A column of texts: the distinct ones, and which of them every row has; none is the last."""

    texts: tuple[str | None, ...]
    codes: Any


def integers(column: Any, missing: int) -> Any:
    """An integer column with a value for its nulls, without Arrow's compute functions.

    Importing those takes longer than showing a small run.
    """
    array = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    validity, values = array.buffers()
    window = slice(array.offset, array.offset + len(array))
    out = np.frombuffer(values, array.type.to_pandas_dtype())[window].astype(np.int64)
    if validity is not None and array.null_count:
        is_valid = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[window]
        out[is_valid == 0] = missing
    return out


def words(column: Any) -> Words:
    """A column of texts, all of whose rows share one dictionary."""
    dictionary = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    return Words((*dictionary.dictionary.to_pylist(), None), coded(dictionary))


def coded(dictionary: Any) -> Any:
    """Which text every row has; none is the number of texts."""
    return integers(dictionary.indices, missing=len(dictionary.dictionary))


def stems_of(names: Words) -> Words:
    """Names with their numbers taken out; the codes say which stem every name has."""
    index: dict[str, int] = {}
    stems = (re.sub(r"[0-9]+", "#", name or "") for name in names.texts)
    of_name = np.array([index.setdefault(stem, len(index)) for stem in stems], np.int64)
    return Words(tuple(index), of_name)
