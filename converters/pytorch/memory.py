"""Memory that the allocator recorded, as tensors of the rows in which it is allocated and released.

An allocation is a tensor that the row of its thread writes, and a release reads it. Memory that was in use
before the recording is a tensor that no row writes; what is never released stays in use.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from converters.pytorch.columns import ABSENT, NONE, DeviceTrace, MemoryChanges
from converters.pytorch.graph import Column, RecordedGraph
from converters.pytorch.rank import Lookup, RecordedMemory, row_lanes

_Words = dict[int, list[str]]  # by row: tensor, bytes, tensor, bytes, ...


def recorded_memory(graph: RecordedGraph, device: DeviceTrace, event: Lookup) -> RecordedMemory | None:
    """Return the recorded memory of devices, or None if there is none."""
    changes = device.memory
    if not len(changes) or not len(graph):
        return None
    order = np.argsort(changes.ts_ns, kind="stable")
    row = _rows_of(graph, device, event, changes)[order].tolist()
    columns = (changes.device, changes.address, changes.size_bytes)
    reads, writes = defaultdict[int, list[str]](list), defaultdict[int, list[str]](list)
    before = _paired(row, [tuple(column[order].tolist()) for column in columns], reads, writes)
    begin = max(_in_use_before(changes, order), before)
    if begin > before:
        reads[int(np.argmax(graph.end_ns))] += ["kept from before the recording", str(begin - before)]
    in_use = begin + np.cumsum(np.append(0, changes.size_bytes[order]))
    peak = int(np.argmax(in_use))  # 0: at the beginning
    return RecordedMemory(
        {at: tuple(words) for at, words in reads.items()},
        {at: tuple(words) for at, words in writes.items()},
        begin,
        int(in_use[peak]),
        int(changes.ts_ns[order[peak - 1]]) if peak else 0,
        max(int(changes.reserved_bytes.max()), 0),
    )


def _paired(rows: list[int], columns: list[tuple[int, ...]], reads: _Words, writes: _Words) -> int:
    """Add each allocation and each release to its row; return the bytes released of earlier allocations."""
    alive: dict[tuple[int, int], tuple[str, int]] = {}
    before = 0
    for number, (row, device, address, size) in enumerate(zip(rows, *columns, strict=True)):
        if size > 0:
            alive[device, address] = name, _ = f"allocation {number}", size
            if row != NONE:
                writes[row] += [name, str(size)]
        elif size < 0:
            name, size = alive.pop((device, address), (f"allocation before {number}", 0))
            if not size:
                size = -columns[2][number]
                before += size
            if row != NONE:
                reads[row] += [name, str(size)]
    return before


def _rows_of(graph: RecordedGraph, device: DeviceTrace, event: Lookup, changes: MemoryChanges) -> Column:
    """Return the row of the thread under way at each change; NONE before the first one."""
    lane_of_row = row_lanes(graph, device, event)
    is_thread = np.array([lane.stream == ABSENT for lane in device.lanes], np.bool_)
    on_host = np.flatnonzero((lane_of_row != NONE) & is_thread[lane_of_row])
    result = np.full(len(changes), NONE, np.int64)
    for lane in [NONE, *np.unique(changes.lane).tolist()]:  # first of any thread, then of its own
        rows = on_host if lane == NONE else on_host[lane_of_row[on_host] == lane]
        at = np.searchsorted(graph.start_ns[rows], changes.ts_ns, "right") - 1
        chosen = (at >= 0) & ((changes.lane == lane) | (lane == NONE))
        result[chosen] = rows[at[chosen]]
    return result


def _in_use_before(changes: MemoryChanges, order: Column) -> int:
    """Return the bytes in use on all devices before the first change of each."""
    _, first = np.unique(changes.device[order], return_index=True)
    at = order[first]
    at = at[changes.allocated_bytes[at] != ABSENT]
    return int(np.maximum(changes.allocated_bytes[at] - changes.size_bytes[at], 0).sum())
