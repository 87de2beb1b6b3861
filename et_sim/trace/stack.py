"""Several traces as one, so that work on nodes is done once for all of them.

If a job has many small traces that all differ, calls take longer than the work. Stacks serve work on columns;
words refer to the trace itself, so metadata and lists of tensors are left out. Traces of many nodes form a
stack of their own, without a copy.

Readers make rows of several traces at once (`TraceBlock`), and a separate trace only on demand.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, overload

import numpy as np
from msgspec import Struct, field, structs

from et_sim.basics.errors import EtSimError
from et_sim.trace.columns import (
    ATTRIBUTES,
    BIT,
    TEXT_ATTRIBUTES,
    IntColumn,
    RowColumn,
    TensorLists,
    Trace,
    no_tensor_lists,
)

ROWS_AT_ONCE = 1 << 15  # more exceed the processor's cache
MOST_ROWS_KEPT = 1 << 19  # in stacks that are copies of traces
OF_EVERY_NODE = ("node_id", "kind", "name", "duration_us", "involved_count", "present")
PER_NODE = (*OF_EVERY_NODE, *(attribute.column for attribute in ATTRIBUTES))


class TraceHead(Struct, frozen=True, eq=False):
    """The fields of a `Trace` that do not belong to its nodes."""

    source: str = ""
    version: str = ""
    start_ns: int = 0
    metadata_text: dict[int, str] = field(default_factory=dict)
    ignored_attributes: dict[str, int] = field(default_factory=dict)
    dropped_dependencies: int = 0

    @staticmethod
    def of(trace: Trace) -> TraceHead:
        """Return the head of a trace."""
        return TraceHead(*(getattr(trace, name) for name in TraceHead.__struct_fields__))


class Stack(Struct, frozen=True, eq=False):
    """Rows of all traces, one after the other; ids ascend within a trace only."""

    trace: Trace  # all rows; texts occur once, names in order of occurrence
    traces: Sequence[Trace]
    number: int  # of the first of them, among all stacked traces
    first: IntColumn  # row of each, and the end of the last
    heads: Sequence[TraceHead]
    names: Sequence[tuple[str, ...]]  # of each
    own_texts: Mapping[str, RowColumn]  # columns of texts, in the numbering of each trace

    def __len__(self) -> int:
        return len(self.heads)

    @property
    def numbers(self) -> range:
        """Return the numbers of the traces, among all stacked traces."""
        return range(self.number, self.number + len(self))

    def share(self, values: Any) -> Any:
        """Return the values of its own traces out of those of all stacked traces."""
        return values[self.number : self.number + len(self)]

    @property
    def of_row(self) -> IntColumn:
        """Return the index of each row's trace, counted from 0."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    def spread(self, values: Any) -> Any:
        """Return the value of each trace for each of its rows."""
        return np.repeat(values, np.diff(self.first))

    def where(self, row: int) -> tuple[int, int]:
        """Return the index of a row's trace, and the row within it."""
        at = int(np.searchsorted(self.first, row, side="right")) - 1
        return at, row - int(self.first[at])

    def rows(self, at: int) -> slice:
        """Return the rows of one of the traces."""
        return slice(int(self.first[at]), int(self.first[at + 1]))

    def parts(self) -> Iterator[tuple[int, Trace, slice]]:
        """Yield the number of each trace, the trace, and its rows."""
        for at, (number, trace) in enumerate(zip(self.numbers, self.traces, strict=True)):
            yield number, trace, self.rows(at)

    def apart(self) -> Iterator[Stack]:
        """Yield a stack for each trace."""
        for number, trace in zip(self.numbers, self.traces, strict=True):
            yield stack_of([trace], number)


