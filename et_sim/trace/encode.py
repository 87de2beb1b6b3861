"""Encoding of a `Trace` as the bytes of a trace file.

Each column becomes a list of pieces, and a record is the pieces of its row in the order of the field numbers.
The bytes equal those of the protobuf library, without an object per node. Values have the kinds that other
tools expect for each attribute. Equal traces give equal bytes, and `wire.decode` returns the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.errors import TraceError
from et_sim.basics.protobuf_fields import LENGTH, VARINT, delimited, tag, varint
from et_sim.trace.columns import NUMBERS, START_NS, TEXT_ATTRIBUTES, NodeKind, TensorLists, Trace
from et_sim.trace.schema import ATTRIBUTE_KINDS, FIRST_ATTRIBUTE_FIELD
from et_sim.trace.stack import PER_NODE, stacks

_VERSION, _HEADER_ATTRIBUTE = 1, 2  # of the metadata record
_NAME = 1  # of an attribute
_NODE_COLUMNS = ("node_id", "name", "names", "data_start", "data_deps", "ctrl_start", "ctrl_deps")
_TEXTS = {one.column: one.texts for one in TEXT_ATTRIBUTES}
_ID, _NODE_NAME, _TYPE, _CTRL_DEPS, _DATA_DEPS, _DURATION, _INPUTS, _ATTRIBUTE = 1, 2, 3, 4, 5, 7, 8, 10


def encode_trace(trace: Trace) -> bytes:
    """Return the whole file: GlobalMetadata, then one record per row."""
    return encode_several([trace])[0]


def encode_several(traces: Sequence[Trace]) -> list[bytes]:
    """Return the files of traces, small ones together; traces with metadata or tensors are encoded one by
    one.
    """
    files: list[bytes] = []
    before: _Encoded | None = None
    for stack in stacks(traces):
        is_plain = not any(trace.metadata_text or len(trace.tensors) for trace in stack.traces)
        for part in [stack] if is_plain else stack.apart():
            if _has_negative(part.trace):
                for trace in part.traces:
                    _refuse_negative(trace, "duration_us", trace.duration_us < 0)
                    _refuse_negative(
                        trace, "tensor_bytes", (trace.tensor_bytes < 0) & trace.has("tensor_size")
                    )
            if before is not None and before.has_nodes_of(part.trace):
                records = before.resized(part.trace)
            else:
                before = _Encoded(part.trace)
                records = before.records
            bounds = pairwise(part.first.tolist())
            for trace, (first, end) in zip(part.traces, bounds, strict=True):
                files.append(_framed(_header(trace)) + b"".join(records[first:end]))
    return files


class _Encoded:
    """The records of a trace, which other traces with the same nodes of other sizes share."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self._number = trace, dict[str, int]()
        self._nodes = [b"".join(pieces) for pieces in zip(*_nodes(trace), strict=True)]
        pieces = zip(self._nodes, *_sizes(trace), strict=True)
        self.records = [_framed(b"".join(record)) for record in pieces]

    def has_nodes_of(self, other: Trace) -> bool:
        """Return whether another trace shares the columns that describe the nodes of this one."""
        trace = self._trace
        return (
            all(getattr(trace, column) is getattr(other, column) for column in _NODE_COLUMNS)
            and all(getattr(trace.tensors, part) is getattr(other.tensors, part) for part in ("row", "start"))
            and not (trace.metadata_text or other.metadata_text)
            and np.array_equal(trace.kind, other.kind)
        )

    def resized(self, other: Trace) -> list[bytes]:
        """Return the records of a trace that has these nodes."""
        rows = np.flatnonzero(self._differ(other))
        lists = other.tensors
        listed = np.flatnonzero(np.isin(lists.row, rows))
        columns = {column: getattr(other, column)[rows] for column in PER_NODE}
        tensors = TensorLists(
            np.searchsorted(rows, lists.row[listed]).astype(np.int32),
            lists.is_output[listed],
            np.concatenate(([0], np.cumsum(np.diff(lists.start)[listed]))),
            lists.words[np.repeat(np.isin(lists.row, rows), np.diff(lists.start))],
            lists.texts,
        )
        records = self.records.copy()
        sizes = zip(*_sizes(replace(other, **columns, tensors=tensors)), strict=True)
        for row, pieces in zip(rows.tolist(), sizes, strict=True):
            records[row] = _framed(self._nodes[row] + b"".join(pieces))
        return records

    def _differ(self, other: Trace) -> Any:
        """Return a mask of the rows that differ from this trace."""
        trace = self._trace
        differ = np.zeros(len(trace), np.bool_)
        for column in PER_NODE:
            if column not in _TEXTS:
                differ |= getattr(trace, column) != getattr(other, column)
        for column, texts in _TEXTS.items():
            differ |= self._texts_of(trace, column, texts) != self._texts_of(other, column, texts)
        words = self._texts_of(trace.tensors, "words", "texts") != self._texts_of(
            other.tensors, "words", "texts"
        )
        differ[np.repeat(trace.tensors.row, np.diff(trace.tensors.start))[words]] = True
        return differ

    def _texts_of(self, of: Trace | TensorLists, column: str, texts: str) -> Any:
        """Return a column of texts as numbers that are comparable between traces."""
        number = self._number
        numbers = [number.setdefault(text, len(number)) for text in getattr(of, texts)]
        return np.array(numbers, np.int64)[getattr(of, column)]


