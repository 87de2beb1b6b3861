"""Who wrote a tensor last before somebody reads it; a tensor is told by its storage.

Not here: the dependencies made of it (`data_links`, `untimed`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from converters.pytorch.columns import HostTrace, Tensors
from converters.pytorch.graph import Column


def write_read_pairs(host: HostTrace, rows: Column, moment: Column, lane: Column) -> tuple[Column, Column]:
    """Pairs of items on different lanes: the last that wrote a tensor, and one that reads it afterwards.

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
    pairs = np.unique(np.stack((writer[apart], reader[apart]), axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _uses(tensors: Tensors, rows: Column) -> tuple[Any, Any]:
    """Storages that rows name, and which of the rows each is of."""
    counts = tensors.start[rows + 1] - tensors.start[rows]
    of = np.repeat(np.arange(len(rows)), counts)
    first = np.repeat(tensors.start[rows] - (np.cumsum(counts) - counts), counts)
    return tensors.storage_id[first + np.arange(len(of))].astype(np.int64), of
