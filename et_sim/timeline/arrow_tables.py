"""Tables of a run as Arrow: each declared table is filled by the function that its declaration names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from et_sim.basics.lazy_names import loaded
from et_sim.tables.arrow import INDEX_KIND, TYPES, schema_of
from et_sim.tables.declaration import STRING, Column, Table
from et_sim.timeline.content import Block, Nullable, TableContent, Texts
from et_sim.timeline.output_filter import EVERYTHING, OutputFilter
from et_sim.timeline.recorded import RecordedRun

Kept = Callable[[Block], Any]  # returns a mask of the rows of a block that are written; None: all


class FilledTable:
    """A table of a run: its schema, and its rows as record batches that share their dictionaries."""

    def __init__(self, table: Table, content: TableContent, manifest: str, kept: Kept | None = None) -> None:
        self.schema = schema_of(table, manifest, content.metadata, content.without)
        self._columns = [column for column in table.columns if column.name not in content.without]
        self._blocks, self._kept = content.blocks, kept
        self._dictionaries: dict[str, _Dictionary] = {}
        self._latest: dict[str, tuple[Any, Any]] = {}

    def batches(self) -> Iterator[Any]:
        """Yield the rows, block by block; only once."""
        for block in self._blocks:
            mask = None if self._kept is None or block.actor is None else self._kept(block)
            if mask is not None and not mask.any():
                continue
            columns = (block if mask is None else block.where(mask)).columns
            arrays = [self._shared_array(columns[column.name], column) for column in self._columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _shared_array(self, values: Any, column: Column) -> Any:
        """Return the array of a column, which may be that of the block before."""
        latest = self._latest.get(column.name)
        if latest is None or latest[0] is not values:
            latest = self._latest[column.name] = values, self._array(values, column)
        return latest[1]

    def _array(self, values: Any, column: Column) -> Any:
        if isinstance(values, Texts):
            if column.name not in self._dictionaries:
                self._dictionaries[column.name] = _Dictionary(values.texts, INDEX_KIND[column.kind])
            return self._dictionaries[column.name].array(values.codes)
        if column.kind == STRING:
            return _strings(values)
        if column.may_be_null and not isinstance(values, Nullable):
            values = Nullable(values, np.isnan(values) if column.kind == "float64" else values < 0)
        return _numbers(Nullable.of(values), column.kind)


class _Dictionary:
    """The different texts of a column, and the mapping from codes of its texts to Arrow's."""

    def __init__(self, texts: tuple[str, ...], index_kind: str) -> None:
        number = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        self._texts = _strings(number)
        self._index_kind = index_kind
        # Many groups may share a name.
        repeats = len(number) < len(texts)
        self._first = np.array([number[text] for text in texts], np.int32) if repeats else None

    def array(self, codes: Any) -> Any:
        if self._first is not None:
            codes = np.where(codes < 0, codes, self._first[codes])
        indices = _numbers(Nullable(codes, codes < 0), self._index_kind)
        return pa.DictionaryArray.from_arrays(indices, self._texts, safe=False)


# `pyarrow.array` imports pandas where it is installed, which takes longer than a small run.
def _numbers(column: Nullable, kind: str) -> Any:
    """Return numbers or truth values; columns often have only nulls, or none."""
    data, is_null = np.ascontiguousarray(column.values, kind), column.is_null
    if len(data) and is_null.all():
        return pa.nulls(len(data), TYPES[kind])
    valid = _packed(~is_null) if is_null.any() else None
    content = _packed(data) if kind == "bool" else pa.py_buffer(data)
    return pa.Array.from_buffers(TYPES[kind], len(data), [valid, content])


def _packed(flags: Any) -> Any:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _strings(texts: Iterable[str]) -> Any:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def filled(table: Table, run: RecordedRun, output_filter: OutputFilter = EVERYTHING) -> FilledTable | None:
    """Return a table of a run, or the rows that a filter keeps; None if the run does not have it."""
    content: TableContent | None = loaded(table.writer)(run)
    if content is None:
        return None
    actors = output_filter.actors(run.measurement.actor_of_rank)

    def kept(block: Block) -> Any:
        return output_filter.mask(actors, block.actor, block.since_ns, block.until_ns)

    return FilledTable(table, content, run.manifest_text, kept)


def whole(table: Table, run: RecordedRun) -> Any:
    """Return a table as a pyarrow.Table."""
    content = filled(table, run)
    return None if content is None else pa.Table.from_batches(list(content.batches()), content.schema)
