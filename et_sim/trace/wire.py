"""Decoding of trace files: bytes in, `Trace` out, without a Python object per node.

The compiled decoder fills columns in file order, for many small files at once. Here name spans become
strings; `wire_rows` sorts rows by id, and turns ids of dependencies into rows.

Invariant: for any bytes, the result is a `Trace` or a `TraceError`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from et_sim.basics.errors import TraceError
from et_sim.basics.protobuf_fields import first_varint
from et_sim.basics.units import LONGEST_NS
from et_sim.compiled.decorators import Later
from et_sim.compiled.entry_points import entry
from et_sim.trace import wire_layout as at
from et_sim.trace.columns import (
    ATTRIBUTES,
    BIT,
    NUMBERS,
    START_NS,
    TEXT_ATTRIBUTES,
    Attribute,
    RowColumn,
    TensorLists,
    Trace,
    no_tensor_lists,
)
from et_sim.trace.stack import Stack, TraceBlock, TraceHead, stack_of
from et_sim.trace.wire_layout import DecodeBuffers, NameTable, intern_spans, join_spans, name_table

if TYPE_CHECKING:
    from et_sim.trace.wire_rows import Ids

_LONGEST_VARINT = 10
# larger blocks are separate pages, and unused ones take no memory
_MOST_IN_MEMORY_AT_HAND = 1 << 16
Item = TypeVar("Item")


def _seconds_of_records(buffers: DecodeBuffers) -> float:
    """Return how long a call of the decoder takes interpreted: without rows, it only counts nodes."""
    return len(buffers.text.data) * (8e-7 if buffers.registers[at.NODES] else 1e-7)


decode_records = entry(what="the trace decoder", seconds=_seconds_of_records)(
    Later("et_sim.trace.wire_nodes", "decode_records")
)


def decode(
    content: bytes | npt.NDArray[np.uint8], source: str = "<bytes>", *, drop_dangling: bool = False
) -> Trace:
    """Read the content of one trace file.

    A dependency on a node that is not in the file is an error; with `drop_dangling` it is left out and
    counted in `Trace.dropped_dependencies`.
    """
    return _decoded([content], [source], drop_dangling).traces[0]


def decode_several(
    contents: Sequence[bytes], sources: Sequence[str], *, drop_dangling: bool = False
) -> Stack:
    """Read several files with as few calls as for one; refuse the first bad one."""
    if len(contents) > 1:
        try:
            return _decoded(contents, sources, drop_dangling)
        except TraceError:
            pass  # decoding file by file locates the fault
    every = zip(contents, sources, strict=True)
    return stack_of([decode(content, source, drop_dangling=drop_dangling) for content, source in every])


def _decoded(
    contents: Sequence[bytes | npt.NDArray[np.uint8]], sources: Sequence[str], drop_dangling: bool
) -> Stack:
    for content, source in zip(contents, sources, strict=True):
        if len(content) == 0:
            raise TraceError("is empty", place=source, remedy="a trace has at least a GlobalMetadata record")
    buffers = _run(contents)
    if buffers.registers[at.FAILURE] != 0:
        from et_sim.trace.wire_errors import explain

        raise explain(buffers, sources[0])
    heads = [(start, start + size) for _, start, size in buffers.heads.tolist()]
    versions = [bytes(buffers.text.data[start:end]) for start, end in heads]
    for version, source in zip(versions, sources, strict=True):
        if not version.isascii() or version.startswith(b"\n"):
            from et_sim.trace.wire_errors import check_format

            check_format(version, source)
    files = _Files(buffers, sources[0])
    block = files.block(
        sources, [version.decode() for version in versions], map(_start_ns, contents, sources)
    )
    if all(files.is_plain):
        return block.stack()
    from et_sim.trace.wire_rows import in_id_order, with_rows_for_ids

    traces = [
        block.trace(number)
        if is_plain
        else with_rows_for_ids(*in_id_order(block.trace(number), files.dependency_ids(number)), drop_dangling)
        for number, is_plain in enumerate(files.is_plain)
    ]
    return TraceBlock.of(traces).stack() if len(traces) > 1 else stack_of(traces)


def _start_ns(content: bytes | npt.NDArray[np.uint8], source: str) -> int:
    """Return the rank's start if the first record has it."""
    size, start = first_varint(bytes(content[:_LONGEST_VARINT]))
    head = bytes(content[start : start + size])
    if START_NS.encode() not in head:
        return 0
    from google.protobuf.message import DecodeError

    from et_sim.trace.schema import messages

    try:
        attributes = [
            attribute
            for attribute in messages().GlobalMetadata.FromString(head).attr
            if attribute.name == START_NS
        ]
    except DecodeError:
        attributes = []
    value = attributes[0].int64_val if attributes else -1
    if not 0 <= value <= LONGEST_NS:
        raise TraceError(
            f"its first record has an invalid start of the rank (attribute {START_NS!r})",
            place=source,
            remedy="it must be an int64, in nanoseconds after the first rank",
        )
    return int(value)


