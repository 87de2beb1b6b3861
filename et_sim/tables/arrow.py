"""Declared tables as Arrow schemas, and checks of Arrow schemas against declarations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from et_sim.tables.declaration import STRING, TEXT, WORD, Column, Table
from et_sim.tables.registry import VERSION

VERSION_KEY = b"et-sim.tables"
INDEX_KIND = {WORD: "int8", TEXT: "int32"}  # of the indices into the dictionary of texts
TYPES = {
    "int8": pa.int8(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    STRING: pa.string(),
    WORD: pa.dictionary(pa.int8(), pa.string()),
    TEXT: pa.dictionary(pa.int32(), pa.string()),
}


def schema_of(table: Table, manifest: str, metadata: Mapping[str, str], without: Collection[str] = ()) -> Any:
    """Return the schema of a table; its metadata hold the run's manifest and the version of the tables."""
    fields = [_field(column) for column in table.columns if column.name not in without]
    about = {"et-sim": manifest, VERSION_KEY.decode(): str(VERSION)}
    return pa.schema(fields, metadata={**about, **metadata})


def _field(column: Column) -> Any:
    metadata = {"meaning": column.meaning, "unit": column.unit, "refers_to": column.refers_to}
    return pa.field(column.name, TYPES[column.kind], metadata=metadata)


def version_misfit(schema: Any) -> str:
    """Return the fault in the version of a table, as the end of a sentence; empty if there is none."""
    version = (schema.metadata or {}).get(VERSION_KEY, b"0").decode(errors="replace")
    if version == str(VERSION):
        return ""
    return f"is of table version {version}; this et-sim reads version {VERSION}"


def column_misfit(schema: Any, table: Table) -> str:
    """Return the fault in the columns of a table, or an empty text."""
    for column in table.columns:
        at = schema.get_field_index(column.name)
        if at < 0:
            if column.only_of:
                continue
            return f"column {column.name!r} is missing"
        if not _is_of(schema.field(at).type, column.kind):
            return f"column {column.name!r} is of type {schema.field(at).type}"
    return ""


def _is_of(arrow_type: Any, kind: str) -> bool:
    if kind in (WORD, TEXT):
        return bool(pa.types.is_dictionary(arrow_type) and arrow_type.value_type == pa.string())
    return bool(arrow_type == TYPES[kind])
