"""Decoding of one AttributeProto in compiled code: find its name and value, and store the value in its
column.

The first attribute of a name counts; within one attribute the last member of the oneof counts. A trace
repeats the same attributes in the same order node after node, so the last successor of a name is tried before
hashing.
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
from et_sim.trace.wire_layout import DecodeBuffers, NameTable, Text, Vocabulary, intern, same_bytes

_KNOWN_TEXT = np.frombuffer("".join(at.KNOWN_ATTRIBUTES).encode(), np.uint8)
_KNOWN_END = np.cumsum([len(name) for name in at.KNOWN_ATTRIBUTES])


@compiled(forceinline=True)
def fail(buffers: DecodeBuffers, code: int, offset: int) -> int:
    """Record the first failure and return its (negative) code."""
    buffers.registers[at.FAILURE] = code
    buffers.registers[at.OFFSET] = offset
    return code


@compiled(forceinline=True)
def decode_attribute(buffers: DecodeBuffers, start: int, end: int, row: int, previous: int) -> Any:
    """Decode the attribute in `[start, end)`; return the number of its name, or a failure."""
    name_start = start
    name_size = 0
    member = 0
    value = np.int64(0)
    size = 0
    pos = start
    while pos < end:
        field, wire, payload, length, after = read_field(buffers.text.data, pos, end)
        if after < 0:
            return fail(buffers, after, pos)
        if field == 1 and wire == BYTES:
            name_start = payload
            name_size = length
        elif 3 <= field <= at.LAST_MEMBER and wire == at.MEMBER_WIRE[field]:
            member = field
            value = payload
            size = length
        pos = after
    number = _recognise(buffers.attributes, buffers.text, name_start, name_size, previous)
    if number < 0:
        return fail(buffers, at.TOO_MANY_ATTRIBUTE_NAMES, start)
    meaning = buffers.attributes.meaning[number]
    if meaning == at.IGNORED:
        _count_ignored(buffers.attributes, number, row)
        return number
    if (buffers.narrow[at.PRESENT, row] >> meaning) & 1:
        return number
    buffers.narrow[at.PRESENT, row] |= 1 << meaning
    table = at.TABLE[meaning]
    if table >= 0:
        code = _store_text(buffers, buffers.tables[table], at.SLOT[meaning], row, member, value, size)
    elif meaning == at.INVOLVED_DIM:
        code = _store_flags(buffers, start, end, row, member)
    elif meaning == at.INPUTS or meaning == at.OUTPUTS:
        code = _note_words(buffers, start, end, row, meaning, member)
    else:
        code = _store_number(buffers, row, meaning, member, value)
    if code < 0:
        buffers.registers[at.ATTRIBUTE_START] = start
        buffers.registers[at.ATTRIBUTE_END] = end
        return fail(buffers, code, start)
    return number


@compiled(forceinline=True)
def _recognise(vocabulary: Vocabulary, text: Text, start: int, size: int, previous: int) -> Any:
    """Return the number of an attribute name; `previous` is the number of the attribute before it."""
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


@compiled
def _meaning(data: Bytes, start: int, size: int) -> int:
    """Return the place of a name among the known attributes, or IGNORED."""
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


@compiled(forceinline=True)
def _count_ignored(vocabulary: Vocabulary, number: int, row: int) -> None:
    """Count nodes, not occurrences."""
    if vocabulary.last_row[number] != row:
        vocabulary.last_row[number] = row
        vocabulary.nodes[number] += 1


@compiled(forceinline=True)
def _store_number(buffers: DecodeBuffers, row: int, meaning: int, member: int, value: Any) -> int:
    if member < at.INT32_VAL or member > at.BOOL_VAL or member & 1 == 0:
        return at.WRONG_ATTRIBUTE_KIND
    number = _as_integer(member, value)
    block = at.BLOCK[meaning]
    if block == at.SMALL:
        buffers.small[at.SLOT[meaning], row] = 1 if number != 0 else 0
        return 0
    is_unsigned = member in (at.UINT64_VAL, at.FIXED64_VAL)
    if number < at.LEAST[meaning] or (number < 0 and is_unsigned):
        return at.NUMBER_OUT_OF_RANGE
    if block == at.WIDE:
        buffers.wide[at.SLOT[meaning], row] = number
        return 0
    if number > 0x7FFFFFFF:
        return at.NUMBER_OUT_OF_RANGE
    buffers.narrow[at.SLOT[meaning], row] = number
    return 0


@compiled(forceinline=True)
def _as_integer(member: int, value: Any) -> Any:
    """Return the value of an integer or bool member; 64-bit unsigned ones keep their bits."""
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


@compiled(forceinline=True)
def _store_text(
    buffers: DecodeBuffers, texts: NameTable, slot: int, row: int, member: int, start: Any, size: int
) -> int:
    """Return the number of a text; the empty one is 0."""
    if member != at.STRING_VAL:
        return at.WRONG_ATTRIBUTE_KIND
    buffers.narrow[slot, row] = 0 if size == 0 else intern(texts, buffers.text, start, size) + 1
    return 0


@compiled
def _store_flags(buffers: DecodeBuffers, start: int, end: int, row: int, member: int) -> int:
    """Collect a list of flags; protobuf joins the lists if one member occurs repeatedly."""
    if member < at.INT32_VAL + 1 or member > at.BOOL_VAL + 1 or member & 1:
        return at.WRONG_ATTRIBUTE_KIND
    code = 0
    pos = start
    while pos < end and code >= 0:
        field, wire, payload, size, pos = read_cold_field(buffers.text.data, pos, end)
        if field < 3 or field > at.LAST_MEMBER or wire != at.MEMBER_WIRE[field]:
            continue
        if field == member:
            code = _add_list(buffers, payload, payload + size, row, at.MEMBER_WIRE[member - 1])
        else:
            buffers.wide[at.INVOLVED_DIMS, row] = 0
            buffers.small[at.INVOLVED_COUNT, row] = 0
    return code


@compiled
def _add_list(buffers: DecodeBuffers, pos: int, end: int, row: int, element_wire: int) -> int:
    """Add one `K_list` message: flags packed in a BYTES field, or one field each."""
    while pos < end:
        field, wire, payload, size, after = read_cold_field(buffers.text.data, pos, end)
        if after < 0:
            return after
        code = 0
        if field == 1 and wire == element_wire:
            code = _add_flag(buffers, row, payload)
        elif field == 1 and wire == BYTES:
            code = _add_packed(buffers, payload, payload + size, row, element_wire)
        if code < 0:
            return code
        pos = after
    return 0


@compiled
def _add_packed(buffers: DecodeBuffers, pos: int, end: int, row: int, element_wire: int) -> int:
    width = 8 if element_wire == 1 else 4
    while pos < end:
        if element_wire == 0:
            value, pos = read_varint(buffers.text.data, pos, end)
            if pos < 0:
                return pos
        elif width > end - pos:
            return OUTSIDE_RECORD
        else:
            value = read_fixed(buffers.text.data, pos, width)
            pos += width
        if _add_flag(buffers, row, value) < 0:
            return at.TOO_MANY_DIMENSIONS
    return 0


@compiled
def _add_flag(buffers: DecodeBuffers, row: int, value: Any) -> int:
    count = np.int64(buffers.small[at.INVOLVED_COUNT, row])
    if count >= at.MAX_DIMENSIONS:
        return at.TOO_MANY_DIMENSIONS
    if value != 0:
        buffers.wide[at.INVOLVED_DIMS, row] |= np.int64(1) << count
    buffers.small[at.INVOLVED_COUNT, row] = count + 1
    return 0


@compiled
def _note_words(buffers: DecodeBuffers, start: int, end: int, row: int, meaning: int, member: int) -> int:
    """Record the positions of the texts of a list; writers leave an empty list without a value."""
    if member not in (0, at.STRING_LIST):
        return at.WRONG_ATTRIBUTE_KIND
    registers = buffers.registers
    first = registers[at.WORDS]
    pos = start
    while pos < end:
        field, wire, payload, size, pos = read_cold_field(buffers.text.data, pos, end)
        if field < 3 or field > at.LAST_MEMBER or wire != at.MEMBER_WIRE[field]:
            continue
        if field != member:
            registers[at.WORDS] = first  # of a oneof, only the last member counts
        else:
            code = _add_words(buffers, payload, payload + size)
            if code < 0:
                return code
    count = registers[at.LISTS]
    buffers.lists[count, 0] = row
    buffers.lists[count, 1] = meaning
    buffers.lists[count, 2] = first
    buffers.lists[count, 3] = registers[at.WORDS] - first
    registers[at.LISTS] = count + 1
    return 0


@compiled
def _add_words(buffers: DecodeBuffers, pos: int, end: int) -> int:
    """Add one StringList message."""
    while pos < end:
        field, wire, payload, size, after = read_cold_field(buffers.text.data, pos, end)
        if after < 0:
            return after
        if field == 1 and wire == BYTES:
            count = buffers.registers[at.WORDS]
            buffers.words[count, 0] = payload
            buffers.words[count, 1] = size
            buffers.registers[at.WORDS] = count + 1
        pos = after
    return 0
