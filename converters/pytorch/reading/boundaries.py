"""Where JSON values end inside a block of bytes, found with numpy instead of a parser.

A bracket counts unless it stands in a string, and a quotation mark opens or closes a string unless an odd
number of backslashes precedes it. Both are answered for a whole block at once, at several hundred MB/s.

Not here: whether the block is valid JSON. The decoder judges that (`json_chunks`); boundaries in text that is
not JSON are meaningless, but always inside the block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_QUOTE, _BACKSLASH = b'"\\'
# "[" and "{" differ in one bit only, and so do "]" and "}".
_OPENING, _CLOSING, _CASE = ord("{"), ord("}"), ord("{") ^ ord("[")


class Elements(NamedTuple):
    """What a block that starts between two elements of a list holds."""

    end: int  # where its last whole element ends; 0 if it holds none
    closed_at: int  # where the list itself is closed, or -1


def elements(block: bytes) -> Elements:
    """The whole elements (objects or lists) at the beginning of a block."""
    positions, depths = _depths(block)
    closing = np.flatnonzero(depths < 0)
    closed_at = -1
    if len(closing):
        closed_at = int(positions[closing[0]])
        positions, depths = positions[: closing[0]], depths[: closing[0]]
    ends = np.flatnonzero(depths == 0)
    return Elements(int(positions[ends[-1]]) + 1 if len(ends) else 0, closed_at)


def container_end(block: bytes) -> int:
    """Where the object or list that the block starts with ends, or -1 if not inside the block."""
    positions, depths = _depths(block)
    ends = np.flatnonzero(depths == 0)
    return int(positions[ends[0]]) + 1 if len(ends) else -1


def _depths(block: bytes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """The brackets of a block that starts outside of strings, and how many are open after each."""
    letters = np.frombuffer(block, np.uint8)
    folded = letters | _CASE
    marks = letters == _QUOTE
    _clear_escaped(marks, letters)
    marks |= folded == _OPENING
    marks |= folded == _CLOSING
    positions = np.flatnonzero(marks)
    found = letters[positions]
    is_quote = found == _QUOTE
    in_string = np.cumsum(is_quote, dtype=np.int32) & 1
    counts = (in_string == 0) & ~is_quote
    positions, found = positions[counts], found[counts] | _CASE
    return positions, np.cumsum(np.where(found == _OPENING, 1, -1))


def _clear_escaped(marks: npt.NDArray[np.bool_], letters: npt.NDArray[np.uint8]) -> None:
    """Unmark the letters that a backslash escapes; of a run of backslashes every other one escapes."""
    slashes = np.flatnonzero(letters == _BACKSLASH)
    if not len(slashes):
        return
    order = np.arange(len(slashes))
    starts_run = np.ones(len(slashes), np.bool_)
    starts_run[1:] = slashes[1:] != slashes[:-1] + 1
    place_in_run = order - np.maximum.accumulate(np.where(starts_run, order, 0))
    escaped = slashes[place_in_run % 2 == 0] + 1
    marks[escaped[escaped < len(marks)]] = False