class TraceBlock(Struct, frozen=True, eq=False):
    """Rows of several traces from a reader: columns of all, one trace after the other."""

    columns: Mapping[str, Any]  # texts and names in the numbering of each trace
    first: IntColumn  # row of each, and the end of the last
    data_start: IntColumn  # over all rows
    data_deps: RowColumn  # rows of the same trace
    ctrl_start: IntColumn
    ctrl_deps: RowColumn
    names: Sequence[tuple[str, ...]]
    heads: Sequence[TraceHead]
    texts: Mapping[str, Sequence[tuple[str, ...]]]  # of the attributes that any node may have
    tensors: Callable[[int], TensorLists] | None = None  # of one trace; None: there are none

    def trace(self, at: int) -> Trace:
        """Return one of the traces."""
        begin, end = self.first[at : at + 2].tolist()
        data_start, ctrl_start = self.data_start[begin : end + 1], self.ctrl_start[begin : end + 1]
        columns: dict[str, Any] = {name: column[begin:end] for name, column in self.columns.items()}
        columns |= {name: texts[at] for name, texts in self.texts.items()}
        return Trace(
            **columns,
            data_start=data_start - data_start[0],
            data_deps=self.data_deps[data_start[0] : data_start[-1]],
            ctrl_start=ctrl_start - ctrl_start[0],
            ctrl_deps=self.ctrl_deps[ctrl_start[0] : ctrl_start[-1]],
            names=self.names[at],
            tensors=self.tensors(at) if self.tensors else no_tensor_lists(),
            **structs.asdict(self.heads[at]),
        )

    def stack(self, number: int = 0) -> Stack:
        """Return all traces as one stack."""
        if len(self.heads) == 1:
            return stack_of([self.trace(0)], number)
        own = {text.column: self.columns[text.column] for text in TEXT_ATTRIBUTES}
        return Stack(_whole(self), _Made(self), number, self.first, self.heads, self.names, own)

    @staticmethod
    def of(traces: Sequence[Trace]) -> TraceBlock:
        """Return copies of the rows of traces."""

        def joined(name: str) -> Any:
            return np.concatenate([getattr(trace, name) for trace in traces])

        columns: dict[str, Any] = {name: joined(name) for name in OF_EVERY_NODE}
        given = int(np.bitwise_or.reduce(columns["present"]))
        first = np.array([0, *accumulate(map(len, traces))], np.int64)
        for attribute in ATTRIBUTES:  # an attribute without values is 0 everywhere
            is_given = attribute.texts or given & BIT[attribute.name]
            columns[attribute.column] = (
                joined(attribute.column) if is_given else np.zeros(first[-1], attribute.dtype)
            )
        starts = {}
        for kind in ("data_start", "ctrl_start"):
            ends = [0, *accumulate(int(getattr(trace, kind)[-1]) for trace in traces)]
            behind = np.concatenate([getattr(trace, kind)[1:] for trace in traces])
            behind += np.repeat(np.array(ends[:-1], np.int64), np.diff(first))
            starts[kind] = np.concatenate((np.zeros(1, np.int64), behind))
        return TraceBlock(
            columns,
            first,
            starts["data_start"],
            joined("data_deps"),
            starts["ctrl_start"],
            joined("ctrl_deps"),
            [trace.names for trace in traces],
            [TraceHead.of(trace) for trace in traces],
            {text.texts: [getattr(trace, text.texts) for trace in traces] for text in TEXT_ATTRIBUTES},
            [trace.tensors for trace in traces].__getitem__,
        )


class _Made(Sequence[Trace]):
    """The traces of a block, each made on first use."""

    def __init__(self, block: TraceBlock) -> None:
        self._block = block
        self._known: dict[int, Trace] = {}

    def __len__(self) -> int:
        return len(self._block.heads)

    @overload
    def __getitem__(self, at: int) -> Trace: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Trace]: ...
    def __getitem__(self, at: int | slice) -> Trace | Sequence[Trace]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        if not 0 <= at < len(self):
            raise IndexError(at)
        if at not in self._known:
            self._known[at] = self._block.trace(at)
        return self._known[at]


class Templates(Sequence[Trace]):
    """Traces whose stacks are made once."""

    def __init__(self, traces: Iterable[Trace] = (), stacks: Iterable[Stack] = ()) -> None:
        """Store the traces, or the `stacks` of traces that a reader made together."""
        self._traces, self._stacks = tuple(traces), _numbered(stacks)
        self._ends = [stack.number + len(stack) for stack in self._stacks]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else len(self._traces)

    @overload
    def __getitem__(self, at: int) -> Trace: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Trace]: ...
    def __getitem__(self, at: int | slice) -> Trace | Sequence[Trace]:
        if not self._ends:
            return self._traces[at]
        if isinstance(at, slice):
            return tuple(self[number] for number in range(*at.indices(len(self))))
        at = at + len(self) if at < 0 else at
        if not 0 <= at < len(self):
            raise IndexError(at)
        stack = self._stacks[bisect_right(self._ends, at)]
        return stack.traces[at - stack.number]

    def stacks(self) -> tuple[Stack, ...] | Iterator[Stack]:
        """Yield all stacks in order; copies of very many rows are not kept."""
        if self._stacks or not self._traces:
            return self._stacks
        if sum(map(len, self._traces)) > MOST_ROWS_KEPT:
            return _stacks_of(self._traces)
        self._stacks = tuple(_stacks_of(self._traces))
        return self._stacks