def _run(contents: Sequence[bytes | npt.NDArray[np.uint8]]) -> DecodeBuffers:
    """Call the compiled decoder until it is done or has failed."""
    ends = np.cumsum([0, *map(len, contents)])
    buffers = at.empty_buffers(contents[0] if len(contents) == 1 else b"".join(map(bytes, contents)), ends)
    registers = buffers.registers
    # Uncompiled, the hash of names is numpy arithmetic, which warns when it wraps around.
    with np.errstate(over="ignore"):
        decode_records(buffers)
        if registers[at.FAILURE] == 0:
            buffers = at.with_rows(buffers)
            decode_records(buffers)
        while registers[at.FAILURE] == 0 and registers[at.BEGUN] <= len(contents):
            buffers = at.with_longer_lists(buffers)
            decode_records(buffers)
    return buffers


class _Files:
    """The results of the decoder, file by file: nodes in file order."""

    def __init__(self, buffers: DecodeBuffers, source: str) -> None:
        """Store the buffers; `source` is the first file, to which errors refer."""
        self._buffers = buffers
        nodes = int(buffers.registers[at.NODES])
        wide, narrow, small = buffers.wide[:, :nodes], buffers.narrow[:, :nodes], buffers.small[:, :nodes]
        self._columns: dict[str, Any] = {
            "node_id": wide[at.NODE_ID].view(np.uint64),
            "kind": small[at.KIND],
            "name": narrow[at.NAME],
            "duration_us": wide[at.DURATION],
            "involved_dims": wide[at.INVOLVED_DIMS].view(np.uint64),
            "involved_count": small[at.INVOLVED_COUNT],
            "present": narrow[at.PRESENT].view(np.uint32),
            **{number.column: _column(number, wide, narrow, small) for number in NUMBERS},
            **{text.column: narrow[_slot(text)] for text in TEXT_ATTRIBUTES},
        }
        if nodes <= _MOST_IN_MEMORY_AT_HAND:
            self._columns = _without_room(self._columns)
        self._starts = tuple(
            buffers.wide[number, : nodes + 1].copy() for number in (at.DATA_START, at.CTRL_START)
        )
        self._dependencies: tuple[Ids, Ids] = (
            buffers.data_deps[: int(self._starts[0][-1])].view(np.uint64),
            buffers.ctrl_deps[: int(self._starts[1][-1])].view(np.uint64),
        )
        self._first = buffers.first_row.tolist()
        self._texts: dict[str, list[tuple[str, ...]]] = {
            text.texts: [
                ("", *texts)
                for texts in self._of_files(_strings(buffers, table, source, text.name), 2 + number)
            ]
            for number, (text, table) in enumerate(zip(TEXT_ATTRIBUTES, buffers.tables, strict=True))
        }
        self._names = self._of_files(_strings(buffers, buffers.names, source, "node name"), 1)
        self._metadata = self._of_rows(_texts(buffers, source))
        self._ignored = self._of_files(_ignored(buffers, source), 0)
        self._tensors = _tensor_lists(buffers, source)
        self._rows, self.is_plain = self._plain_rows()

    def block(self, sources: Iterable[str], versions: Iterable[str], starts_ns: Iterable[int]) -> TraceBlock:
        """Return all traces; for plain files, dependencies are rows."""
        (data_start, ctrl_start), (data, ctrl) = self._starts, self._rows
        heads = [*map(TraceHead, sources, versions, starts_ns, self._metadata, map(dict, self._ignored))]
        return TraceBlock(
            self._columns,
            self._buffers.first_row,
            data_start,
            data,
            ctrl_start,
            ctrl,
            self._names,
            heads,
            self._texts,
            partial(_tensors_of, self._tensors, self._first) if len(self._tensors) else None,
        )

    def _of_files(self, items: tuple[Item, ...], of: int) -> list[tuple[Item, ...]]:
        """Return a list over all files as one list per file, by the counts in `DecodeBuffers.named`."""
        return [items[begin:end] for begin, end in pairwise(self._buffers.named[of].tolist())]

    def _of_rows(self, text_of_row: dict[int, str]) -> list[dict[int, str]]:
        """Return texts by row as one mapping per file."""
        by_file: list[dict[int, str]] = [{} for _ in self._first[:-1]]
        for row, text in text_of_row.items():
            file = bisect_right(self._first, row) - 1
            by_file[file][row - self._first[file]] = text
        return by_file

    def _plain_rows(self) -> tuple[tuple[RowColumn, RowColumn], list[bool]]:
        """Return dependencies as rows of their files, and a mask of files for which they are valid: ids
        ascend without a gap.
        """
        ids, first = self._columns["node_id"], self._buffers.first_row
        count = np.diff(first)
        follows = np.ones(len(ids), np.int64)
        follows[1:] = (ids[1:] > ids[:-1]) & (ids[1:] - ids[:-1] == 1)
        follows[first[:-1][count > 0]] = 1
        is_plain = np.add.reduceat(np.append(follows, 0), first[:-1]) >= count
        lowest = np.append(ids, np.uint64(0))[first[:-1]]
        offsets = []
        for start, wanted in zip(self._starts, self._dependencies, strict=True):
            listed = np.diff(start[first])
            offset = wanted - np.repeat(lowest, listed)  # of a lower id, a huge number
            outside = np.flatnonzero(offset >= np.repeat(count, listed).astype(np.uint64))
            is_plain[np.searchsorted(start[first], outside, side="right") - 1] = False
            offsets.append(offset.astype(np.int32))
        return (offsets[0], offsets[1]), is_plain.tolist()

    def dependency_ids(self, number: int) -> tuple[Ids, Ids]:
        """Return a file's dependencies as written: data, and control."""
        bounds = self._first[number : number + 2]
        (data_begin, data_end), (ctrl_begin, ctrl_end) = (start[bounds].tolist() for start in self._starts)
        return self._dependencies[0][data_begin:data_end], self._dependencies[1][ctrl_begin:ctrl_end]


