"""Decoding of trace files: bytes in, `Trace` out, without a Python object per node.

The compiled decoder fills columns in file order, for many small files at once. Here rows are sorted by id,
dependency ids become rows, and name spans become strings.

Invariant: for any bytes, the result is a `Trace` or a `TraceError`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

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
    IntColumn,
    RowColumn,
    TensorLists,
    Trace,
    no_tensor_lists,
)
from et_sim.trace.stack import Stack, TraceBlock, TraceHead, stack_of
from et_sim.trace.wire_errors import explain, old_format, old_format_error
from et_sim.trace.wire_layout import DecodeBuffers, NameTable, intern_spans, join_spans, name_table

Ids = npt.NDArray[np.uint64]
_LONGEST_VARINT = 10
# larger blocks are separate pages, and unused ones take no memory
_MOST_IN_MEMORY_AT_HAND = 1 << 16
Item = TypeVar("Item")
Number = TypeVar("Number", np.uint64, np.int32)


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
        raise explain(buffers, sources[0])
    heads = [(start, start + size) for _, start, size in buffers.heads.tolist()]
    versions = [bytes(buffers.text.data[start:end]) for start, end in heads]
    for version, source in zip(versions, sources, strict=True):
        if old_format(version):
            raise old_format_error(source)
    files = _Files(buffers, sources[0])
    block = files.block(
        sources, [version.decode() for version in versions], map(_start_ns, contents, sources)
    )
    if all(files.is_plain):
        return block.stack()
    traces = [
        block.trace(number)
        if is_plain
        else _resolved(*_in_id_order(block.trace(number), files.dependency_ids(number)), drop_dangling)
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
    return _in_row_order(
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


def _in_row_order(lists: TensorLists, row: RowColumn) -> TensorLists:
    """Return the lists with other row numbers, in their order; words are renumbered by first use."""
    order = np.lexsort((lists.is_output, row))
    start, words = _reordered(lists.start, lists.words, order)
    words, texts = _by_first_use(words, lists.texts)
    return TensorLists(row[order], lists.is_output[order], start, words, texts)


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


def _in_id_order(trace: Trace, dependencies: tuple[Ids, Ids]) -> tuple[Trace, tuple[Ids, Ids]]:
    """Sort rows by ascending id and number names and groups by first use; refuse duplicate ids."""
    ids = trace.node_id
    if bool(np.all(ids[1:] > ids[:-1])):
        return trace, dependencies
    order = np.argsort(ids, kind="stable")
    twice = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
    if len(twice):
        first, second = int(order[twice[0]]), int(order[twice[0] + 1])
        raise TraceError(
            f"node id {int(ids[first])} occurs twice: records {first + 1} and {second + 1}"
            f' ("{trace.node_name(first)}" and "{trace.node_name(second)}")',
            place=trace.source,
            remedy="give every node of a file an id of its own",
        )
    data_start, data = _reordered(trace.data_start, dependencies[0], order)
    ctrl_start, ctrl = _reordered(trace.ctrl_start, dependencies[1], order)
    row_of = np.empty(len(order), np.int64)
    row_of[order] = np.arange(len(order))
    columns: dict[str, Any] = {name: getattr(trace, name)[order] for name in _PER_NODE}
    columns["name"], names = _by_first_use(columns["name"], trace.names)
    for text in TEXT_ATTRIBUTES:
        columns[text.column], columns[text.texts] = _after_empty(
            columns[text.column], getattr(trace, text.texts)
        )
    texts = sorted((int(row_of[row]), text) for row, text in trace.metadata_text.items())
    trace = replace(
        trace,
        **columns,
        names=names,
        data_start=data_start,
        ctrl_start=ctrl_start,
        metadata_text=dict(texts),
        tensors=_in_row_order(trace.tensors, row_of[trace.tensors.row].astype(np.int32)),
    )
    return trace, (data, ctrl)


_PER_NODE = (
    *("node_id", "kind", "name", "duration_us", "involved_count", "present"),
    *(attribute.column for attribute in ATTRIBUTES),
)


def _by_first_use(numbers: RowColumn, names: tuple[str, ...]) -> tuple[RowColumn, tuple[str, ...]]:
    """Renumber names in the order in which the rows use them, and drop unused ones."""
    used, first = np.unique(numbers, return_index=True)
    in_order = used[np.argsort(first)]
    renumbered = np.zeros(len(names), np.int32)
    renumbered[in_order] = np.arange(len(in_order))
    return renumbered[numbers], tuple(names[number] for number in in_order.tolist())


def _after_empty(numbers: RowColumn, names: tuple[str, ...]) -> tuple[RowColumn, tuple[str, ...]]:
    """Renumber names like `_by_first_use`, but keep the empty name first, used or not."""
    with_empty, names = _by_first_use(np.concatenate((np.zeros(1, np.int32), numbers)), names)
    return with_empty[1:], names


def _reordered(
    start: IntColumn, items: npt.NDArray[Number], order: npt.NDArray[np.intp]
) -> tuple[IntColumn, npt.NDArray[Number]]:
    """Return the lists of a CSR pair in another order of rows."""
    count = np.diff(start)[order]
    new_start = np.concatenate((np.zeros(1, np.int64), np.cumsum(count)))
    shift = np.repeat(start[:-1][order] - new_start[:-1], count)
    return new_start, items[shift + np.arange(len(items))]


def _resolved(trace: Trace, dependencies: tuple[Ids, Ids], drop_dangling: bool) -> Trace:
    """Return the trace with dependencies as rows."""
    data, ctrl = (_rows_of(trace.node_id, wanted) for wanted in dependencies)
    missing = [int(np.count_nonzero(rows < 0)) for rows in (data, ctrl)]
    data_start, ctrl_start = trace.data_start, trace.ctrl_start
    if sum(missing) and not drop_dangling:
        raise _dangling(trace, dependencies, (data, ctrl), sum(missing))
    if sum(missing):
        data_start, data = _without_missing(data_start, data)
        ctrl_start, ctrl = _without_missing(ctrl_start, ctrl)
    return replace(
        trace,
        data_start=data_start,
        data_deps=data,
        ctrl_start=ctrl_start,
        ctrl_deps=ctrl,
        dropped_dependencies=sum(missing),
    )


def _rows_of(ids: Ids, wanted: Ids) -> RowColumn:
    """Return the row of each wanted id, or -1; `ids` ascend. Dense ids are looked up in a table."""
    if len(ids) == 0 or len(wanted) == 0:
        return np.full(len(wanted), -1, np.int32)
    span = int(ids[-1] - ids[0]) + 1
    if span > 4 * len(ids) + 1024:
        nearest = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
        sparse: RowColumn = np.where(ids[nearest] == wanted, nearest, -1).astype(np.int32)
        return sparse
    offset = wanted - ids[0]  # an id below the first wraps around to a huge offset
    inside = offset < np.uint64(span)
    if span == len(ids):
        rows: RowColumn = offset.astype(np.int32)
        rows[~inside] = -1
        return rows
    table = np.full(span + 1, -1, np.int32)
    table[(ids - ids[0]).astype(np.intp)] = np.arange(len(ids), dtype=np.int32)
    rows_of_wanted: RowColumn = table[np.where(inside, offset, np.uint64(span)).astype(np.intp)]
    return rows_of_wanted


def _without_missing(start: IntColumn, rows: RowColumn) -> tuple[IntColumn, RowColumn]:
    is_kept = rows >= 0
    kept_before: IntColumn = np.concatenate((np.zeros(1, np.int64), np.cumsum(is_kept, dtype=np.int64)))
    return kept_before[start], rows[is_kept]


def _dangling(
    trace: Trace, dependencies: tuple[Ids, Ids], rows: tuple[RowColumn, RowColumn], count: int
) -> TraceError:
    which, kind = (0, "data") if bool((rows[0] < 0).any()) else (1, "control")
    at_item = int(np.argmax(rows[which] < 0))
    start = (trace.data_start, trace.ctrl_start)[which]
    row = int(np.searchsorted(start, at_item, side="right")) - 1
    others = f" ({count - 1} more dependencies like it)" if count > 1 else ""
    return TraceError(
        f"{trace.describe(row)} has a {kind} dependency on node {int(dependencies[which][at_item])},"
        f" which is not in the file{others}",
        place=trace.source,
        remedy="the writer left that node out; write the trace again, or drop such dependencies"
        " with et-convert repair PREFIX -o REPAIRED",
    )