def _numbered(stacks: Iterable[Stack]) -> tuple[Stack, ...]:
    """Return the stacks with numbers that continue from one to the next."""
    every: list[Stack] = []
    for stack in filter(len, stacks):
        number = every[-1].number + len(every[-1]) if every else 0
        every.append(structs.replace(stack, number=number))
    return tuple(every)


def stacks(traces: Sequence[Trace], alike: Sequence[Any] = ()) -> Iterable[Stack]:
    """Return stacks of all traces in order; traces of one stack have the same entry in `alike`."""
    return _stacks_of(traces, alike) if alike or not isinstance(traces, Templates) else traces.stacks()


def _stacks_of(traces: Sequence[Trace], alike: Sequence[Any] = ()) -> Iterator[Stack]:
    begin = rows = 0
    for number, trace in enumerate(traces):
        is_other = bool(alike) and number > begin and alike[number] != alike[begin]
        if number > begin and (is_other or rows + len(trace) > ROWS_AT_ONCE):
            yield stack_of(traces[begin:number], begin)
            begin, rows = number, 0
        rows += len(trace)
    if begin < len(traces):
        yield stack_of(traces[begin:], begin)


def for_each_stack(traces: Sequence[Trace], work: Callable[[Stack], None], alike: Sequence[Any] = ()) -> None:
    """Apply the work to all stacks; if it refuses one, apply it to each trace to find the faulty one."""
    for stack in stacks(traces, alike):
        try:
            work(stack)
        except EtSimError:
            if len(stack) == 1:
                raise
            for part in stack.apart():
                work(part)


def stack_of(traces: Sequence[Trace], number: int = 0) -> Stack:
    """Return some traces as one, copied unless there is only one."""
    if len(traces) > 1:
        return structs.replace(TraceBlock.of(traces).stack(), number=number, traces=traces)
    (trace,) = traces
    own = {text.column: getattr(trace, text.column) for text in TEXT_ATTRIBUTES}
    first = np.array([0, len(trace)], np.int64)
    return Stack(trace, traces, number, first, [TraceHead.of(trace)], [trace.names], own)


def _whole(block: TraceBlock) -> Trace:
    """Return columns of all traces as those of one."""
    columns, sizes = dict[str, Any](block.columns), np.diff(block.first)
    columns["name"] = block.columns["name"] + np.repeat(_before(block.names), sizes)
    columns["names"] = tuple(chain.from_iterable(block.names))
    for text in TEXT_ATTRIBUTES:
        if text.texts in block.texts:
            columns[text.column], columns[text.texts] = _same_texts(
                block.columns[text.column], block.texts[text.texts], sizes
            )
    for kind in ("data", "ctrl"):
        counts = np.diff(getattr(block, f"{kind}_start")[block.first])
        before = np.repeat(block.first[:-1], counts).astype(np.int32)
        columns[f"{kind}_deps"] = getattr(block, f"{kind}_deps") + before
    return Trace(**columns, data_start=block.data_start, ctrl_start=block.ctrl_start)


def _before(texts: Sequence[tuple[str, ...]]) -> RowColumn:
    """Return the number of texts before those of each trace."""
    counts = np.array([*map(len, texts)], np.int32)
    before: RowColumn = np.cumsum(counts, dtype=np.int32) - counts
    return before


def _same_texts(column: Any, texts: Sequence[tuple[str, ...]], sizes: Any) -> tuple[Any, tuple[str, ...]]:
    """Return a column with one number for each text, the empty one first."""
    numbers = {"": 0}
    place = np.array([numbers.setdefault(text, len(numbers)) for of in texts for text in of], np.int32)
    return place[column + np.repeat(_before(texts), sizes)], tuple(numbers)
