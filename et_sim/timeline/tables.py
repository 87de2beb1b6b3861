"""The tables of a run as Arrow: whatever is declared, filled by the function that the declaration names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from et_sim.tables.arrow import INDEX_KIND, TYPES, schema_of
from et_sim.tables.declaration import STRING, Table
from et_sim.timeline.content import Content, Texts
from et_sim.timeline.output_filter import EVERYTHING, OutputFilter
from et_sim.timeline.recorded import RecordedRun


class FilledTable:
    """A table of a run: its schema, and its rows as record batches, all of which share their dictionaries."""

    def __init__(self, table: Table, content: Content, manifest: str) -> None:
        self.schema = schema_of(table, manifest, content.metadata, content.without)
        self._kinds = {column.name: column.kind for column in table.columns}
        self._blocks = content.blocks
        self._dictionaries: dict[str, _Dictionary] = {}

    def batches(self) -> Iterator[Any]:
        """The rows, block by block; only once."""
        for columns in self._blocks:
            arrays = [self._array(columns[field.name], field) for field in self.schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, values: Any, field: Any) -> Any:
        kind = self._kinds[field.name]
        if isinstance(values, Texts):
            if field.name not in self._dictionaries:
                self._dictionaries[field.name] = _Dictionary(values.texts, INDEX_KIND[kind])
            return self._dictionaries[field.name].array(values.codes)
        return _strings(values) if kind == STRING else _numbers(values, kind)


class _Dictionary:
    """The different texts of a column, and how codes of its texts become Arrow's."""

    def __init__(self, texts: tuple[str, ...], index_kind: str) -> None:
        number = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        self._texts = _strings(number)
        self._index_kind = index_kind
        # Groups of one name may be many.
        repeats = len(number) < len(texts)
        self._first = np.array([number[text] for text in texts], np.int32) if repeats else None

    def array(self, codes: Any) -> Any:
        if self._first is not None:
            codes = np.where(codes < 0, codes, self._first[codes])
        indices = _numbers(np.ma.masked_array(codes, codes < 0), self._index_kind)
        return pa.DictionaryArray.from_arrays(indices, self._texts, safe=False)


# `pyarrow.array` imports pandas where it is installed, which takes longer than a small run.
def _numbers(values: Any, kind: str) -> Any:
    """Numbers or truth values, of which some may be masked: columns are often full of nulls, or have none."""
    missing, data = np.ma.getmaskarray(values), np.ascontiguousarray(np.ma.getdata(values), kind)
    if len(data) and missing.all():
        return pa.nulls(len(data), TYPES[kind])
    valid = _packed(~missing) if missing.any() else None
    content = _packed(data) if kind == "bool" else pa.py_buffer(data)
    return pa.Array.from_buffers(TYPES[kind], len(data), [valid, content])


def _packed(flags: Any) -> Any:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def _strings(texts: Iterable[str]) -> Any:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def filled(table: Table, run: RecordedRun, output_filter: OutputFilter = EVERYTHING) -> FilledTable | None:
    """A table of a run, or the rows of it that a filter keeps; None if the run does not have it."""
    module, _, function = table.writer.partition(":")
    content: Content | None = getattr(import_module(module), function)(run, output_filter)
    return None if content is None else FilledTable(table, content, run.manifest_text)


def whole(table: Table, run: RecordedRun) -> Any:
    """The same as a pyarrow.Table."""
    found = filled(table, run)
    return None if found is None else pa.Table.from_batches(list(found.batches()), found.schema)
