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

from et_sim.compiled import compiled, entry
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

    A dependency takes at least one byte, so a record cannot hold more of them than bytes.
    """
    cells = sink.cells
    row = cells[at.ROW]
    pos = cells[at.POSITION]
    while row < cells[at.NODES]:
        size, start = read_varint(sink.text.data, pos, len(sink.text.data))
        room = min(
            len(sink.data_deps) - sink.wide[at.DATA_START, row],
            len(sink.ctrl_deps) - sink.wide[at.CTRL_START, row],
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
    data = sink.text.data
    kind = np.int64(0)
    duration = np.int64(0)
    name_start, name_size, text_start, text_size = start, 0, start, 0
    data_count = sink.wide[at.DATA_START, row]
    ctrl_count = sink.wide[at.CTRL_START, row]
    attribute = at.MAX_ATTRIBUTE_NAMES
    pos = start
    while pos < end:
        field, wire, payload, size, after = read_field(data, pos, end)
        if after < 0:
            return fail(sink, after, pos)
        if wire == BYTES:
            if field == 10:
                attribute = decode_attribute(sink, payload, after, row, attribute)
                if attribute < 0:
                    return attribute
            elif field == 5:
                data_count = _add_dependencies(sink, sink.data_deps, data_count, payload, after)
            elif field == 4:
                ctrl_count = _add_dependencies(sink, sink.ctrl_deps, ctrl_count, payload, after)
            elif field == 2:
                name_start = payload
                name_size = size
            elif field == 8:
                text_start, text_size = _find_values(sink, payload, after, text_start, text_size)
            if data_count < 0 or ctrl_count < 0 or text_size < 0:
                return -1
        elif wire == VARINT:
            if field == 1:
                sink.wide[at.NODE_ID, row] = payload
            elif field == 3:
                kind = as_signed_32(payload)
            elif field == 7:
                duration = payload
            elif field == 5:
                sink.data_deps[data_count] = payload
                data_count += 1
            elif field == 4:
                sink.ctrl_deps[ctrl_count] = payload
                ctrl_count += 1
        pos = after
    if kind < 0 or kind > 7:
        return fail(sink, at.BAD_NODE_KIND, start)
    if duration < 0:
        return fail(sink, at.BAD_DURATION, start)
    if kind == 1 and text_size > 0:
        _keep_text(sink, row, text_start, text_size)
    sink.small[at.KIND, row] = kind
    sink.wide[at.DURATION, row] = duration
    sink.narrow[at.NAME, row] = intern(sink.names, sink.text, name_start, name_size)
    sink.wide[at.DATA_START, row + 1] = data_count
    sink.wide[at.CTRL_START, row + 1] = ctrl_count
    return 0


@compiled(allocates=False, forceinline=True)
def _add_dependencies(sink: Sink, held: Integers, count: int, pos: int, end: int) -> int:
    """Append a packed list of ids; returns the new count, or -1."""
    while pos < end:
        value, after = read_varint(sink.text.data, pos, end)
        if after < 0:
            fail(sink, after, pos)
            return -1
        held[count] = value
        count += 1
        pos = after
    return count


@compiled(allocates=False)
def _find_values(sink: Sink, pos: int, end: int, text_start: int, text_size: int) -> tuple[int, int]:
    """Where IOInfo.values is; an occurrence without one leaves the earlier one standing."""
    while pos < end:
        field, wire, payload, size, after = read_cold_field(sink.text.data, pos, end)
        if after < 0:
            fail(sink, after, pos)
            return pos, -1
        if field == 1 and wire == BYTES:
            text_start = payload
            text_size = size
        pos = after
    return text_start, text_size


@compiled(allocates=False)
def _keep_text(sink: Sink, row: int, start: int, size: int) -> None:
    count = sink.cells[at.TEXTS]
    sink.texts[count, 0] = row
    sink.texts[count, 1] = start
    sink.texts[count, 2] = size
    sink.cells[at.TEXTS] = count + 1