def _tensors_of(every: TensorLists, first_row: Sequence[int], number: int) -> TensorLists:
    """Return the lists of one file, with its own rows."""
    first, end = first_row[number], first_row[number + 1]
    begin, stop = np.searchsorted(every.row, (first, end))
    start = every.start[begin : stop + 1]
    row, words = every.row[begin:stop] - np.int32(first), every.words[start[0] : start[-1]]
    from et_sim.trace.wire_rows import in_row_order

    return in_row_order(
        TensorLists(row, every.is_output[begin:stop], start - start[0], words, every.texts), row
    )


def _without_room(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns used, copied from blocks that have space for every attribute."""
    carried = int(np.bitwise_or.reduce(columns["present"], initial=0))
    nothing = np.zeros(len(columns["present"]), np.int64)
    lacking = {one.column for one in ATTRIBUTES if not carried & BIT[one.name]}
    return {
        name: nothing.view(column.dtype)[: len(nothing)] if name in lacking else column.copy()
        for name, column in columns.items()
    }


def _slot(attribute: Attribute) -> int:
    return int(at.SLOT[at.KNOWN_ATTRIBUTES.index(attribute.name)])


def _column(number: Attribute, wide: Any, narrow: Any, small: Any) -> Any:
    """Return the column of an attribute in the block that holds it."""
    block = (wide, narrow, small)[at.BLOCK[at.KNOWN_ATTRIBUTES.index(number.name)]]
    return block[_slot(number)].view(number.dtype)


def _ignored(buffers: DecodeBuffers, source: str) -> tuple[tuple[str, int], ...]:
    """Return attributes without a meaning and their numbers of nodes, file by file."""
    ignored = buffers.ignored[: int(buffers.registers[at.IGNORED_NAMES])]
    names = _texts_of(buffers, ignored[:, 0], ignored[:, 1], source, "attribute name")
    return tuple(zip(names, ignored[:, 2].tolist(), strict=True))


def _tensor_lists(buffers: DecodeBuffers, source: str) -> TensorLists:
    """Return the lists of tensors as written, with rows over all files."""
    lists = buffers.lists[: int(buffers.registers[at.LISTS])]
    if not len(lists):
        return no_tensor_lists()
    spans = buffers.words[: int(buffers.registers[at.WORDS])]
    table = name_table(len(spans))
    with np.errstate(over="ignore"):  # as in `_run`
        intern_spans(table, buffers.text, spans)
    return TensorLists(
        row=lists[:, 0].astype(np.int32),
        is_output=lists[:, 1] == at.OUTPUTS,
        start=np.append(lists[:, 2], len(spans)),
        words=spans[:, 0].astype(np.int32),
        texts=_strings(buffers, table, source, "name or size of a tensor"),
    )


def _texts(buffers: DecodeBuffers, source: str) -> dict[int, str]:
    spans = buffers.texts[: int(buffers.registers[at.TEXTS])].tolist()
    return {row: _text(buffers, start, size, source, "inputs.values") for row, start, size in spans}


def _text(buffers: DecodeBuffers, start: int, size: int, source: str, subject: str) -> str:
    content = bytes(buffers.text.data[int(start) : int(start) + int(size)])
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise _bad_text(source, int(start) + error.start, subject) from None


def _strings(buffers: DecodeBuffers, table: NameTable, source: str, subject: str) -> tuple[str, ...]:
    """Return all names of a table, decoded together, which is far cheaper than one by one."""
    count = int(table.used[0])
    return _texts_of(buffers, table.start[:count], table.size[:count], source, subject)


def _texts_of(buffers: DecodeBuffers, start: Any, size: Any, source: str, subject: str) -> tuple[str, ...]:
    count = len(start)
    if not count:
        return ()
    joined = np.empty(int(size.sum()) + count, np.uint8)
    join_spans(buffers.text.data, start, size, joined)
    try:
        text = joined.tobytes().decode()
    except UnicodeDecodeError as error:
        begin = np.cumsum(size + 1) - (size + 1)
        number = int(np.searchsorted(begin, error.start, side="right")) - 1
        offset = int(start[number]) + error.start - int(begin[number])
        raise _bad_text(source, offset, subject) from None
    pieces = text.split("\0")[:-1]
    if len(pieces) == count:
        return tuple(pieces)
    # a name contains a zero character
    spans = zip(start.tolist(), size.tolist(), strict=True)
    return tuple(_text(buffers, first, length, source, subject) for first, length in spans)


def _bad_text(source: str, offset: int, subject: str) -> TraceError:
    return TraceError(
        f"the {subject} is not UTF-8 text",
        place=f"{source}: byte {offset}",
        remedy="the file is damaged or is not a Chakra trace; fetch or write it again",
    )
