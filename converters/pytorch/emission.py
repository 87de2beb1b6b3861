"""The converted rank as a trace file, written some rows at a time.

Attributes have the names and kinds that readers of the format expect. Durations are written twice, in
nanoseconds (`duration_ns`) and rounded to microseconds. Every node is `concurrent`: threads and streams run
side by side, and dependencies order what is in one.

Not here: the bytes of a record (`wire_rows`, `pieces`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from converters.pytorch.columns import ABSENT
from converters.pytorch.communication import UNKNOWN, Communication
from converters.pytorch.graph import ON_HOST, Column, Link, Role
from converters.pytorch.nesting import NONE
from converters.pytorch.pieces import (
    NAME_FIELD,
    SHAPES_FIELD,
    TYPES_FIELD,
    VALUES_FIELD,
    PieceBook,
    delimited,
    list_attribute,
    number_attribute,
    number_head,
    printed,
    text_attribute,
    text_field,
    varint,
)
from converters.pytorch.rank import ConvertedRank
from converters.pytorch.wire_rows import TEXT_PIECES, TOO_SMALL, Block, write_rows
from et_sim.trace.columns import CollectiveKind, NodeKind
from et_sim.trace.process_groups import process_group_text

_ROWS = 1 << 16  # written at a time
_BYTES = 1 << 24  # room for them to begin with
_NUMBERS = (
    ("is_cpu_op", "bool"),
    ("concurrent", "bool"),
    ("duration_ns", "int64"),
    ("num_ops", "int64"),
    ("tensor_size", "uint64"),
    ("comm_type", "int64"),
    ("comm_size", "int64"),
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
_COMMUNICATION, _SCHEMA, _OPERATOR = range(TEXT_PIECES, TEXT_PIECES + 3)
_NAMES = {
    Role.REST: "rest of operators",
    Role.GAP: "gap",
    Role.LAUNCH_GAP: "launch gap",
    Role.STREAM_GAP: "stream gap",
    Role.METADATA: "## process_group:init ##",
}
_DESTINED = (CollectiveKind.REDUCE, CollectiveKind.GATHER)


def trace_bytes(rank: ConvertedRank) -> Iterator[bytes]:
    """The content of the trace file, in parts."""
    yield _header(rank)
    writer = _Writer(rank)
    pieces = writer.book.packed()
    out = np.empty(_BYTES, np.uint8)
    for first in range(0, len(rank.graph), _ROWS):
        block = writer.block(first, min(first + _ROWS, len(rank.graph)))
        size = write_rows(block, pieces, out)
        while size == TOO_SMALL:
            out = np.empty(2 * len(out), np.uint8)
            size = write_rows(block, pieces, out)
        yield out[:size].tobytes()


def _header(rank: ConvertedRank) -> bytes:
    """What the file says about itself."""
    said = [text_attribute(name, value) for name, value in rank.described_as.items()]
    content = b"".join(delimited(2, attribute[_head_size(attribute) :]) for attribute in said if attribute)
    return varint(len(content)) + content


def _head_size(attribute: bytes) -> int:
    """Bytes before the content of an encoded attribute: its tag, and its length."""
    size = 2
    while attribute[size - 1] & 128:
        size += 1
    return size


@dataclass(slots=True)
class _Writer:
    """Columns of pieces for all rows, and of numbers for some at a time."""

    rank: ConvertedRank
    book: PieceBook = field(default_factory=PieceBook)
    piece: Any = None
    heads: Any = None

    def __post_init__(self) -> None:
        graph = self.rank.graph
        self.heads = np.array([self.book.add(number_head(*one)) for one in _NUMBERS], np.int64)
        self.piece = np.full((len(graph), TEXT_PIECES + 3), NONE, np.int32)
        self._names()
        self._arguments()
        self._communications()

    def _names(self) -> None:
        """Names of calls and work are those of their events."""
        rank, graph = self.rank, self.rank.graph
        column = self.piece[:, 0]
        for role, name in _NAMES.items():
            column[graph.role == role] = self.book.add(text_field(NAME_FIELD, name))
        event = rank.event
        for some, names, index in (
            (event != NONE, rank.device.names if rank.device else (), _at(rank.device, "name", event)),
            (
                (event == NONE) & (graph.host_row != NONE),
                rank.host.names if rank.host else (),
                _at(rank.host, "name", graph.host_row),
            ),
        ):
            found = self.book.column(index[some], names, lambda name: text_field(NAME_FIELD, name))
            column[some] = found

    def _arguments(self) -> None:
        """Values, shapes and types of inputs and outputs: of an operator, and of what it launched."""
        rank = self.rank
        host, device = rank.host, rank.device
        row = rank.described_by
        if host is not None:
            for at, name, number in (
                (1, "input_values", VALUES_FIELD),
                (2, "input_shapes", SHAPES_FIELD),
                (3, "input_types", TYPES_FIELD),
                (5, "output_shapes", SHAPES_FIELD),
                (6, "output_types", TYPES_FIELD),
            ):
                index = _at(host, name, row)
                self.piece[:, at] = self.book.column(
                    index, host.texts, lambda text, n=number: printed(n, text)
                )
            own = np.where(np.isin(rank.graph.role, (Role.OPERATOR, Role.UNTIMED)), row, NONE)
            index = _at(host, "schema_text", own)
            self.piece[:, _SCHEMA] = self.book.column(
                index, host.texts, lambda text: text_attribute("op_schema", text.decode(errors="replace"))
            )
        if device is not None:
            bare = np.where(row == NONE, rank.operator_event, NONE)
            index = _at(device, "arguments", bare)
            some = index != ABSENT
            for at, name, number in (
                (1, "values", VALUES_FIELD),
                (2, "dims", SHAPES_FIELD),
                (3, "types", TYPES_FIELD),
            ):
                found = self.book.column(
                    index[some], device.texts, lambda text, k=name, n=number: _recorded(n, text, k)
                )
                self.piece[some, at] = found
            launched = np.where(rank.graph.work != NONE, _at(device, "name", rank.operator_event), NONE)
            self.piece[:, _OPERATOR] = self.book.column(
                launched, device.names, lambda name: text_attribute("operator", name)
            )
        metadata = np.flatnonzero(rank.graph.role == Role.METADATA)
        if len(metadata):
            text = process_group_text(rank.groups)
            self.piece[metadata, 1] = self.book.add(text_field(VALUES_FIELD, text))

    def _communications(self) -> None:
        self.piece[:, _COMMUNICATION] = self.book.column(
            self.rank.communication, self.rank.communications, _texts_of
        )

    def block(self, first: int, last: int) -> Block:
        """The rows from `first` to before `last`."""
        graph, rows = self.rank.graph, slice(first, last)
        kinds = self._kinds(rows)
        duration = graph.end_ns[rows] - graph.start_ns[rows]
        plain = np.stack(
            (np.arange(first, last) + 1, kinds, graph.start_ns[rows] // 1000, (duration + 500) // 1000),
            axis=1,
        )
        bounds = np.searchsorted(graph.after, np.arange(first, last + 1)).astype(np.int64)
        low, high = int(bounds[0]), int(bounds[-1])
        value, has_value = self._values(rows, duration)
        return Block(
            plain.astype(np.int64),
            bounds - low,
            graph.before[low:high] + 1,
            (graph.kind[low:high] == Link.CALL_TREE).astype(np.uint8),
            np.ascontiguousarray(self.piece[rows]),
            value,
            has_value,
            self.heads,
        )

    def _kinds(self, rows: slice) -> Column:
        found = np.full(len(self.rank.graph.role[rows]), int(NodeKind.COMP), np.int64)
        found[self.rank.graph.role[rows] == Role.METADATA] = NodeKind.METADATA
        which = self.rank.communication[rows]
        kinds = np.array([int(one.operation.node) for one in self.rank.communications] or [0], np.int64)
        return np.where(which != NONE, kinds[which], found)

    def _values(self, rows: slice, duration: Column) -> tuple[Column, Any]:
        rank, graph = self.rank, self.rank.graph
        count = len(duration)
        value = np.zeros((count, len(_NUMBERS)), np.int64)
        has_value = np.zeros((count, len(_NUMBERS)), np.uint8)

        def put(name: str, values: Any, some: Any) -> None:
            value[:, _AT[name]] = values
            has_value[:, _AT[name]] = some

        role, which = graph.role[rows], rank.communication[rows]
        put("is_cpu_op", np.isin(role, [int(one) for one in ON_HOST]) & (which == NONE), True)
        put("concurrent", 1, True)
        put("duration_ns", duration, rank.is_timed & (role != Role.METADATA))
        for name, column in rank.numbers.items():
            put(name, column[rows], column[rows] >= 0)
        sizes = np.array(
            [_numbers_of(one, rank.rank) for one in rank.communications] or [[NONE] * 5], np.int64
        )
        for at, name in enumerate(("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag")):
            column = np.where(which != NONE, sizes[which, at], NONE)
            put(name, column, column >= 0)
        return value, has_value


def _at(trace: Any, column: str, rows: Column) -> Column:
    """Entries of a column at rows, NONE where there is no row."""
    if trace is None or not len(trace):
        return np.full(len(rows), NONE, np.int64)
    found: Column = np.where(rows != NONE, getattr(trace, column)[rows], NONE).astype(np.int64)
    return found


def _recorded(number: int, text: bytes, key: str) -> bytes:
    """One of the lists that Kineto keeps of an operator's arguments."""
    content = json.loads(text).get(key)
    return text_field(number, str(content)) if content else b""


def _numbers_of(one: Communication, rank: int) -> list[int]:
    """Type, size, source, destination and tag; NONE where the operation has none."""
    operation, kind = one.operation, one.operation.collective
    if kind is None:
        ends = (one.peer, rank) if operation.node == NodeKind.RECV else (rank, one.peer)
        return [NONE, one.comm_bytes, *ends, one.tag]
    rooted = one.peer if one.peer != UNKNOWN else NONE
    ends = (NONE, rooted) if kind in _DESTINED else (rooted, NONE)
    return [int(kind), one.comm_bytes, *ends, NONE]


def _texts_of(one: Communication) -> bytes:
    """The group, and what the simulator leaves to other readers."""
    return b"".join(
        (
            text_attribute("pg_name", one.group),
            text_attribute("comm_dtype", one.datatype),
            number_attribute("comm_out_size", one.out_bytes) if one.out_bytes else b"",
            list_attribute("in_split_sizes", one.in_splits),
            list_attribute("out_split_sizes", one.out_splits),
        )
    )
