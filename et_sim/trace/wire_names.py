"""Interning of names in compiled code: the same bytes get the same small number.

A name is a span of the file, never copied. Open addressing over a power of two; each occupied
slot holds the hash and the number of its name.

Not here: turning spans into Python strings (`wire`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from et_sim.compiled.decorators import compiled
from et_sim.compiled.entry_points import entry
from et_sim.trace.wire_fields import Bytes, read_fixed

_MULTIPLIER = np.int64(-7046029254386353131)  # 2^64 / golden ratio, as a signed number


class Text(NamedTuple):
    """The file twice: by byte, and by the eight bytes that start at each position."""

    data: Bytes
    words: npt.NDArray[np.int64]


class NameTable(NamedTuple):
    """Name number i is `size[i]` bytes of the file from `start[i]`."""

    slots: npt.NDArray[np.int64]  # hash << 32 | number + 1, or 0
    start: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    used: npt.NDArray[np.int64]  # one cell


def as_text(content: bytes | Bytes) -> Text:
    """Both views of one file, read-only and without copying it.

    All files give arrays of one type (Numba compiles per type, and writability and layout belong
    to it), hence the padding of a file too short for two words.
    """
    data = np.frombuffer(content, np.uint8)
    padded = data if len(data) >= 9 else np.concatenate((data, np.zeros(9, np.uint8)))
    words = np.ndarray((len(padded) - 7,), np.dtype("<i8"), buffer=padded, strides=(1,))
    data.flags.writeable = False
    words.flags.writeable = False
    return Text(data, words)


def name_table(capacity: int) -> NameTable:
    """An empty table for up to `capacity` different names."""
    slots = 1 << max(4, (2 * capacity - 1).bit_length())
    return NameTable(
        np.zeros(slots, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.zeros(1, np.int64),
    )


@compiled(forceinline=True)
def _word(text: Text, pos: int, size: int) -> Any:
    """Up to eight bytes from `pos` as one number, the rest zero."""
    if pos < len(text.words):
        word = text.words[pos]
        return word if size >= 8 else word & ((np.int64(1) << (8 * size)) - 1)
    return read_fixed(text.data, pos, min(size, 8))


@compiled(forceinline=True)
def same_bytes(text: Text, first: int, second: int, size: int) -> bool:
    """Whether two spans of the file of equal size hold equal bytes."""
    for index in range(0, size, 8):
        if _word(text, first + index, size - index) != _word(text, second + index, size - index):
            return False
    return True


@compiled(forceinline=True)
def _hash(text: Text, start: int, size: int) -> Any:
    """Multiply and fold, eight bytes at a time; 31 bits. Products wrap around, as they should."""
    value = np.int64(size)
    for index in range(0, size, 8):
        value = (value ^ _word(text, start + index, size - index)) * _MULTIPLIER
        value ^= (value >> 32) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


@compiled
def intern(table: NameTable, text: Text, start: int, size: int) -> Any:
    """The number of the name, new or old; -1 when a new name finds the table full."""
    key = _hash(text, start, size)
    last = len(table.slots) - 1
    slot = key & last
    while table.slots[slot] != 0:
        held = table.slots[slot]
        number = (held & 0xFFFFFFFF) - 1
        if (
            held >> 32 == key
            and table.size[number] == size
            and same_bytes(text, table.start[number], start, size)
        ):
            return number
        slot = (slot + 1) & last
    number = table.used[0]
    if number == len(table.start):
        return -1
    table.slots[slot] = (key << 32) | (number + 1)
    table.start[number] = start
    table.size[number] = size
    table.used[0] = number + 1
    return number


@entry(what="the trace decoder", seconds=lambda *arguments: len(arguments[2]) * 1e-5)
def intern_spans(table: NameTable, text: Text, spans: npt.NDArray[np.int64]) -> None:
    """Put the number of every span's name (start, size) in place of its start."""
    for index in range(len(spans)):
        spans[index, 0] = intern(table, text, spans[index, 0], spans[index, 1])


@entry(what="the trace decoder", seconds=lambda data, *_: len(data) * 2e-7)
def join_spans(data: Bytes, start: npt.NDArray[np.int64], size: npt.NDArray[np.int64], joined: Bytes) -> None:
    """Copy the spans one after another, each followed by a zero byte."""
    pos = 0
    for number in range(len(start)):
        begin = start[number]
        for index in range(size[number]):
            joined[pos + index] = data[begin + index]
        pos += size[number]
        joined[pos] = 0
        pos += 1
