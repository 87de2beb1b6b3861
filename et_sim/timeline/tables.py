"""The tables of a run as Arrow: whatever is declared, filled by the function that the declaration names."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa

from et_sim.tables.arrow import schema_of
from et_sim.tables.declaration import Table
from et_sim.timeline.content import Content, Texts
from et_sim.timeline.output_filter import EVERYTHING, OutputFilter
from et_sim.timeline.recorded import RecordedRun


class FilledTable:
    """A table of a run: its schema, and its rows as record batches, all of which share their dictionaries."""

    def __init__(self, table: Table, content: Content, manifest: str) -> None:
        self.schema = schema_of(table, manifest, content.metadata, content.without)
        self._blocks = content.blocks
        self._dictionaries: dict[str, _Dictionary] = {}

    def batches(self) -> Iterator[Any]:
        """The rows, block by block; only once."""
        for columns in self._blocks:
            arrays = [self._array(columns[field.name], field) for field in self.schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, values: Any, field: Any) -> Any:
        if isinstance(values, Texts):
            if field.name not in self._dictionaries:
                self._dictionaries[field.name] = _Dictionary(values.texts, field.type.index_type)
            return self._dictionaries[field.name].array(values.codes)
        array = _with_nulls(values) if isinstance(values, np.ma.MaskedArray) else pa.array(values)
        return array if array.type == field.type else array.cast(field.type)


class _Dictionary:
    """The different texts of a column, and how codes of its texts become Arrow's."""

    def __init__(self, texts: tuple[str, ...], index_type: Any) -> None:
        number = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        self._texts = pa.array(list(number), pa.string())
        self._dtype = index_type.to_pandas_dtype()
        # Groups of one name may be many.
        repeats = len(number) < len(texts)
        self._first = np.array([number[text] for text in texts], np.int32) if repeats else None

    def array(self, codes: Any) -> Any:
        if self._first is not None:
            codes = np.where(codes < 0, codes, self._first[codes])
        codes = np.asarray(codes, self._dtype)
        return pa.DictionaryArray.from_arrays(
            _with_nulls(np.ma.masked_array(codes, codes < 0)), self._texts, safe=False
        )


def _with_nulls(values: Any) -> Any:
    """Columns are often full of nulls, or have none."""
    missing, data = np.ma.getmaskarray(values), np.ma.getdata(values)
    if not missing.any():
        return pa.array(data)
    if missing.all():
        return pa.nulls(len(data), pa.from_numpy_dtype(data.dtype))
    return pa.array(data, mask=missing)


def filled(table: Table, run: RecordedRun, output_filter: OutputFilter = EVERYTHING) -> FilledTable | None:
    """A table of a run, or the rows of it that a filter keeps; None if the run does not have it."""
    module, _, function = table.writer.partition(":")
    content: Content | None = getattr(import_module(module), function)(run, output_filter)
    return None if content is None else FilledTable(table, content, run.manifest_text)


def whole(table: Table, run: RecordedRun) -> Any:
    """The same as a pyarrow.Table."""
    found = filled(table, run)
    return None if found is None else pa.Table.from_batches(list(found.batches()), found.schema)
