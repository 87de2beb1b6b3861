"""Rows of decoded traces in the order of their ids, with dependencies as rows."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from et_sim.basics.errors import TraceError
from et_sim.trace.columns import ATTRIBUTES, TEXT_ATTRIBUTES, IntColumn, RowColumn, TensorLists, Trace

Ids = npt.NDArray[np.uint64]
Number = TypeVar("Number", np.uint64, np.int32)
_PER_NODE = (
    *("node_id", "kind", "name", "duration_us", "involved_count", "present"),
    *(attribute.column for attribute in ATTRIBUTES),
)


def in_id_order(trace: Trace, dependencies: tuple[Ids, Ids]) -> tuple[Trace, tuple[Ids, Ids]]:
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
        tensors=in_row_order(trace.tensors, row_of[trace.tensors.row].astype(np.int32)),
    )
    return trace, (data, ctrl)


def in_row_order(lists: TensorLists, row: RowColumn) -> TensorLists:
    """Return the lists with other row numbers, in their order; words are renumbered by first use."""
    order = np.lexsort((lists.is_output, row))
    start, words = _reordered(lists.start, lists.words, order)
    words, texts = _by_first_use(words, lists.texts)
    return TensorLists(row[order], lists.is_output[order], start, words, texts)


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


def with_rows_for_ids(trace: Trace, dependencies: tuple[Ids, Ids], drop_dangling: bool) -> Trace:
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
