"""A signature as values that JSON can hold, and back: orders of machine code are files of JSON.

The values read back equal those written, for every kind of argument: the machine code depends on it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from et_sim.compiled.signature import INTEGER, REAL, ArrayKind, TablesKind, TupleKind

ARRAY, TABLES, TUPLE, RECORD, PART = "array", "tables", "tuple", "record", "part"


def values_of(signature: tuple[Any, ...]) -> list[Any]:
    """Return the kinds of a signature as plain values."""
    return [_values_of_kind(kind) for kind in signature]


def signature_from(values: list[Any]) -> tuple[Any, ...]:
    """Return the signature that plain values describe; raise ValueError if they describe none."""
    return tuple(_kind_from(value) for value in values)


def _values_of_kind(kind: Any) -> Any:
    if isinstance(kind, ArrayKind):
        dtype, *others = kind
        return [ARRAY, _values_of_dtype(dtype), *others]
    if isinstance(kind, TablesKind):
        return [
            TABLES,
            kind.module,
            kind.name,
            [[name, _values_of_kind(field)] for name, field in kind.fields],
        ]
    if isinstance(kind, TupleKind):
        made_by = None if kind.made_by is None else [kind.made_by.__module__, kind.made_by.__qualname__]
        return [TUPLE, made_by, values_of(kind.items)]
    return kind


def _kind_from(value: Any) -> Any:
    match value:
        case [str() as kind, dtype, *others] if kind == ARRAY:
            return ArrayKind(_dtype_from(dtype), *others)
        case [str() as kind, module, name, fields] if kind == TABLES:
            return TablesKind(module, name, tuple((of, _kind_from(field)) for of, field in fields))
        case [str() as kind, made_by, items] if kind == TUPLE:
            return TupleKind(_class_named(made_by), signature_from(items))
        case str() if value in (INTEGER, REAL):
            return value
    raise ValueError(f"{value!r} is no kind of an argument")


def _class_named(name: list[str] | None) -> type | None:
    if name is None:
        return None
    module, within = name
    found = getattr(import_module(module), within)
    if not (isinstance(found, type) and issubclass(found, tuple)):
        raise ValueError(f"{within} of {module} is no named tuple")
    return found


def _values_of_dtype(dtype: np.dtype[Any]) -> Any:
    if dtype.subdtype is not None:
        item, shape = dtype.subdtype
        return [PART, _values_of_dtype(item), shape]
    if dtype.names is None or dtype.fields is None:
        return dtype.str
    fields = [(name, dtype.fields[name]) for name in dtype.names]
    columns = [[name, _values_of_dtype(field[0]), field[1]] for name, field in fields]
    return [RECORD, columns, dtype.itemsize, dtype.isalignedstruct, dtype.type is np.record]


def _dtype_from(value: Any) -> np.dtype[Any]:
    match value:
        case [str() as kind, item, shape] if kind == PART:
            return np.dtype((_dtype_from(item), tuple(shape)))
        case [str() as kind, columns, size, is_aligned, is_record] if kind == RECORD:
            names, formats, offsets = zip(*columns, strict=True)
            description: Any = {
                "names": list(names),
                "formats": [_dtype_from(each) for each in formats],
                "offsets": list(offsets),
                "itemsize": size,
            }
            plain: np.dtype[Any] = np.dtype(description, align=is_aligned)
            return np.dtype((np.record, plain)) if is_record else plain
        case str():
            return np.dtype(value)
    raise ValueError(f"{value!r} is no type of an array")
