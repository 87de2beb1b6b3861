"""Several traces as one, so that what is asked of every node is asked once for all of them.

Where a job has many small traces that all differ, calls take longer than the work. What stands in a stack is
looked up by columns; in words, things are told of the trace itself, which is why metadata and lists of
tensors are left out here. Traces of many nodes are stacked by themselves, without copying them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import EtSimError
from et_sim.trace.columns import ATTRIBUTES, BIT, TEXT_ATTRIBUTES, IntColumn, Trace, no_tensor_lists

ROWS_AT_ONCE = 1 << 15  # more leave the processor's cache
OF_EVERY_NODE = ("node_id", "kind", "name", "duration_us", "involved_count", "present")
PER_NODE = (*OF_EVERY_NODE, *(attribute.column for attribute in ATTRIBUTES))


class Stack(Struct, frozen=True, eq=False):
    """Rows of all traces, one after the other; ids ascend within a trace only."""

    trace: Trace  # all of them; its texts are those of all, each once, and names as they come
    traces: tuple[Trace, ...]
    number: int  # of the first of them, among all that were to be stacked
    first: IntColumn  # row of each, and the end of the last

    def __len__(self) -> int:
        return len(self.traces)

    @property
    def numbers(self) -> range:
        """Of the traces, among all that were to be stacked."""
        return range(self.number, self.number + len(self))

    @property
    def of_row(self) -> IntColumn:
        """Which of the traces each row is of, counted from 0."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))

    def spread(self, values: Any) -> Any:
        """What is known of each trace, for each of its rows."""
        return np.repeat(values, np.diff(self.first))

    def where(self, row: int) -> tuple[int, int]:
        """Which of the traces a row is of, and which of its rows that is."""
        at = int(np.searchsorted(self.first, row, side="right")) - 1
        return at, row - int(self.first[at])

    def parts(self) -> Iterator[tuple[int, Trace, slice]]:
        """The number of each trace, the trace, and its rows."""
        bounds = pairwise(self.first.tolist())
        for number, trace, (begin, end) in zip(self.numbers, self.traces, bounds, strict=True):
            yield number, trace, slice(begin, end)

    def apart(self) -> Iterator[Stack]:
        """A stack for each trace."""
        for number, trace in zip(self.numbers, self.traces, strict=True):
            yield _stacked(number, [trace])


def stacks(traces: Sequence[Trace], alike: Sequence[Any] = ()) -> Iterator[Stack]:
    """All traces, in their order; `alike`: something for each, which those of a stack have in common."""
    begin = rows = 0
    for number, trace in enumerate(traces):
        is_other = bool(alike) and number > begin and alike[number] != alike[begin]
        if number > begin and (is_other or rows + len(trace) > ROWS_AT_ONCE):
            yield _stacked(begin, traces[begin:number])
            begin, rows = number, 0
        rows += len(trace)
    if begin < len(traces):
        yield _stacked(begin, traces[begin:])


def for_each_stack(traces: Sequence[Trace], work: Callable[[Stack], None], alike: Sequence[Any] = ()) -> None:
    """Do this with all stacks; with the traces of one that is refused, one by one, to find which it is."""
    for stack in stacks(traces, alike):
        try:
            work(stack)
        except EtSimError:
            if len(stack) == 1:
                raise
            for part in stack.apart():
                work(part)


def _stacked(number: int, traces: Sequence[Trace]) -> Stack:
    first = np.array([0, *accumulate(map(len, traces))], np.int64)
    whole = traces[0] if len(traces) == 1 else _joined(traces, first)
    return Stack(whole, tuple(traces), number, first)


def _joined(traces: Sequence[Trace], first: IntColumn) -> Trace:
    def joined(name: str) -> Any:
        return np.concatenate([getattr(trace, name) for trace in traces])

    columns: dict[str, Any] = {name: joined(name) for name in OF_EVERY_NODE}
    given = int(np.bitwise_or.reduce(columns["present"]))
    for attribute in ATTRIBUTES:  # what no node carries is 0 everywhere
        is_given = attribute.texts or given & BIT[attribute.name]
        columns[attribute.column] = (
            joined(attribute.column) if is_given else np.zeros(first[-1], attribute.dtype)
        )
    sizes = np.diff(first)
    before = [0, *accumulate(len(trace.names) for trace in traces)]
    columns["name"] += np.repeat(np.array(before[:-1], np.int32), sizes)
    columns["names"] = tuple(chain.from_iterable(trace.names for trace in traces))
    for text in TEXT_ATTRIBUTES:
        columns[text.column], columns[text.texts] = _same_texts(
            columns[text.column], [getattr(trace, text.texts) for trace in traces], sizes
        )
    for kind in ("data", "ctrl"):
        starts = [getattr(trace, f"{kind}_start") for trace in traces]
        rows = [getattr(trace, f"{kind}_deps") for trace in traces]
        counts = np.array(list(map(len, rows)), np.int64)
        behind = np.concatenate([start[1:] for start in starts])
        behind += np.repeat(np.cumsum(counts) - counts, sizes)
        columns[f"{kind}_start"] = np.concatenate((np.zeros(1, np.int64), behind))
        columns[f"{kind}_deps"] = np.concatenate(rows) + np.repeat(first[:-1], counts).astype(np.int32)
    return replace(
        traces[0],
        **columns,
        metadata_text={},
        ignored_attributes={},
        tensors=no_tensor_lists(),
        source="",
    )


def _same_texts(column: Any, texts: list[tuple[str, ...]], sizes: Any) -> tuple[Any, tuple[str, ...]]:
    """A column with one number for each text, the empty one first."""
    numbers = {"": 0}
    place = np.array([numbers.setdefault(text, len(numbers)) for of in texts for text in of], np.int32)
    counts = np.array(list(map(len, texts)), np.int64)
    return place[column + np.repeat(np.cumsum(counts) - counts, sizes)], tuple(numbers)
