"""Words about kernels, an entry for each: which model timed it, what bounds it.

Not here: which words there are; every model has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from et_sim.basics.errors import TraceError, did_you_mean
from et_sim.machine.datatypes import BITS, datatype_named
from et_sim.trace.columns import IntColumn, Trace


def place_of(trace: Trace, row: int) -> str:
    """The file and the node, for messages."""
    return ", ".join(filter(None, (trace.source, trace.describe(row))))


def datatypes_of(trace: Trace, rows: IntColumn, default: str, rule: str) -> IntColumn:
    """Index into BITS of the datatype of each node; refuses nodes that nobody knows one of."""
    names = list(BITS)
    known = [datatype_named(text) if text else default for text in trace.datatypes]
    number = np.array([names.index(name) if name else -1 for name in known], np.int64)
    found = number[trace.datatype[rows]]
    if (found < 0).any():
        row = int(rows[int(np.argmax(found < 0))])
        text = trace.datatypes[int(trace.datatype[row])]
        if not text:
            raise TraceError(
                f"{trace.describe(row)} says no dtype, and {rule} gives none for such nodes",
                place=trace.source,
                remedy='give "dtype" there, or the attribute dtype to the node',
            )
        remedy = did_you_mean(text, names)
        raise TraceError(
            f"{trace.describe(row)} has the dtype {text[:40]!r}",
            place=trace.source,
            remedy=f"{remedy} known: {', '.join(names)}".strip(),
        )
    return found


NOTHING = ""


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """A column of words; the empty one stands for "nothing is known", and is always the first."""

    codes: npt.NDArray[np.int16]
    texts: tuple[str, ...] = (NOTHING,)

    @staticmethod
    def alike(text: str, count: int) -> Labels:
        """The same word so many times."""
        return Labels(np.full(count, 1 if text else 0, np.int16), (NOTHING, text) if text else (NOTHING,))

    @staticmethod
    def of(words: Sequence[str], which: IntColumn) -> Labels:
        """Of some words, which each entry has."""
        texts = tuple(dict.fromkeys((NOTHING, *words)))
        place = np.array([texts.index(word) for word in words] or [0], np.int16)
        return Labels(place[which], texts)

    @staticmethod
    def joined(parts: Sequence[Labels]) -> Labels:
        """All of them, one after the other."""
        texts = tuple(dict.fromkeys((NOTHING, *(text for part in parts for text in part.texts))))
        number = {text: code for code, text in enumerate(texts)}
        codes = [np.array([number[text] for text in part.texts], np.int16)[part.codes] for part in parts]
        return Labels(np.concatenate(codes) if codes else np.zeros(0, np.int16), texts)

    def take(self, rows: IntColumn) -> Labels:
        """Some of the entries, in the order given."""
        return Labels(self.codes[rows], self.texts)

    def spread(self, rows: IntColumn, count: int) -> Labels:
        """The same entries as these rows of so many: the others have no word."""
        codes = np.zeros(count, np.int16)
        codes[rows] = self.codes
        return Labels(codes, self.texts)

    def is_same(self, other: Labels) -> bool:
        """Whether all entries are the same words."""
        joined = Labels.joined([self, other])
        return np.array_equal(joined.codes[: len(self.codes)], joined.codes[len(self.codes) :])
