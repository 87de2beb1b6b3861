"""The signature of a call's arguments for machine code, and the arguments as machine words.

A signature holds for every argument what Numba needs: for an array its records, dimensions and layout, for
`Tables` and tuples their parts. Code is compiled for one signature. Its words are pointers and 64-bit
numbers, as Numba lays out arrays.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from typing import Any, NamedTuple

import numpy as np

from et_sim.compiled.tables_by_reference import Tables


class ArrayKind(NamedTuple):
    """An array."""

    dtype: np.dtype[Any]
    dimensions: int
    layout: str
    is_writeable: bool
    is_aligned: bool


class TablesKind(NamedTuple):
    """A record of `Tables`."""

    module: str
    name: str
    fields: tuple[tuple[str, Any], ...]


class TupleKind(NamedTuple):
    """A tuple, with the class of a named one."""

    made_by: type | None
    items: tuple[Any, ...]


INTEGER, REAL = "integer", "real"
_HEAD = object.__basicsize__  # bytes of an object before its first field


def signature_of(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the kinds of the arguments of a call."""
    return tuple(_kind_of(argument) for argument in arguments)


def words_of(arguments: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """Return the arguments as machine words, and the objects that must stay alive while they are used."""
    words: list[Any] = []
    alive: list[Any] = []
    for argument in arguments:
        _add_words(argument, words, alive)
    return words, alive


def reference_to(first: Any) -> Any:
    """Return a weak reference to tables that a call begins with; None if there can be none.

    The arrays of tables cannot be exchanged: the same tables have the same signature and words.
    """
    try:
        return weakref.ref(first) if isinstance(first, Tables) else None
    except TypeError:
        return None


def is_same_call(reference: Any, arguments: tuple[Any, ...]) -> bool:
    """Return whether a call begins with the tables of a reference, and has only integers besides."""
    if reference is None or reference() is not arguments[0]:
        return False
    return all(type(argument) is int for argument in arguments[1:])


def word_types(signature: tuple[Any, ...]) -> list[Any]:
    """Return the C type of every word of such arguments."""
    found: list[Any] = []
    for kind in signature:
        if isinstance(kind, ArrayKind):
            found += [ctypes.c_int64] * (5 + 2 * kind.dimensions)
        elif isinstance(kind, TupleKind):
            found += word_types(kind.items)
        else:
            found.append(ctypes.c_double if kind == REAL else ctypes.c_int64)
    return found


def modules_of(signature: tuple[Any, ...]) -> set[str]:
    """Return the modules of all records of `Tables` in a signature."""
    found: set[str] = set()
    left: list[Any] = list(signature)
    while left:
        kind = left.pop()
        if isinstance(kind, TablesKind):
            found.add(kind.module)
            left += (field for _, field in kind.fields)
        elif isinstance(kind, TupleKind):
            left += kind.items
    return found


@functools.cache
def fields_of(made_by: Any) -> tuple[str, ...]:
    """Return the names of the fields of a record of `Tables`, in order."""
    return tuple(made_by.__match_args__)


def _kind_of(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        plain = np.ndarray.view(value, np.ndarray)  # record arrays search attributes among their fields
        flags = plain.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return ArrayKind(plain.dtype, plain.ndim, layout, flags.writeable, flags.aligned)
    if isinstance(value, Tables):
        tables: Any = type(value)
        fields = [(name, _kind_of(getattr(value, name))) for name in fields_of(tables)]
        return TablesKind(tables.__module__, tables.__name__, tuple(fields))
    if isinstance(value, tuple):
        made_by = type(value) if hasattr(value, "_fields") else None
        return TupleKind(made_by, tuple(_kind_of(item) for item in value))
    if isinstance(value, bool | int | np.integer | np.bool_):
        return INTEGER
    if isinstance(value, float | np.floating):
        return REAL
    raise TypeError(f"compiled code takes no {type(value).__name__}")


def address_of(array: Any) -> int:
    """Return where the content of an array begins.

    It is the first field of the record that extensions in C read; NumPy makes an object to return it, which
    takes forty times as long.
    """
    return ctypes.c_void_p.from_address(id(array) + _HEAD).value or 0


def _add_words(value: Any, words: list[Any], alive: list[Any]) -> None:
    if isinstance(value, np.ndarray):
        plain = np.ndarray.view(value, np.ndarray)
        words += (0, 0, plain.size, plain.itemsize, address_of(plain), *plain.shape, *plain.strides)
    elif isinstance(value, Tables):
        described: list[int] = []
        tables: Any = type(value)
        for name in fields_of(tables):
            _add_words(getattr(value, name), described, alive)
        descriptors = (ctypes.c_int64 * len(described))(*described)
        alive.append(descriptors)
        words.append(ctypes.addressof(descriptors))
    elif isinstance(value, tuple):
        for item in value:
            _add_words(item, words, alive)
    else:
        words.append(float(value) if isinstance(value, float | np.floating) else int(value))
