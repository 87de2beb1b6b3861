"""Dependencies through tensors: a reader of a tensor comes after its last writer.

They are added only between calls of different threads and between work of different streams, and only if the
writer had ended when the reader began.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from converters.pytorch.calls import Recording
from converters.pytorch.columns import NONE, HostTrace, Tensors
from converters.pytorch.graph import Column, Draft, Link
from converters.pytorch.threads import Threads
from et_sim.basics.unique import unique_rows


def write_read_pairs(host: HostTrace, rows: Column, moment: Column, lane: Column) -> tuple[Column, Column]:
    """Return pairs of items on different lanes: the last writer of a tensor, and a later reader.

    Item i reads the inputs and writes the outputs of `rows[i]` of the execution trace, at `moment[i]`.
    """
    reads, read_by = _uses(host.inputs, rows)
    writes, written_by = _uses(host.outputs, rows)
    storage = np.concatenate((reads, writes))
    item = np.concatenate((read_by, written_by))
    is_write = np.concatenate((np.zeros(len(reads), bool), np.ones(len(writes), bool)))
    order = np.lexsort((is_write, item, moment[item], storage))  # items read before they write
    storage, item, is_write = storage[order], item[order], is_write[order]
    before = np.maximum.accumulate(np.where(is_write, np.arange(len(item)), -1))
    before = np.insert(before[:-1], 0, -1) if len(item) else before
    fits = ~is_write & (before >= 0)
    fits[fits] = storage[before[fits]] == storage[fits]
    known = np.flatnonzero(fits)
    writer, reader = item[before[known]], item[known]
    apart = lane[writer] != lane[reader]
    pairs = unique_rows(writer[apart], reader[apart])
    return pairs[:, 0], pairs[:, 1]


def _uses(tensors: Tensors, rows: Column) -> tuple[Any, Any]:
    """Return the storages of the rows' tensors, and the row of each."""
    counts = tensors.start[rows + 1] - tensors.start[rows]
    of = np.repeat(np.arange(len(rows)), counts)
    first = np.repeat(tensors.start[rows] - (np.cumsum(counts) - counts), counts)
    return tensors.storage_id[first + np.arange(len(of))].astype(np.int64), of


def link_data(draft: Draft, given: Recording, work_node: Column, threads: Threads) -> None:
    """Add the dependencies between calls and between work."""
    calls, work, host, host_of_call = given.calls, given.work, given.host, given.host_of_call
    if host is None:
        return
    operator = calls.around(work.call, host_of_call != NONE)
    items = np.flatnonzero(operator != NONE)
    moment = calls.start_ns[work.call[items]]
    before, after = write_read_pairs(host, host_of_call[operator[items]], moment, work.lane[items])
    before, after = items[before], items[after]
    ended = work.end_ns[before] <= work.start_ns[after]
    draft.link(Link.DATA, work_node[before[ended]], work_node[after[ended]])
    linked = np.flatnonzero(host_of_call != NONE)
    before, after = write_read_pairs(host, host_of_call[linked], calls.start_ns[linked], calls.lane[linked])
    before, after = linked[before], linked[after]
    ended = calls.end_ns[before] <= calls.start_ns[after]
    last = threads.last_before(calls.lane[before[ended]], calls.end_ns[before[ended]])
    draft.link(Link.DATA, last, after[ended])
