"""The converted rank as a trace file, written block by block.

Attributes have the names and kinds that readers of the format expect. Durations are written twice, in
nanoseconds (`duration_ns`) and rounded to microseconds. Every node is `concurrent`: threads and streams run
side by side, and dependencies order the nodes within one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct

from converters.pytorch.calls import UNNAMED_OPERATION
from converters.pytorch.columns import NONE
from converters.pytorch.communication import UNKNOWN, Communication
from converters.pytorch.graph import ON_HOST, Column, Link, RunPart
from converters.pytorch.rank import EMPTY, ConvertedRank, Lookup, gap_names
from converters.pytorch.wire_rows import (
    NAME_FIELD,
    SHAPES_FIELD,
    TEXT_PIECES,
    TYPES_FIELD,
    VALUES_FIELD,
    EncodedFields,
    RowBlock,
    list_attribute,
    number_attribute,
    printed,
    room,
    text_attribute,
    text_field,
    words_attribute,
    write_rows,
)
from et_sim.basics.protobuf_fields import delimited, varint
from et_sim.basics.unique import unique
from et_sim.trace.columns import CollectiveKind, NodeKind
from et_sim.trace.encode import attribute_head
from et_sim.trace.group_attributes import process_group_text, split_text

_ROWS = 1 << 14  # rows of a block
_NUMBERS = (
    ("is_cpu_op", "bool"),
    ("concurrent", "bool"),
    ("gap", "bool"),
    ("launch", "bool"),
    ("copy", "bool"),
    ("duration_ns", "int64"),
    ("num_ops", "int64"),
    ("tensor_size", "uint64"),
    ("comm_type", "int64"),
    ("comm_size", "int64"),
    ("comm_size_unknown", "bool"),
    ("comm_src", "int32"),
    ("comm_dst", "int32"),
    ("comm_tag", "int32"),
    ("stream", "int64"),
    ("tid", "int64"),
    ("rf_id", "int64"),
    ("seq_id", "int64"),
    ("inclusive_ns", "int64"),
)
_AT = {name: at for at, (name, _) in enumerate(_NUMBERS)}
_FURTHER = 7  # pieces of a row that are attributes
_COMMUNICATION, _SCHEMA, _OPERATOR, _SHAPE, _DATATYPE, _READS, _WRITES = range(
    TEXT_PIECES, TEXT_PIECES + _FURTHER
)
_WORDS = {"layer_shape": _SHAPE, "dtype": _DATATYPE}
_NAMES = {
    RunPart.REST: "rest of operators",
    RunPart.LAUNCH_REST: "rest of launches",
    RunPart.METADATA: "## process_group:init ##",
}
_MARKED = {
    "gap": EMPTY,
    "launch": (RunPart.LAUNCH, RunPart.LAUNCH_REST, RunPart.WAIT),
    "copy": (RunPart.COPY, RunPart.FILL),
}
_DESTINED = (CollectiveKind.REDUCE, CollectiveKind.GATHER)


def trace_bytes(rank: ConvertedRank) -> Iterator[bytes]:
    """Yield the content of the trace file, in parts."""
    yield _header(rank)
    writer = _Writer(rank)
    pieces = writer.book.packed()
    out = np.empty(0, np.uint8)
    for first in range(0, len(rank.graph), _ROWS):
        block = writer.block(first, min(first + _ROWS, len(rank.graph)))
        if room(block, pieces) > len(out):
            out = np.empty(room(block, pieces), np.uint8)
        yield out[: write_rows(block, pieces, out)].tobytes()


def _header(rank: ConvertedRank) -> bytes:
    """Return the header record of the file."""
    attributes = [text_attribute(name, value) for name, value in rank.described_as.items()]
    content = b"".join(
        delimited(2, attribute[_head_size(attribute) :]) for attribute in attributes if attribute
    )
    return varint(len(content)) + content


def _head_size(attribute: bytes) -> int:
    """Return the bytes before the content of an encoded attribute: its tag and its length."""
    size = 2
    while attribute[size - 1] & 128:
        size += 1
    return size


class _Only(IntEnum):
    """The rows to which a table applies."""

    ALL = 0
    CALLS = 1  # operators themselves, without their work
    BARE = 2  # rows that the execution trace does not describe
    WORK = 3


class _Table(Struct, frozen=True):
    """The part of a row at one place, chosen by a column of a recording."""

    place: int
    recorded: Lookup  # the row of the recording
    column: Any
    pieces: Column  # by entry of the column
    only: _Only = _Only.ALL


class _Writer:
    """The encoded parts of all names, from which rows are written block by block."""

    def __init__(self, rank: ConvertedRank) -> None:
        self.rank = rank
        self.book = EncodedFields()
        heads = (attribute_head(name, f"{kind}_val") for name, kind in _NUMBERS)
        self._heads = np.array([self.book.add(head) for head in heads], np.int64)
        self._names = np.array([self.book.add(_name(_NAMES.get(role, ""))) for role in RunPart], np.int64)
        self._tables = [*self._of_host(), *self._of_device(), *self._of_costs()]
        self._gaps = self._gap_pieces()
        self._memory = self._memory_pieces()
        kinds = [int(communication.operation.node) for communication in rank.communications]
        self._kind_of = np.array(kinds or [NONE], np.int64)
        sizes = [_numbers_of(communication, rank.rank) for communication in rank.communications]
        self._sizes = np.array(sizes or [[NONE] * 5], np.int64)
        self._is_unsized = np.array(
            [communication.is_unsized for communication in rank.communications] or [False], np.bool_
        )
        which = np.arange(len(rank.communications))
        self._communications = self.book.table(which, rank.communications, _texts_of)
        self._groups = self.book.add(text_field(VALUES_FIELD, process_group_text(rank.groups)))

    def _of_host(self) -> Iterator[_Table]:
        """Yield the tables of the execution trace; a row's operator describes its work, too."""
        host, row = self.rank.host, self.rank.described_by
        if host is None:
            return
        for place, column, number in (
            (1, host.input_values, VALUES_FIELD),
            (2, host.input_shapes, SHAPES_FIELD),
            (3, host.input_types, TYPES_FIELD),
            (5, host.output_shapes, SHAPES_FIELD),
            (6, host.output_types, TYPES_FIELD),
        ):
            pieces = self.book.table(unique(column), host.texts, partial(printed, number))
            yield _Table(place, row, column, pieces)
        pieces = self.book.table(
            unique(host.schema_text),
            host.texts,
            lambda text: text_attribute("op_schema", text.decode(errors="replace")),
        )
        yield _Table(_SCHEMA, row, host.schema_text, pieces, _Only.CALLS)
        if self.rank.device is None:
            yield _Table(0, row, host.name, self.book.table(unique(host.name), host.names, _name))

    def _of_device(self) -> Iterator[_Table]:
        """Yield the tables of the timeline: names, and calls that the execution trace does not describe."""
        device, event = self.rank.device, self.rank.operator_event
        if device is None:
            return
        names = unique(device.name)
        yield _Table(0, self.rank.event, device.name, self.book.table(names, device.names, _name))
        pieces = self.book.table(names, device.names, partial(text_attribute, "operator"))
        yield _Table(_OPERATOR, event, device.name, pieces, _Only.WORK)
        bare = (
            event[:] if self.rank.host is None else event[np.flatnonzero(self.rank.described_by[:] == NONE)]
        )
        used = unique(device.arguments[bare[bare != NONE]])
        for place, key, number in (
            (1, "values", VALUES_FIELD),
            (2, "dims", SHAPES_FIELD),
            (3, "types", TYPES_FIELD),
        ):
            pieces = self.book.table(used, device.texts, partial(_recorded, number, key))
            yield _Table(place, event, device.arguments, pieces, _Only.BARE)

    def _of_costs(self) -> Iterator[_Table]:
        """Yield the tables of shapes and datatypes of kernels."""
        every = np.arange(len(self.rank.texts))
        for name, recorded in self.rank.words.items():
            pieces = self.book.table(every, self.rank.texts, partial(text_attribute, name))
            yield _Table(_WORDS[name], recorded, every, pieces)

    def _gap_pieces(self) -> Column | None:
        """Return the names of gaps by row, or None if there are none."""
        if self.rank.device is None:
            return None
        name, names = gap_names(self.rank.graph, self.rank.device, self.rank.event)
        pieces = np.array([self.book.add(_name(name)) for name in names], np.int64)
        return np.where(name != NONE, pieces[name], NONE)

    def _memory_pieces(self) -> dict[int, Column]:
        """Return the lists of tensors by row: empty ones where nothing is released or allocated."""
        memory = self.rank.memory
        if memory is None:
            return {}
        results = {}
        for place, name, of_rows in ((_READS, "inputs", memory.reads), (_WRITES, "outputs", memory.writes)):
            nothing = self.book.add(words_attribute(name, ())) if place == _READS else NONE
            results[place] = np.full(len(self.rank.graph), nothing, np.int64)
            for row, words in of_rows.items():
                results[place][row] = self.book.add(words_attribute(name, words))
        return results

    def block(self, first: int, last: int) -> RowBlock:
        """Return the rows from `first` to before `last`."""
        graph, rows = self.rank.graph, slice(first, last)
        kinds = self._kinds(rows)
        duration = graph.end_ns[rows] - graph.start_ns[rows]
        number = np.arange(first, last) + 1
        plain = np.stack((number, kinds, graph.start_ns[rows] // 1000, (duration + 500) // 1000), axis=1)
        bounds = np.searchsorted(graph.after, np.arange(first, last + 1, dtype=np.int32)).astype(np.int64)
        low, high = int(bounds[0]), int(bounds[-1])
        value, has_value = self._values(rows, duration)
        return RowBlock(
            plain.astype(np.int64),
            bounds - low,
            graph.before[low:high].astype(np.int64) + 1,
            (graph.kind[low:high] == Link.CALL_TREE).astype(np.uint8),
            self._pieces(rows),
            value,
            has_value,
            self._heads,
        )

    def _pieces(self, rows: slice) -> Any:
        graph = self.rank.graph
        role = graph.role[rows]
        piece = np.full((len(role), TEXT_PIECES + _FURTHER), NONE, np.int32)
        piece[:, 0] = self._names[role]
        if self._gaps is not None:
            is_gap = self._gaps[rows] != NONE
            piece[is_gap, 0] = self._gaps[rows][is_gap]
        piece[role == RunPart.METADATA, 1] = self._groups
        piece[:, _COMMUNICATION] = self._communications[self.rank.communication[rows]]
        for place, column in self._memory.items():
            piece[:, place] = column[rows]
        allowed = {
            _Only.CALLS: np.isin(role, (RunPart.OPERATOR, RunPart.UNTIMED)),
            _Only.BARE: self.rank.described_by[rows] == NONE,
            _Only.WORK: graph.work[rows] != NONE,
        }
        for table in self._tables:
            recorded = table.recorded[rows]
            is_recorded = recorded != NONE
            if table.only is not _Only.ALL:
                is_recorded &= allowed[table.only]
            piece[is_recorded, table.place] = table.pieces[table.column[recorded[is_recorded]]]
        return piece

    def _kinds(self, rows: slice) -> Column:
        kinds = np.full(len(self.rank.graph.role[rows]), int(NodeKind.COMP), np.int64)
        kinds[self.rank.graph.role[rows] == RunPart.METADATA] = NodeKind.METADATA
        which = self.rank.communication[rows]
        return np.where(which != NONE, self._kind_of[which], kinds)

    def _values(self, rows: slice, duration: Column) -> tuple[Column, Any]:
        rank, graph = self.rank, self.rank.graph
        count = len(duration)
        value = np.zeros((count, len(_NUMBERS)), np.int64)
        has_value = np.zeros((count, len(_NUMBERS)), np.uint8)

        def put(name: str, values: Any, is_given: Any) -> None:
            value[:, _AT[name]] = values
            has_value[:, _AT[name]] = is_given

        role, which = graph.role[rows], rank.communication[rows]
        put("is_cpu_op", np.isin(role, [int(host_role) for host_role in ON_HOST]) & (which == NONE), True)
        put("concurrent", 1, True)
        for name, roles in _MARKED.items():
            put(name, 1, np.isin(role, [int(marked_role) for marked_role in roles]))
        put("comm_size_unknown", 1, (which != NONE) & self._is_unsized[which])
        put("duration_ns", duration, rank.is_timed & (role != RunPart.METADATA))
        for name, lookup in rank.numbers.items():
            numbers = lookup[rows]
            put(name, numbers, numbers >= 0)
        for at, name in enumerate(("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag")):
            column = np.where(which != NONE, self._sizes[which, at], NONE)
            put(name, column, column >= 0)
        return value, has_value


def _name(name: str) -> bytes:
    return text_field(NAME_FIELD, name)


def _recorded(number: int, key: str, text: bytes) -> bytes:
    """Return one of the lists of an operator's arguments in Kineto."""
    content = json.loads(text).get(key)
    return text_field(number, str(content)) if content else b""


def _numbers_of(communication: Communication, rank: int) -> list[int]:
    """Return type, size, source, destination and tag; NONE if the operation has none."""
    operation, kind = communication.operation, communication.operation.collective
    if operation == UNNAMED_OPERATION:
        return [NONE] * 5
    size = NONE if communication.is_unsized else communication.comm_bytes
    if kind is None:
        ends = (communication.peer, rank) if operation.node == NodeKind.RECV else (rank, communication.peer)
        return [NONE, size, *ends, communication.tag]
    rooted = communication.peer if communication.peer != UNKNOWN else NONE
    ends = (NONE, rooted) if kind in _DESTINED else (rooted, NONE)
    return [int(kind), size, *ends, NONE]


def _texts_of(communication: Communication) -> bytes:
    """Return the group and attributes that only other readers use."""
    return b"".join(
        (
            text_attribute("pg_name", communication.group),
            text_attribute("comm_dtype", communication.datatype),
            number_attribute("comm_out_size", communication.out_bytes) if communication.out_bytes else b"",
            text_attribute("comm_split_sizes", split_text(communication.split_bytes)),
            list_attribute("in_split_sizes", communication.in_splits),
            list_attribute("out_split_sizes", communication.out_splits),
        )
    )