def _framed(record: bytes) -> bytes:
    return varint(len(record)) + record


def _header(trace: Trace) -> bytes:
    version = trace.version.encode()
    return (delimited(_VERSION, version) if version else b"") + _start(trace)


def _has_negative(trace: Trace) -> bool:
    is_negative = (trace.duration_us < 0) | ((trace.tensor_bytes < 0) & trace.has("tensor_size"))
    return bool(is_negative.any())


def _start(trace: Trace) -> bytes:
    """Return the attribute of the rank's start, if it is later than the first one."""
    if not trace.start_ns:
        return b""
    return delimited(_HEADER_ATTRIBUTE, attribute_head(START_NS, "int64_val") + varint(trace.start_ns))


def _refuse_negative(trace: Trace, column: str, wrong: Any) -> None:
    if bool(wrong.any()):
        row = int(np.argmax(wrong))
        raise TraceError(
            f"column {column} of {trace.describe(row)} is {int(getattr(trace, column)[row])},"
            " which the file cannot hold",
            place=trace.source,
            remedy="sizes and times are not negative",
        )


def _nodes(trace: Trace) -> list[list[bytes]]:
    """Return one list of pieces per field, in the order of a record, for the fields that describe nodes."""
    ids = [varint(node_id) for node_id in trace.node_id.tolist()]
    id_tag = tag(_ID, VARINT)
    names = [delimited(_NODE_NAME, name.encode()) if name else b"" for name in trace.names]
    return [
        [id_tag + node_id if node_id != b"\0" else b"" for node_id in ids],
        [names[number] for number in trace.name.tolist()],
        _numbers(trace.kind, _plain(_TYPE)),
        _dependencies(_CTRL_DEPS, ids, trace.ctrl_start, trace.ctrl_deps),
        _dependencies(_DATA_DEPS, ids, trace.data_start, trace.data_deps),
    ]


def _sizes(trace: Trace) -> list[list[bytes]]:
    """Return the lists of pieces of the remaining fields, attributes included."""
    return [
        _numbers(trace.duration_us, _plain(_DURATION)),
        *([_metadata_texts(trace)] if trace.metadata_text else []),
        *_attributes(trace),
        *([_tensor_lists(trace)] if len(trace.tensors) else []),
    ]


def _plain(field: int) -> Any:
    """Return the encoder of a field of a node; a zero is not written."""
    before = tag(field, VARINT)
    return lambda value: before + varint(value) if value else b""


def _numbers(column: Any, spell: Any) -> list[bytes]:
    """Return the pieces of a column; each distinct value is encoded once."""
    values, of_row = np.unique(column, return_inverse=True)
    spelled = [spell(value) for value in values.tolist()]
    return [spelled[number] for number in of_row.reshape(-1).tolist()]


def _dependencies(field: int, ids: list[bytes], start: Any, rows: Any) -> list[bytes]:
    pieces = [b""] * (len(start) - 1)
    listed = [ids[row] for row in rows.tolist()]
    bounds = start.tolist()
    for row in np.flatnonzero(np.diff(start)).tolist():
        pieces[row] = delimited(field, b"".join(listed[bounds[row] : bounds[row + 1]]))
    return pieces


