"""Memory layout of the compiled decoder: blocks of columns, slots, failure codes, numbers of names.

Columns of one width share a block (`block[slot, row]`), so that the decoder handles three arrays instead of
twenty and every finished column is a contiguous view without a copy.

Equal names get the same small number. A name is a span of the file, never copied. The table uses open
addressing over a power of two; each occupied slot holds the hash and the number of its name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from et_sim.compiled.decorators import compiled
from et_sim.compiled.entry_points import entry
from et_sim.trace.columns import BIT, LAST_KIND_NUMBER, NUMBERS, TEXT_ATTRIBUTES
from et_sim.trace.wire_fields import BYTES, FIXED32, FIXED64, VARINT, Bytes, read_fixed

_MULTIPLIER = np.int64(-7046029254386353131)  # 2^64 / golden ratio, as a signed number


class Text(NamedTuple):
    """Files one after the other, in two views: by byte, and by the eight bytes that start at each
    position.
    """

    data: Bytes
    words: npt.NDArray[np.int64]


class NameTable(NamedTuple):
    """Name number i is `size[i]` bytes of the text from `start[i]`; every file has names of its own."""

    slots: npt.NDArray[np.int64]  # hash << 32 | number + 1, or 0
    start: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    used: npt.NDArray[np.int64]  # names of all files, and of those before the current one


def as_text(content: bytes | Bytes) -> Text:
    """Return both views of some bytes, read-only and without a copy.

    All results have arrays of one type (Numba compiles per type, and writability and layout belong to it), so
    content too short for two words is padded.
    """
    data = np.frombuffer(content, np.uint8)
    padded = data if len(data) >= 9 else np.concatenate((data, np.zeros(9, np.uint8)))
    words = np.ndarray((len(padded) - 7,), np.dtype("<i8"), buffer=padded, strides=(1,))
    data.flags.writeable = False
    words.flags.writeable = False
    return Text(data, words)


def name_table(capacity: int) -> NameTable:
    """Return an empty table for up to `capacity` names that differ within a file."""
    slots = 1 << max(4, (2 * capacity - 1).bit_length())
    return NameTable(
        np.zeros(slots, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.zeros(2, np.int64),
    )


@compiled(forceinline=True)
def _word(text: Text, pos: int, size: int) -> Any:
    """Return up to eight bytes from `pos` as one number, the rest zero."""
    if pos < len(text.words):
        word = text.words[pos]
        return word if size >= 8 else word & ((np.int64(1) << (8 * size)) - 1)
    return read_fixed(text.data, pos, min(size, 8))


@compiled(forceinline=True)
def same_bytes(text: Text, first: int, second: int, size: int) -> bool:
    """Return whether two spans of the file of equal size hold equal bytes."""
    for index in range(0, size, 8):
        if _word(text, first + index, size - index) != _word(text, second + index, size - index):
            return False
    return True


@compiled(forceinline=True)
def _hash(text: Text, start: int, size: int) -> Any:
    """Multiply and fold, eight bytes at a time, to 31 bits. Products wrap around on purpose."""
    value = np.int64(size)
    for index in range(0, size, 8):
        value = (value ^ _word(text, start + index, size - index)) * _MULTIPLIER
        value ^= (value >> 32) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


@compiled
def intern(table: NameTable, text: Text, start: int, size: int) -> Any:
    """Return the number of the name within its file, new or old; -1 for a new name in a full table."""
    first = table.used[1]
    key = _hash(text, start, size) ^ ((first * _MULTIPLIER >> 32) & 0x7FFFFFFF)
    last = len(table.slots) - 1
    slot = key & last
    while table.slots[slot] != 0:
        held = table.slots[slot]
        number = (held & 0xFFFFFFFF) - 1
        if (
            held >> 32 == key
            and number >= first
            and table.size[number] == size
            and same_bytes(text, table.start[number], start, size)
        ):
            return number - first
        slot = (slot + 1) & last
    number = table.used[0]
    if number == len(table.start):
        return -1
    table.slots[slot] = (key << 32) | (number + 1)
    table.start[number] = start
    table.size[number] = size
    table.used[0] = number + 1
    return number - first


@entry(what="the trace decoder", seconds=lambda *arguments: len(arguments[2]) * 1e-5)
def intern_spans(table: NameTable, text: Text, spans: npt.NDArray[np.int64]) -> None:
    """Replace the start of every span (start, size) by the number of its name."""
    for index in range(len(spans)):
        spans[index, 0] = intern(table, text, spans[index, 0], spans[index, 1])


@entry(what="the trace decoder", seconds=lambda data, _, __, joined: len(data) * 1e-8 + len(joined) * 2e-7)
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


# Slots of the int64, int32 and uint8 blocks; after these come the attributes that are numbers, or texts.
NODE_ID, DURATION, INVOLVED_DIMS, DATA_START, CTRL_START = range(5)
NAME, PRESENT = range(2)
KIND, INVOLVED_COUNT = range(2)
WIDE, NARROW, SMALL = range(3)  # the blocks
_BLOCKS: dict[npt.DTypeLike, int] = {np.int64: WIDE, np.int32: NARROW, np.bool_: SMALL}

# Attributes with a meaning; the number is that of the attribute's bit in `Trace.present`.
KNOWN_ATTRIBUTES = tuple(BIT)
INVOLVED_DIM, INPUTS, OUTPUTS = map(KNOWN_ATTRIBUTES.index, ("involved_dim", "inputs", "outputs"))
IGNORED = -1

# By known attribute: for a number its block, its slot and the lowest value allowed; for a text its slot, and
# its table of texts.
BLOCK, SLOT, LEAST = np.zeros((3, len(KNOWN_ATTRIBUTES)), np.int64)
_slots = [CTRL_START + 1, PRESENT + 1, INVOLVED_COUNT + 1]
for _number in NUMBERS:
    _meaning = KNOWN_ATTRIBUTES.index(_number.name)
    _block = _BLOCKS[_number.dtype]
    BLOCK[_meaning], SLOT[_meaning], LEAST[_meaning] = _block, _slots[_block], _number.limits[0]
    _slots[_block] += 1
TABLE = np.full(len(KNOWN_ATTRIBUTES), -1)
for _table, _text in enumerate(TEXT_ATTRIBUTES):
    _meaning = KNOWN_ATTRIBUTES.index(_text.name)
    TABLE[_meaning], SLOT[_meaning] = _table, _slots[NARROW]
    _slots[NARROW] += 1
WIDE_SLOTS, NARROW_SLOTS, SMALL_SLOTS = _slots

# AttributeProto: the members of its oneof, by field number (`K_list` is one above `K_val`).
DOUBLE_VAL, FLOAT_VAL, INT32_VAL, INT64_VAL, UINT32_VAL, UINT64_VAL, SINT32_VAL, SINT64_VAL = range(3, 19, 2)
FIXED32_VAL, FIXED64_VAL, SFIXED32_VAL, SFIXED64_VAL, BOOL_VAL, STRING_VAL, BYTES_VAL = range(19, 33, 2)
LAST_MEMBER = BYTES_VAL + 1
STRING_LIST = STRING_VAL + 1

_KINDS = (FIXED64, FIXED32, *[VARINT] * 6, FIXED32, FIXED64, FIXED32, FIXED64, VARINT, BYTES, BYTES)
# wire type of each member, by field number; other combinations are unknown fields
MEMBER_WIRE = np.array([-1, -1, -1, *[wire for kind in _KINDS for wire in (kind, BYTES)]])

# failure codes beyond those of `wire_fields`
NOT_A_HEADER = -20
RECORD_TOO_LONG = -21
BAD_NODE_KIND = -22
BAD_DURATION = -23
WRONG_ATTRIBUTE_KIND = -24
NUMBER_OUT_OF_RANGE = -25
TOO_MANY_DIMENSIONS = -26
TOO_MANY_ATTRIBUTE_NAMES = -27

# no writer has more than a few dozen attribute names; the bound keeps small files cheap
MAX_ATTRIBUTE_NAMES = 4096
MAX_DIMENSIONS = 64


class Vocabulary(NamedTuple):
    """The state of each attribute name of the current file, by its number in `names`."""

    names: NameTable
    meaning: npt.NDArray[np.int64]  # place in KNOWN_ATTRIBUTES, or IGNORED
    nodes: npt.NDArray[np.int64]  # number of nodes with it
    last_row: npt.NDArray[np.int64]  # the last row with it
    successor: npt.NDArray[np.int64]  # the name that followed it last time, or -1; last cell: node start


class DecodeBuffers(NamedTuple):
    """All arrays that the decoder reads and writes."""

    text: Text
    files: npt.NDArray[np.int64]  # beginning of each file, and the end of the last
    first_row: npt.NDArray[np.int64]  # of each file, and the end of the last
    heads: npt.NDArray[np.int64]  # of each file: end of its first record, start and size of its version
    named: npt.NDArray[np.int64]  # of each table of names, and `ignored`: entries of earlier files
    wide: npt.NDArray[np.int64]
    narrow: npt.NDArray[np.int32]
    small: npt.NDArray[np.uint8]
    data_deps: npt.NDArray[np.int64]
    ctrl_deps: npt.NDArray[np.int64]
    texts: npt.NDArray[np.int64]  # row, start, size of each METADATA node's text
    lists: npt.NDArray[np.int64]  # row, attribute, first word, words of each list of tensors
    words: npt.NDArray[np.int64]  # start, size of each word in those lists
    ignored: npt.NDArray[np.int64]  # start, size, nodes of each unknown attribute of a file
    names: NameTable
    tables: tuple[NameTable, ...]  # of each attribute that is a text
    attributes: Vocabulary
    registers: npt.NDArray[np.int64]  # see below


# `DecodeBuffers.registers`: progress, and the first failure (FAILURE is 0 without one).
NODES, ROW, POSITION, ROOM, TEXTS, BEGUN, IGNORED_NAMES = range(7)  # BEGUN: files begun
FAILURE, OFFSET, RECORD, RECORD_START, RECORD_END, ATTRIBUTE_START, ATTRIBUTE_END = range(7, 14)
# registers for a node's fields until its record ends
NODE_KIND, NAME_START, NAME_SIZE, TEXT_START, TEXT_SIZE = range(14, 19)
LISTS, WORDS = range(19, 21)
REGISTERS = 21
HEAD_END, VERSION_START, VERSION_SIZE = range(3)  # of `DecodeBuffers.heads`
LISTS_PER_NODE = 2
METADATA = 1  # NodeKind
LAST_KIND = LAST_KIND_NUMBER


def empty_buffers(content: bytes | Bytes, files: npt.NDArray[np.int64]) -> DecodeBuffers:
    """Return buffers without rows, for counting the nodes; `files` holds the beginnings and the last end."""
    names = MAX_ATTRIBUTE_NAMES
    vocabulary = Vocabulary(
        name_table(names),
        np.empty(names, np.int64),
        np.zeros(names, np.int64),
        np.full(names, -1, np.int64),
        np.full(names + 1, -1, np.int64),
    )
    count = len(files) - 1
    return DecodeBuffers(
        text=as_text(content),
        files=files,
        first_row=np.zeros(count + 1, np.int64),
        heads=np.zeros((count, 3), np.int64),
        named=np.zeros((len(TEXT_ATTRIBUTES) + 2, count + 1), np.int64),
        **_of_nodes(0),
        attributes=vocabulary,
        registers=np.zeros(REGISTERS, np.int64),
    )


def with_rows(buffers: DecodeBuffers) -> DecodeBuffers:
    """Return the buffers with space for the counted nodes."""
    return buffers._replace(**_of_nodes(int(buffers.registers[NODES])))


def with_longer_lists(buffers: DecodeBuffers) -> DecodeBuffers:
    """Return the buffers with lists that can take the next record and as much again as they hold."""
    more = int(buffers.registers[ROOM])
    return buffers._replace(
        data_deps=_longer(buffers.data_deps, more),
        ctrl_deps=_longer(buffers.ctrl_deps, more),
        texts=_longer(buffers.texts, 1),
        words=_longer(buffers.words, more),
        ignored=_longer(buffers.ignored, MAX_ATTRIBUTE_NAMES),
    )


def _longer(held: npt.NDArray[np.int64], more: int) -> npt.NDArray[np.int64]:
    result = np.empty((2 * len(held) + more, *held.shape[1:]), np.int64)
    result[: len(held)] = held
    return result


def _of_nodes(nodes: int) -> dict[str, Any]:
    # an odd number of cache lines per column: at a power of two, the cells of one row would all compete for
    # the same cache set
    width = ((nodes + 64) // 64 | 1) * 64
    return {
        "wide": np.zeros((WIDE_SLOTS, width), np.int64),
        "narrow": np.zeros((NARROW_SLOTS, width), np.int32),
        "small": np.zeros((SMALL_SLOTS, width), np.uint8),
        "data_deps": np.empty(4 * nodes, np.int64),
        "ctrl_deps": np.empty(nodes, np.int64),
        "texts": np.empty((16, 3), np.int64),
        "lists": np.empty((16 + LISTS_PER_NODE * nodes, 4), np.int64),
        "words": np.empty((4 * nodes, 2), np.int64),
        "ignored": np.empty((MAX_ATTRIBUTE_NAMES, 3), np.int64),
        "names": name_table(nodes),
        "tables": tuple(name_table(nodes) for _ in TEXT_ATTRIBUTES),
    }
