"""The compiled decoder: the bytes of one file to blocks of columns, in file order.

`decode_records` is called until every node has its row. Without rows it walks the record lengths
(which counts the nodes and finds a cut file) and reads the first record; with rows it decodes
node after node until the next one might not fit the dependency lists, which the caller then
replaces by longer ones. Nothing is allocated here.

Not here: ordering by id, dependencies as rows, text as Python strings (all in `wire`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from et_sim.compiled.decorators import compiled, entry
from et_sim.trace import wire_layout as at
from et_sim.trace.wire_attributes import decode_attribute, fail
from et_sim.trace.wire_fields import BYTES, VARINT, as_signed_32, read_cold_field, read_field, read_varint
from et_sim.trace.wire_layout import Sink
from et_sim.trace.wire_names import intern

Integers = npt.NDArray[np.int64]


@entry(allocates=False)
def decode_records(sink: Sink) -> None:
    """Go on decoding; `sink.cells` tells how far it came and what failed."""
    cells = sink.cells
    if cells[at.POSITION] > 0:
        _decode_while_room(sink)
    elif _count_nodes(sink) >= 0:
        cells[at.POSITION] = _decode_header(sink)


@compiled(allocates=False)
def _count_nodes(sink: Sink) -> int:
    """Count the records after the first; reads only the record lengths."""
    data = sink.text.data
    records = 0
    pos = 0
    while pos < len(data):
        size, start = read_varint(data, pos, len(data))
        code = min(start, 0)
        if code == 0 and (size < 0 or size > len(data) - start):
            code = at.RECORD_TOO_LONG
        if code < 0:
            sink.cells[at.RECORD] = records
            sink.cells[at.RECORD_START] = start
            sink.cells[at.RECORD_END] = size
            return fail(sink, code, pos)
        records += 1
        pos = start + size
    sink.cells[at.NODES] = records - 1
    return 0


@compiled(allocates=False)
def _decode_header(sink: Sink) -> Any:
    """Find the version text; refuse a first record that cannot be a GlobalMetadata."""
    data = sink.text.data
    size, start = read_varint(data, 0, len(data))
    end = start + size
    pos = start
    while pos < end:
        field, wire, payload, length, after = read_cold_field(data, pos, end)
        is_node = wire == VARINT and field in (1, 3)
        if after < 0 or is_node or (field == 2 and wire == BYTES and not _parses(sink, payload, after)):
            sink.cells[at.RECORD_START] = start
            sink.cells[at.RECORD_END] = end
            return fail(sink, at.NOT_A_HEADER, pos)
        if field == 1 and wire == BYTES:
            sink.cells[at.VERSION_START] = payload
            sink.cells[at.VERSION_SIZE] = length
        pos = after
    return end


@compiled(allocates=False)
def _parses(sink: Sink, pos: Any, end: int) -> Any:
    """Whether the bytes are a sequence of whole fields."""
    while 0 <= pos < end:
        pos = read_cold_field(sink.text.data, pos, end)[4]
    return pos == end


@compiled(allocates=False)
def _decode_while_room(sink: Sink) -> None:
    """Decode nodes until the end, a failure, or a record that might not fit the lists.

    A dependency takes at least one byte, and so does a word, so a record cannot hold more of them than
    bytes. Lists of tensors have room for every node from the start.
    """
    cells = sink.cells
    row = cells[at.ROW]
    pos = cells[at.POSITION]
    while row < cells[at.NODES]:
        size, start = read_varint(sink.text.data, pos, len(sink.text.data))
        room = min(
            len(sink.data_deps) - sink.wide[at.DATA_START, row],
            len(sink.ctrl_deps) - sink.wide[at.CTRL_START, row],
            len(sink.words) - cells[at.WORDS],
        )
        if size > room or cells[at.TEXTS] == len(sink.texts):
            cells[at.ROOM] = size
            break
        if _decode_node(sink, start, start + size, row) < 0:
            cells[at.RECORD] = row + 1
            cells[at.RECORD_START] = start
            cells[at.RECORD_END] = start + size
            break
        pos = start + size
        row += 1
    cells[at.ROW] = row
    cells[at.POSITION] = pos


@compiled(allocates=False, forceinline=True)
def _decode_node(sink: Sink, start: int, end: int, row: int) -> Any:
    """One node record; fields may come in any order, and of a repeated scalar the last counts."""
    cells = sink.cells
    cells[at.NODE_KIND] = 0
    cells[at.NAME_SIZE] = 0
    cells[at.TEXT_SIZE] = 0
    sink.wide[at.DATA_START, row + 1] = sink.wide[at.DATA_START, row]
    sink.wide[at.CTRL_START, row + 1] = sink.wide[at.CTRL_START, row]
    attribute = at.MAX_ATTRIBUTE_NAMES
    pos = start
    while pos < end:
        field, wire, payload, size, after = read_field(sink.text.data, pos, end)
        if after < 0:
            return fail(sink, after, pos)
        if wire == BYTES:
            if field == 10:
                attribute = decode_attribute(sink, payload, after, row, attribute)
                if attribute < 0:
                    return attribute
            elif _take_bytes(sink, row, field, payload, size) < 0:
                return -1
        elif wire == VARINT:
            _take_number(sink, row, field, payload)
        pos = after
    return _finish_node(sink, row, start)


@compiled(allocates=False, forceinline=True)
def _take_number(sink: Sink, row: int, field: int, value: Any) -> None:
    if field == 1:
        sink.wide[at.NODE_ID, row] = value
    elif field == 3:
        sink.cells[at.NODE_KIND] = as_signed_32(value)
    elif field == 7:
        sink.wide[at.DURATION, row] = value
    elif field == 5:
        _add_dependency(sink.data_deps, sink.wide[at.DATA_START], row, value)
    elif field == 4:
        _add_dependency(sink.ctrl_deps, sink.wide[at.CTRL_START], row, value)


@compiled(allocates=False, forceinline=True)
def _take_bytes(sink: Sink, row: int, field: int, start: Any, size: int) -> Any:
    if field == 5:
        return _add_dependencies(sink, sink.data_deps, at.DATA_START, row, start, start + size)
    if field == 4:
        return _add_dependencies(sink, sink.ctrl_deps, at.CTRL_START, row, start, start + size)
    if field == 2:
        sink.cells[at.NAME_START] = start
        sink.cells[at.NAME_SIZE] = size
    elif field == 8:
        return _find_values(sink, start, start + size)
    return 0


@compiled(allocates=False)
def _add_dependency(held: Integers, list_start: Integers, row: int, value: Any) -> None:
    """One id of an unpacked list."""
    held[list_start[row + 1]] = value
    list_start[row + 1] += 1


@compiled(allocates=False, forceinline=True)
def _add_dependencies(sink: Sink, held: Integers, slot: int, row: int, pos: Any, end: int) -> int:
    """Append a packed list of ids to the list of `row`."""
    count = sink.wide[slot, row + 1]
    while pos < end:
        value, after = read_varint(sink.text.data, pos, end)
        if after < 0:
            return fail(sink, after, pos)
        held[count] = value
        count += 1
        pos = after
    sink.wide[slot, row + 1] = count
    return 0


@compiled(allocates=False)
def _find_values(sink: Sink, pos: Any, end: int) -> int:
    """Where IOInfo.values is; an occurrence without one leaves the earlier one standing."""
    while pos < end:
        field, wire, payload, size, after = read_cold_field(sink.text.data, pos, end)
        if after < 0:
            return fail(sink, after, pos)
        if field == 1 and wire == BYTES:
            sink.cells[at.TEXT_START] = payload
            sink.cells[at.TEXT_SIZE] = size
        pos = after
    return 0


@compiled(allocates=False, forceinline=True)
def _finish_node(sink: Sink, row: int, start: int) -> Any:
    """What can only be judged once the whole record is read."""
    cells = sink.cells
    kind = cells[at.NODE_KIND]
    if kind < 0 or kind > 7:
        return fail(sink, at.BAD_NODE_KIND, start)
    if sink.wide[at.DURATION, row] < 0:
        return fail(sink, at.BAD_DURATION, start)
    sink.small[at.KIND, row] = kind
    sink.narrow[at.NAME, row] = intern(sink.names, sink.text, cells[at.NAME_START], cells[at.NAME_SIZE])
    if kind == at.METADATA and cells[at.TEXT_SIZE] > 0:
        count = cells[at.TEXTS]
        sink.texts[count, 0] = row
        sink.texts[count, 1] = cells[at.TEXT_START]
        sink.texts[count, 2] = cells[at.TEXT_SIZE]
        cells[at.TEXTS] = count + 1
    return 0
