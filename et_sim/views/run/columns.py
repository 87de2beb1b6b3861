"""Columns of Arrow tables as numpy arrays: integers with a value for nulls, and texts as codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec import Struct

from et_sim.basics.units import format_ranks, parse_ranks
from et_sim.tables.declaration import TEXT, WORD

Figures = TypeVar("Figures")


def alike(entries_of_ranks: Iterable[tuple[str, Figures]]) -> list[tuple[str, Figures]]:
    """Return each distinct value of `figures` once, with all ranks that have it, by lowest rank."""
    ranks_of: dict[Figures, list[str]] = {}
    for ranks, figures in entries_of_ranks:
        ranks_of.setdefault(figures, []).append(ranks)
    entries = [(together(ranks), figures) for figures, ranks in ranks_of.items()]
    return sorted(entries, key=lambda entry: parse_ranks(entry[0])[0].start)


def together(named: Sequence[str]) -> str:
    """Return several lists of ranks as one."""
    if len(named) == 1:
        return named[0]
    spans = [span for ranks in named for span in parse_ranks(ranks)]
    return format_ranks(np.sort(np.concatenate([np.arange(s.start, s.stop, s.step) for s in spans])))


class Words(Struct, frozen=True, eq=False):
    """A column of texts: the distinct texts, the last of which is None, and the index of the text of every
    row."""

    texts: tuple[str | None, ...]
    codes: Any

    def of_rows(self, rows: Any = slice(None)) -> list[str | None]:
        """Return the text of every row, or of the given rows."""
        return [self.texts[code] for code in self.codes[rows].tolist()]

    def where(self, test: Callable[[str | None], object]) -> Any:
        """Return the result of a test for the text of every row."""
        return np.array([test(text) for text in self.texts])[self.codes]


# Arrow's own conversions import pandas, where it is installed, or its compute functions. Importing either
# takes longer than showing a small run.
def numbers(column: Any) -> Any:
    """Return a column of numbers or truth values unchanged; nulls of a floating-point column become NaN."""
    array = _in_one_piece(column)
    validity, values = array.buffers()
    window = slice(array.offset, array.offset + len(array))
    if str(array.type) == "bool":
        return _unpacked(values)[window]
    values_of_rows = np.frombuffer(values, str(array.type))[window]
    if array.null_count:
        values_of_rows = np.where(_unpacked(validity)[window], values_of_rows, np.nan)
    return values_of_rows


def integers(column: Any, missing: int) -> Any:
    """Return an integer column as 64-bit numbers, with `missing` for its nulls."""
    array = _in_one_piece(column)
    validity, values = array.buffers()
    window = slice(array.offset, array.offset + len(array))
    out = np.frombuffer(values, str(array.type))[window].astype(np.int64)
    if array.null_count:
        out[~_unpacked(validity)[window]] = missing
    return out


def extent(column: Any) -> tuple[int, int] | None:
    """Return the least and the greatest value of an integer column; None if it has no values."""
    array = _in_one_piece(column)
    if array.null_count == len(array):
        return None
    validity, values = array.buffers()
    window = slice(array.offset, array.offset + len(array))
    known = np.frombuffer(values, str(array.type))[window]
    if array.null_count:
        known = known[_unpacked(validity)[window]]
    return int(known.min()), int(known.max())


def _in_one_piece(column: Any) -> Any:
    return column.combine_chunks() if hasattr(column, "combine_chunks") else column


def _unpacked(bits: Any) -> Any:
    return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little").view(np.bool_)


def array_of(column: Any, kind: str) -> Any:
    """Return a column of a declared kind: nulls of whole numbers become -1, texts become `Words`."""
    if kind in (WORD, TEXT):
        return words(column)
    return integers(column, missing=-1) if kind in ("int32", "int64") else numbers(column)


def joined(parts: Sequence[Any], kind: str) -> Any:
    """Concatenate columns of one kind."""
    if kind not in (WORD, TEXT):
        return np.concatenate(parts or [np.zeros(0, np.int64)])
    texts = parts[0].texts if parts else (None,)  # all parts share them
    return Words(texts, np.concatenate([np.zeros(0, np.int64), *(part.codes for part in parts)]))


def words(column: Any) -> Words:
    """Return a column of texts whose rows share one dictionary."""
    dictionary = _in_one_piece(column)
    return Words((*dictionary.dictionary.to_pylist(), None), coded(dictionary))


def coded(dictionary: Any) -> Any:
    """Return the index of the text of every row; null becomes the number of texts."""
    return integers(dictionary.indices, missing=len(dictionary.dictionary))
