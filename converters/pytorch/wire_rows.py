"""Encoding of columns as records of a trace file, in compiled code: one record per row, fields ascending.

Repeated content (names, shapes, types, groups) comes as pieces in one long text: fields already encoded, with
tag and length. A row refers to pieces by number. Numbers are encoded here. A length precedes its content,
which is shifted when the length is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from converters.pytorch.columns import NONE
from converters.pytorch.graph import Column
from et_sim.basics.protobuf_fields import delimited, varint
from et_sim.compiled.decorators import compiled
from et_sim.compiled.entry_points import entry
from et_sim.trace.encode import attribute_head, long_attribute

ID, TYPE, CONTROL, DATA, START, DURATION, INPUTS, OUTPUTS = 1, 3, 4, 5, 6, 7, 8, 9
ATTRIBUTE_TAG = 10 << 3 | 2
NAME_PIECE = 0
IO_PIECES = 3  # values, shapes, types of the inputs; then those of the outputs
TEXT_PIECES = 7  # from here on: attributes
_MOST_OF_NUMBER = 10  # bytes
Numbers = npt.NDArray[np.int64]


class Pieces(NamedTuple):
    """Encoded fields one after another; piece p is `data[start[p] : start[p + 1]]`."""

    data: npt.NDArray[np.uint8]
    start: Numbers


class RowBlock(NamedTuple):
    """Some rows of a trace, in the order of writing."""

    plain: Numbers  # by row: id, type, start and duration in microseconds
    first: Numbers  # dependencies of row r: `before[first[r] : first[r + 1]]`
    before: Numbers  # ids
    is_control: npt.NDArray[np.uint8]
    piece: npt.NDArray[np.int32]  # by row: numbers of pieces, or -1
    value: Numbers  # by row: attributes that are numbers
    has_value: npt.NDArray[np.uint8]
    head: Numbers  # by attribute: the piece that holds its name and the tag of its value


@compiled
def _put(out: Any, at: int, value: Any) -> int:
    rest = np.uint64(value)
    while rest >= np.uint64(128):
        out[at] = np.uint8(rest & np.uint64(127)) | np.uint8(128)
        rest >>= np.uint64(7)
        at += 1
    out[at] = np.uint8(rest)
    return at + 1


@compiled
def _copy(out: Any, at: int, pieces: Pieces, number: int) -> int:
    low, high = pieces.start[number], pieces.start[number + 1]
    for index in range(low, high):
        out[at] = pieces.data[index]
        at += 1
    return at


@compiled
def _close(out: Any, begin: int, end: int) -> int:
    """Insert the length of the content between two positions before it; return the new end."""
    size, room = end - begin, 1
    while size >> (7 * room):
        room += 1
    for index in range(end - 1, begin - 1, -1):
        out[index + room] = out[index]
    _put(out, begin, size)
    return end + room


@compiled
def _put_dependencies(out: Any, at: int, block: RowBlock, row: int, control: int) -> int:
    begin = end = _put(out, at, (CONTROL if control else DATA) << 3 | 2)
    for index in range(block.first[row], block.first[row + 1]):
        if block.is_control[index] == control:
            end = _put(out, end, block.before[index])
    return _close(out, begin, end) if end > begin else at


@compiled
def _put_number(out: Any, at: int, field: int, value: Any) -> int:
    if value == 0:
        return at
    at = _put(out, at, field << 3)
    return _put(out, at, value)


@compiled
def _put_io(out: Any, at: int, block: RowBlock, row: int, pieces: Pieces, side: int) -> int:
    begin = end = _put(out, at, (INPUTS + side) << 3 | 2)
    for part in range(IO_PIECES):
        number = block.piece[row, 1 + side * IO_PIECES + part]
        if number >= 0:
            end = _copy(out, end, pieces, number)
    return _close(out, begin, end) if end > begin else at


@compiled
def _put_record(out: Any, at: int, block: RowBlock, row: int, pieces: Pieces) -> int:
    at = _put(out, at, ID << 3)
    at = _put(out, at, block.plain[row, 0])
    if block.piece[row, NAME_PIECE] >= 0:
        at = _copy(out, at, pieces, block.piece[row, NAME_PIECE])
    at = _put_number(out, at, TYPE, block.plain[row, 1])
    at = _put_dependencies(out, at, block, row, 1)
    at = _put_dependencies(out, at, block, row, 0)
    at = _put_number(out, at, START, block.plain[row, 2])
    at = _put_number(out, at, DURATION, block.plain[row, 3])
    at = _put_io(out, at, block, row, pieces, 0)
    at = _put_io(out, at, block, row, pieces, 1)
    for number in range(block.value.shape[1]):
        if block.has_value[row, number]:
            begin = _put(out, at, ATTRIBUTE_TAG)
            at = _copy(out, begin, pieces, block.head[number])
            at = _close(out, begin, _put(out, at, block.value[row, number]))
    for part in range(TEXT_PIECES, block.piece.shape[1]):
        if block.piece[row, part] >= 0:
            at = _copy(out, at, pieces, block.piece[row, part])
    return at


@entry(what="the writer of traces", seconds=lambda block, *_: len(block.plain) * 2e-4)
def write_rows(block: RowBlock, pieces: Pieces, out: Any) -> int:
    """Write all rows, each after its length; `out` has `room` for them. Return the number of bytes."""
    at = 0
    for row in range(len(block.plain)):
        at = _close(out, at, _put_record(out, at, block, row, pieces))
    return at


def room(block: RowBlock, pieces: Pieces) -> int:
    """Return an upper bound of the bytes of the rows."""
    size = np.append(np.diff(pieces.start), 0)  # the last entry is for "no piece"
    numbers = int((size[block.head] + 2 * _MOST_OF_NUMBER).sum())
    plain = (block.plain.shape[1] + 2 * IO_PIECES) * 2 * _MOST_OF_NUMBER
    most: int = size[block.piece].sum() + len(block.plain) * (numbers + plain)
    return most + len(block.before) * _MOST_OF_NUMBER


NAME_FIELD, ATTRIBUTE_FIELD = 2, 10
VALUES_FIELD, SHAPES_FIELD, TYPES_FIELD = 1, 2, 3


class EncodedFields:
    """Pieces, each distinct one once."""

    def __init__(self) -> None:
        self._number: dict[bytes, int] = {}

    def add(self, content: bytes) -> int:
        """Return the number of a piece; NONE for an empty one."""
        return self._number.setdefault(content, len(self._number)) if content else NONE

    def table(self, used: Any, contents: Sequence[Any], encode: Any) -> Column:
        """Return the piece of each of `contents`, encoding those that are used; the last entry, for index -1,
        is NONE.
        """
        table = np.full(len(contents) + 1, NONE, np.int64)
        for at in used.tolist():
            if at >= 0:
                table[at] = self.add(encode(contents[at]))
        return table

    def packed(self) -> Pieces:
        """Return all pieces in the form of the compiled code."""
        start = np.zeros(len(self._number) + 1, np.int64)
        np.cumsum([len(content) for content in self._number], out=start[1:])
        return Pieces(np.frombuffer(b"".join(self._number) or b"\0", np.uint8).copy(), start)


def text_field(field: int, text: str) -> bytes:
    """Return a text field; nothing for an empty text."""
    content = text.encode(errors="replace")
    return delimited(field, content) if content else b""


def printed(field: int, content: bytes) -> bytes:
    """Return a JSON list in Python's notation, as readers of the format expect it."""
    return text_field(field, str(json.loads(content)))


def text_attribute(name: str, text: str) -> bytes:
    """Return a whole text attribute; nothing for an empty text."""
    content = text.encode(errors="replace")
    return long_attribute(name, "string_val", content) if content else b""


def list_attribute(name: str, numbers: Iterable[int]) -> bytes:
    """Return a whole attribute that is a list of numbers; nothing for an empty list."""
    content = b"".join(varint(number) for number in numbers)
    return long_attribute(name, "int64_list", delimited(1, content)) if content else b""


def words_attribute(name: str, words: Iterable[str]) -> bytes:
    """Return a whole attribute that is a list of texts; an empty list is written, too."""
    return long_attribute(name, "string_list", b"".join(delimited(1, word.encode()) for word in words))


def number_attribute(name: str, value: int) -> bytes:
    """Return a whole number attribute."""
    return delimited(ATTRIBUTE_FIELD, attribute_head(name, "int64_val") + varint(value))