def _metadata_texts(trace: Trace) -> list[bytes]:
    pieces = [b""] * len(trace)
    for row, text in trace.metadata_text.items():
        if text and trace.kind[row] == NodeKind.METADATA:
            pieces[row] = delimited(_INPUTS, delimited(1, text.encode()))
    return pieces


def _attributes(trace: Trace) -> list[list[bytes]]:
    """Return the pieces of the attributes in `present`."""
    encoded = []
    for number in NUMBERS:
        rows = np.flatnonzero(trace.has(number.name))
        if len(rows):
            values = getattr(trace, number.column)
            spell = _number_attribute(number.name, number.member)
            encoded.append(_spread(trace, rows, _numbers(values[rows], spell)))
    for attribute in TEXT_ATTRIBUTES:
        rows = np.flatnonzero(trace.has(attribute.name))
        if len(rows):
            texts = getattr(trace, attribute.texts)
            spelled = [long_attribute(attribute.name, "string_val", text.encode()) for text in texts]
            numbers = getattr(trace, attribute.column)[rows].tolist()
            encoded.append(_spread(trace, rows, [spelled[number] for number in numbers]))
    rows = np.flatnonzero(trace.has("involved_dim"))
    if len(rows):
        flags = zip(trace.involved_dims[rows].tolist(), trace.involved_count[rows].tolist(), strict=True)
        encoded.append(_spread(trace, rows, [_involved(*dims) for dims in flags]))
    return encoded


def _tensor_lists(trace: Trace) -> list[bytes]:
    """Return the attributes `inputs` and `outputs`."""
    lists = trace.tensors
    words = [delimited(1, text.encode()) for text in lists.texts]
    heads = [attribute_head(name, "string_list") for name in ("inputs", "outputs")]
    spelled = [words[word] for word in lists.words.tolist()]
    bounds = lists.start.tolist()
    pieces = [b""] * len(trace)
    for at, (row, is_output) in enumerate(zip(lists.row.tolist(), lists.is_output.tolist(), strict=True)):
        content = b"".join(spelled[bounds[at] : bounds[at + 1]])
        pieces[row] += delimited(_ATTRIBUTE, heads[is_output] + varint(len(content)) + content)
    return pieces


def _spread(trace: Trace, rows: Any, pieces: list[bytes]) -> list[bytes]:
    """Return pieces of some rows as a column."""
    if len(rows) == len(trace):
        return pieces
    column = [b""] * len(trace)
    for row, piece in zip(rows.tolist(), pieces, strict=True):
        column[row] = piece
    return column


def _number_attribute(name: str, member: str) -> Any:
    """Return the encoder of an attribute; a tag or priority beyond 32 bits is written as int64."""
    usual = attribute_head(name, member)
    wide = attribute_head(name, "int64_val") if member == "int32_val" else usual

    def spell(value: int) -> bytes:
        content = (usual if -(2**31) <= value < 2**31 else wide) + varint(value)
        return _ATTRIBUTE_TAG + varint(len(content)) + content

    return spell


def _involved(flags: int, count: int) -> bytes:
    values = bytes(flags >> bit & 1 for bit in range(count))
    return long_attribute("involved_dim", "bool_list", delimited(1, values) if values else b"")


def long_attribute(name: str, member: str, content: bytes) -> bytes:
    """Return an attribute that is a text or a list."""
    return delimited(_ATTRIBUTE, attribute_head(name, member) + varint(len(content)) + content)


def attribute_head(name: str, member: str) -> bytes:
    """Return the attribute's name and the tag of its value, which is written even if it is zero."""
    kind, _, shape = member.partition("_")
    field = FIRST_ATTRIBUTE_FIELD + 2 * ATTRIBUTE_KINDS.index(kind) + (shape == "list")
    is_number = shape == "val" and kind != "string"
    return delimited(_NAME, name.encode()) + tag(field, VARINT if is_number else LENGTH)


_ATTRIBUTE_TAG = tag(_ATTRIBUTE, LENGTH)
