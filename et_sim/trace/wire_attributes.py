"""One AttributeProto in compiled code: find its name and value, and put the value in its column.

The first attribute of a name counts; within one attribute the last member of the oneof counts.
A trace repeats the same attributes in the same order node after node, so the name that followed
last time is tried before hashing.

Not here: the other fields of a node (`wire_nodes`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.compiled.decorators import compiled
from et_sim.trace import wire_layout as at
from et_sim.trace.wire_fields import (
    BYTES,
    OUTSIDE_RECORD,
    Bytes,
    as_signed_32,
    as_unsigned_32,
    read_cold_field,
    read_field,
    read_fixed,
    read_varint,
    unzigzag,
)
from et_sim.trace.wire_layout import Sink, Vocabulary
from et_sim.trace.wire_names import Text, intern, same_bytes

_KNOWN_TEXT = np.frombuffer("".join(at.KNOWN_ATTRIBUTES).encode(), np.uint8)
_KNOWN_END = np.cumsum([len(name) for name in at.KNOWN_ATTRIBUTES])


@compiled(allocates=False, forceinline=True)
def fail(sink: Sink, code: int, offset: int) -> int:
    """Note the first thing that went wrong; returns the (negative) code."""
    sink.cells[at.FAILURE] = code
    sink.cells[at.OFFSET] = offset
    return code


@compiled(allocates=False, forceinline=True)
def decode_attribute(sink: Sink, start: int, end: int, row: int, previous: int) -> Any:
    """Take in the attribute in `[start, end)`; returns the number of its name, or a failure."""
    name_start = start
    name_size = 0
    member = 0
    value = np.int64(0)
    size = 0
    pos = start
    while pos < end:
        field, wire, payload, length, after = read_field(sink.text.data, pos, end)
        if after < 0:
            return fail(sink, after, pos)
        if field == 1 and wire == BYTES:
            name_start = payload
            name_size = length
        elif 3 <= field <= at.LAST_MEMBER and wire == at.MEMBER_WIRE[field]:
            member = field
            value = payload
            size = length
        pos = after
    number = _recognise(sink.attributes, sink.text, name_start, name_size, previous)
    if number < 0:
        return fail(sink, at.TOO_MANY_ATTRIBUTE_NAMES, start)
    meaning = sink.attributes.meaning[number]
    if meaning == at.IGNORED:
        _count_ignored(sink.attributes, number, row)
        return number
    if (sink.narrow[at.PRESENT, row] >> meaning) & 1:
        return number
    sink.narrow[at.PRESENT, row] |= 1 << meaning
    if meaning == at.PG_NAME:
        code = _store_group(sink, row, member, value, size)
    elif meaning == at.INVOLVED_DIM:
        code = _store_flags(sink, start, end, row, member)
    elif meaning == at.INPUTS or meaning == at.OUTPUTS:
        code = _note_words(sink, start, end, row, meaning, member)
    else:
        code = _store_number(sink, row, meaning, member, value)
    if code < 0:
        sink.cells[at.ATTRIBUTE_START] = start
        sink.cells[at.ATTRIBUTE_END] = end
        return fail(sink, code, start)
    return number


@compiled(allocates=False, forceinline=True)
def _recognise(vocabulary: Vocabulary, text: Text, start: int, size: int, previous: int) -> Any:
    """The number of an attribute name; `previous` is the number of the attribute before it."""
    guess = vocabulary.successor[previous]
    names = vocabulary.names
    if guess >= 0 and names.size[guess] == size and same_bytes(text, names.start[guess], start, size):
        return guess
    before = names.used[0]
    number = intern(names, text, start, size)
    if number == before:
        vocabulary.meaning[number] = _meaning(text.data, start, size)
    if number >= 0:
        vocabulary.successor[previous] = number
    return number


@compiled(allocates=False)
def _meaning(data: Bytes, start: int, size: int) -> int:
    """The place of a name among the known attributes, or IGNORED."""
    begin = 0
    for meaning in range(len(_KNOWN_END)):
        end = _KNOWN_END[meaning]
        if end - begin == size:
            index = 0
            while index < size and data[start + index] == _KNOWN_TEXT[begin + index]:
                index += 1
            if index == size:
                return meaning
        begin = end
    return at.IGNORED


@compiled(allocates=False, forceinline=True)
def _count_ignored(vocabulary: Vocabulary, number: int, row: int) -> None:
    """Count nodes, not occurrences."""
    if vocabulary.last_row[number] != row:
        vocabulary.last_row[number] = row
        vocabulary.nodes[number] += 1


@compiled(allocates=False, forceinline=True)
def _store_number(sink: Sink, row: int, meaning: int, member: int, value: Any) -> int:
    if member < at.INT32_VAL or member > at.BOOL_VAL or member & 1 == 0:
        return at.WRONG_ATTRIBUTE_KIND
    number = _as_integer(member, value)
    block = at.BLOCK[meaning]
    if block == at.SMALL:
        sink.small[at.SLOT[meaning], row] = 1 if number != 0 else 0
        return 0
    is_unsigned = member in (at.UINT64_VAL, at.FIXED64_VAL)
    if number < at.LEAST[meaning] or (number < 0 and is_unsigned):
        return at.NUMBER_OUT_OF_RANGE
    if block == at.WIDE:
        sink.wide[at.SLOT[meaning], row] = number
        return 0
    if number > 0x7FFFFFFF:
        return at.NUMBER_OUT_OF_RANGE
    sink.narrow[at.SLOT[meaning], row] = number
    return 0


@compiled(allocates=False, forceinline=True)
def _as_integer(member: int, value: Any) -> Any:
    """The value of an integer or bool member; 64-bit unsigned ones keep their bits."""
    if member in (at.INT64_VAL, at.UINT64_VAL):
        return value
    if member == at.BOOL_VAL:
        return np.int64(value != 0)
    if member in (at.INT32_VAL, at.SFIXED32_VAL):
        return as_signed_32(value)
    if member in (at.UINT32_VAL, at.FIXED32_VAL):
        return as_unsigned_32(value)
    if member == at.SINT32_VAL:
        return unzigzag(as_unsigned_32(value))
    if member == at.SINT64_VAL:
        return unzigzag(value)
    return value


@compiled(allocates=False, forceinline=True)
def _store_group(sink: Sink, row: int, member: int, start: Any, size: int) -> int:
    """The empty name is group 0, which means all ranks."""
    if member != at.STRING_VAL:
        return at.WRONG_ATTRIBUTE_KIND
    sink.narrow[at.GROUP, row] = 0 if size == 0 else intern(sink.groups, sink.text, start, size) + 1
    return 0


@compiled(allocates=False)
def _store_flags(sink: Sink, start: int, end: int, row: int, member: int) -> int:
    """Collect a list of flags; protobuf joins the lists if one member occurs repeatedly."""
    if member < at.INT32_VAL + 1 or member > at.BOOL_VAL + 1 or member & 1:
        return at.WRONG_ATTRIBUTE_KIND
    code = 0
    pos = start
    while pos < end and code >= 0:
        field, wire, payload, size, pos = read_cold_field(sink.text.data, pos, end)
        if field < 3 or field > at.LAST_MEMBER or wire != at.MEMBER_WIRE[field]:
            continue
        if field == member:
            code = _add_list(sink, payload, payload + size, row, at.MEMBER_WIRE[member - 1])
        else:
            sink.wide[at.INVOLVED_DIMS, row] = 0
            sink.small[at.INVOLVED_COUNT, row] = 0
    return code


@compiled(allocates=False)
def _add_list(sink: Sink, pos: int, end: int, row: int, element_wire: int) -> int:
    """One `K_list` message: flags packed in a BYTES field, or one field each."""
    while pos < end:
        field, wire, payload, size, after = read_cold_field(sink.text.data, pos, end)
        if after < 0:
            return after
        code = 0
        if field == 1 and wire == element_wire:
            code = _add_flag(sink, row, payload)
        elif field == 1 and wire == BYTES:
            code = _add_packed(sink, payload, payload + size, row, element_wire)
        if code < 0:
            return code
        pos = after
    return 0


@compiled(allocates=False)
def _add_packed(sink: Sink, pos: int, end: int, row: int, element_wire: int) -> int:
    width = 8 if element_wire == 1 else 4
    while pos < end:
        if element_wire == 0:
            value, pos = read_varint(sink.text.data, pos, end)
            if pos < 0:
                return pos
        elif width > end - pos:
            return OUTSIDE_RECORD
        else:
            value = read_fixed(sink.text.data, pos, width)
            pos += width
        if _add_flag(sink, row, value) < 0:
            return at.TOO_MANY_DIMENSIONS
    return 0


@compiled(allocates=False)
def _add_flag(sink: Sink, row: int, value: Any) -> int:
    count = np.int64(sink.small[at.INVOLVED_COUNT, row])
    if count >= at.MAX_DIMENSIONS:
        return at.TOO_MANY_DIMENSIONS
    if value != 0:
        sink.wide[at.INVOLVED_DIMS, row] |= np.int64(1) << count
    sink.small[at.INVOLVED_COUNT, row] = count + 1
    return 0


@compiled(allocates=False)
def _note_words(sink: Sink, start: int, end: int, row: int, meaning: int, member: int) -> int:
    """Note where the texts of a list are; writers leave an empty list without a value."""
    if member not in (0, at.STRING_LIST):
        return at.WRONG_ATTRIBUTE_KIND
    cells = sink.cells
    first = cells[at.WORDS]
    pos = start
    while pos < end:
        field, wire, payload, size, pos = read_cold_field(sink.text.data, pos, end)
        if field < 3 or field > at.LAST_MEMBER or wire != at.MEMBER_WIRE[field]:
            continue
        if field != member:
            cells[at.WORDS] = first  # of a oneof, only the last member counts
        else:
            code = _add_words(sink, payload, payload + size)
            if code < 0:
                return code
    count = cells[at.LISTS]
    sink.lists[count, 0] = row
    sink.lists[count, 1] = meaning
    sink.lists[count, 2] = first
    sink.lists[count, 3] = cells[at.WORDS] - first
    cells[at.LISTS] = count + 1
    return 0


@compiled(allocates=False)
def _add_words(sink: Sink, pos: int, end: int) -> int:
    """One StringList message."""
    while pos < end:
        field, wire, payload, size, after = read_cold_field(sink.text.data, pos, end)
        if after < 0:
            return after
        if field == 1 and wire == BYTES:
            count = sink.cells[at.WORDS]
            sink.words[count, 0] = payload
            sink.words[count, 1] = size
            sink.cells[at.WORDS] = count + 1
        pos = after
    return 0
