"""The compiled decoder: the bytes of some files to blocks of columns, in file order.

`decode_records` is called until every node has its row. Without rows it walks the record lengths (which
counts the nodes and finds a truncated file) and reads the first records. With rows it decodes node after
node, file after file, until the next one might not fit the dependency lists, which the caller then replaces
by longer ones. Nothing is allocated here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from et_sim.compiled.decorators import compiled
from et_sim.trace import wire_layout as at
from et_sim.trace.wire_attributes import decode_attribute, fail
from et_sim.trace.wire_fields import BYTES, VARINT, as_signed_32, read_cold_field, read_field, read_varint
from et_sim.trace.wire_layout import DecodeBuffers, intern

Integers = npt.NDArray[np.int64]


def decode_records(buffers: DecodeBuffers) -> None:
    """Continue decoding; `buffers.registers` holds the progress and the failure."""
    registers = buffers.registers
    if registers[at.POSITION] > 0:
        _decode_while_room(buffers)
        return
    for file in range(len(buffers.heads)):
        if _count_nodes(buffers, file) < 0 or _decode_header(buffers, file) < 0:
            return
    registers[at.NODES] = buffers.first_row[len(buffers.heads)]
    registers[at.POSITION] = 1


@compiled
def _count_nodes(buffers: DecodeBuffers, file: int) -> int:
    """Count the records after the first; read only the record lengths."""
    data = buffers.text.data
    records = 0
    pos = buffers.files[file]
    last = buffers.files[file + 1]
    while pos < last:
        size, start = read_varint(data, pos, last)
        code = min(start, 0)
        if code == 0 and (size < 0 or size > last - start):
            code = at.RECORD_TOO_LONG
        if code < 0:
            buffers.registers[at.RECORD] = records
            buffers.registers[at.RECORD_START] = start
            buffers.registers[at.RECORD_END] = size
            return fail(buffers, code, pos)
        records += 1
        pos = start + size
    buffers.first_row[file + 1] = buffers.first_row[file] + records - 1
    return 0


@compiled
def _decode_header(buffers: DecodeBuffers, file: int) -> Any:
    """Find the version text; refuse a first record that cannot be a GlobalMetadata."""
    data = buffers.text.data
    size, start = read_varint(data, buffers.files[file], buffers.files[file + 1])
    end = start + size
    pos = start
    while pos < end:
        field, wire, payload, length, after = read_cold_field(data, pos, end)
        is_node = wire == VARINT and field in (1, 3)
        if after < 0 or is_node or (field == 2 and wire == BYTES and not _parses(buffers, payload, after)):
            buffers.registers[at.RECORD_START] = start
            buffers.registers[at.RECORD_END] = end
            return fail(buffers, at.NOT_A_HEADER, pos)
        if field == 1 and wire == BYTES:
            buffers.heads[file, at.VERSION_START] = payload
            buffers.heads[file, at.VERSION_SIZE] = length
        pos = after
    buffers.heads[file, at.HEAD_END] = end
    return 0


@compiled
def _parses(buffers: DecodeBuffers, pos: Any, end: int) -> Any:
    """Return whether the bytes are a sequence of whole fields."""
    while 0 <= pos < end:
        pos = read_cold_field(buffers.text.data, pos, end)[4]
    return pos == end


@compiled
def _decode_while_room(buffers: DecodeBuffers) -> None:
    """Decode nodes until the end, a failure, or a record that might not fit the lists.

    A dependency or a word takes at least one byte, so a record cannot hold more of them than bytes. Lists of
    tensors have space for every node from the start.
    """
    registers = buffers.registers
    row = registers[at.ROW]
    while registers[at.BEGUN] <= len(buffers.heads):
        if row == buffers.first_row[registers[at.BEGUN]]:
            if not _begin_next_file(buffers):
                registers[at.ROOM] = 0
                break
            continue
        pos = registers[at.POSITION]
        size, start = read_varint(buffers.text.data, pos, len(buffers.text.data))
        room = min(
            len(buffers.data_deps) - buffers.wide[at.DATA_START, row],
            len(buffers.ctrl_deps) - buffers.wide[at.CTRL_START, row],
            len(buffers.words) - registers[at.WORDS],
        )
        if size > room or registers[at.TEXTS] == len(buffers.texts):
            registers[at.ROOM] = size
            break
        if _decode_node(buffers, start, start + size, row) < 0:
            registers[at.RECORD] = row + 1
            registers[at.RECORD_START] = start
            registers[at.RECORD_END] = start + size
            break
        registers[at.POSITION] = start + size
        row += 1
    registers[at.ROW] = row


@compiled
def _begin_next_file(buffers: DecodeBuffers) -> bool:
    """Finish a file and begin the next, if there is one; return False if ignored attributes have no space
    left.
    """
    registers, known = buffers.registers, buffers.attributes
    file = registers[at.BEGUN]
    if len(buffers.ignored) - registers[at.IGNORED_NAMES] < known.names.used[0]:
        return False
    for name in range(known.names.used[0]):
        if known.meaning[name] == at.IGNORED:
            count = registers[at.IGNORED_NAMES]
            buffers.ignored[count, 0] = known.names.start[name]
            buffers.ignored[count, 1] = known.names.size[name]
            buffers.ignored[count, 2] = known.nodes[name]
            registers[at.IGNORED_NAMES] = count + 1
    if 0 < file < len(buffers.heads):
        _forget_attributes(buffers)
    if file < len(buffers.heads):
        registers[at.POSITION] = buffers.heads[file, at.HEAD_END]
    buffers.named[0, file] = registers[at.IGNORED_NAMES]
    buffers.named[1, file] = buffers.names.used[0]
    buffers.names.used[1] = buffers.names.used[0]
    for table in range(len(buffers.tables)):
        buffers.named[table + 2, file] = buffers.tables[table].used[0]
        buffers.tables[table].used[1] = buffers.tables[table].used[0]
    registers[at.BEGUN] = file + 1
    return True


@compiled
def _forget_attributes(buffers: DecodeBuffers) -> None:
    """Clear the attribute names: the next file has its own."""
    known = buffers.attributes
    for name in range(known.names.used[0]):
        known.nodes[name] = 0
        known.successor[name] = -1
    known.successor[at.MAX_ATTRIBUTE_NAMES] = -1
    for slot in range(len(known.names.slots)):
        known.names.slots[slot] = 0
    known.names.used[0] = 0


@compiled(forceinline=True)
def _decode_node(buffers: DecodeBuffers, start: int, end: int, row: int) -> Any:
    """Decode one node record; fields may come in any order, and of a repeated scalar the last counts."""
    registers = buffers.registers
    registers[at.NODE_KIND] = 0
    registers[at.NAME_SIZE] = 0
    registers[at.TEXT_SIZE] = 0
    buffers.wide[at.DATA_START, row + 1] = buffers.wide[at.DATA_START, row]
    buffers.wide[at.CTRL_START, row + 1] = buffers.wide[at.CTRL_START, row]
    attribute = at.MAX_ATTRIBUTE_NAMES
    pos = start
    while pos < end:
        field, wire, payload, size, after = read_field(buffers.text.data, pos, end)
        if after < 0:
            return fail(buffers, after, pos)
        if wire == BYTES:
            if field == 10:
                attribute = decode_attribute(buffers, payload, after, row, attribute)
                if attribute < 0:
                    return attribute
            elif _take_bytes(buffers, row, field, payload, size) < 0:
                return -1
        elif wire == VARINT:
            _take_number(buffers, row, field, payload)
        pos = after
    return _finish_node(buffers, row, start)


@compiled(forceinline=True)
def _take_number(buffers: DecodeBuffers, row: int, field: int, value: Any) -> None:
    if field == 1:
        buffers.wide[at.NODE_ID, row] = value
    elif field == 3:
        buffers.registers[at.NODE_KIND] = as_signed_32(value)
    elif field == 7:
        buffers.wide[at.DURATION, row] = value
    elif field == 5:
        _add_dependency(buffers.data_deps, buffers.wide[at.DATA_START], row, value)
    elif field == 4:
        _add_dependency(buffers.ctrl_deps, buffers.wide[at.CTRL_START], row, value)


@compiled(forceinline=True)
def _take_bytes(buffers: DecodeBuffers, row: int, field: int, start: Any, size: int) -> Any:
    if field == 5:
        return _add_dependencies(buffers, buffers.data_deps, at.DATA_START, row, start, start + size)
    if field == 4:
        return _add_dependencies(buffers, buffers.ctrl_deps, at.CTRL_START, row, start, start + size)
    if field == 2:
        buffers.registers[at.NAME_START] = start
        buffers.registers[at.NAME_SIZE] = size
    elif field == 8:
        return _find_values(buffers, start, start + size)
    return 0


@compiled
def _add_dependency(held: Integers, list_start: Integers, row: int, value: Any) -> None:
    """Add one id of an unpacked list."""
    held[list_start[row + 1]] = value
    list_start[row + 1] += 1


@compiled(forceinline=True)
def _add_dependencies(buffers: DecodeBuffers, held: Integers, slot: int, row: int, pos: Any, end: int) -> int:
    """Append a packed list of ids to the list of `row`."""
    count = buffers.wide[slot, row + 1]
    while pos < end:
        value, after = read_varint(buffers.text.data, pos, end)
        if after < 0:
            return fail(buffers, after, pos)
        held[count] = value
        count += 1
        pos = after
    buffers.wide[slot, row + 1] = count
    return 0


@compiled
def _find_values(buffers: DecodeBuffers, pos: Any, end: int) -> int:
    """Find IOInfo.values; an occurrence without one does not override an earlier one."""
    while pos < end:
        field, wire, payload, size, after = read_cold_field(buffers.text.data, pos, end)
        if after < 0:
            return fail(buffers, after, pos)
        if field == 1 and wire == BYTES:
            buffers.registers[at.TEXT_START] = payload
            buffers.registers[at.TEXT_SIZE] = size
        pos = after
    return 0


@compiled(forceinline=True)
def _finish_node(buffers: DecodeBuffers, row: int, start: int) -> Any:
    """Check and store the fields that need the whole record."""
    registers = buffers.registers
    kind = registers[at.NODE_KIND]
    if kind < 0 or kind > at.LAST_KIND:
        return fail(buffers, at.BAD_NODE_KIND, start)
    if buffers.wide[at.DURATION, row] < 0:
        return fail(buffers, at.BAD_DURATION, start)
    buffers.small[at.KIND, row] = kind
    buffers.narrow[at.NAME, row] = intern(
        buffers.names, buffers.text, registers[at.NAME_START], registers[at.NAME_SIZE]
    )
    if kind == at.METADATA and registers[at.TEXT_SIZE] > 0:
        count = registers[at.TEXTS]
        buffers.texts[count, 0] = row
        buffers.texts[count, 1] = registers[at.TEXT_START]
        buffers.texts[count, 2] = registers[at.TEXT_SIZE]
        registers[at.TEXTS] = count + 1
    return 0
