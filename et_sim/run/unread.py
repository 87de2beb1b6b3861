"""Machines with figures that no function can read, to prove that a result does not depend on them.

`merged` gives the machine that several machines have in common: where their figures differ, it holds an
`Unread`. A function that returns on this machine has not read these figures, so it returns the same on each
of the machines. If it reads one of them, `FigureReadError` ends it.

Only numbers, texts and containers become unreadable. Nothing can refuse `x is None`, `x is True` and
comparisons with members of an enumeration, so machines that differ there have nothing in common.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

UNREADABLE = (float, int, str, tuple, list, dict, np.ndarray)  # these very types, without their subclasses


class FigureReadError(BaseException):
    """A read of a figure that is unreadable; no handler of other errors may take it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class DifferentError(Exception):
    """Machines that have no machine in common."""


class Unread:
    """A figure that cannot be read; `note` takes its path first, because numpy replaces errors by its own."""

    __slots__ = ("_note", "_path")

    def __init__(self, path: str, note: Callable[[str], object]) -> None:
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_note", note)

    def __getattribute__(self, name: str) -> NoReturn:
        _refuse(self)


def _refuse(figure: Unread, *_: object, **__: object) -> NoReturn:
    path = object.__getattribute__(figure, "_path")
    object.__getattribute__(figure, "_note")(path)
    raise FigureReadError(path)


_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "and", "or", "xor", "lshift")
_OTHER = (
    *("eq", "ne", "lt", "le", "gt", "ge", "hash", "bool", "len", "iter", "next", "contains", "getitem"),
    *("int", "float", "index", "complex", "round", "trunc", "floor", "ceil", "neg", "pos", "abs", "invert"),
    *("str", "repr", "format", "bytes", "fspath", "call", "reduce_ex", "rshift", "rrshift", "matmul"),
    *("rmatmul", "array", "array_ufunc", "reversed", "length_hint", "enter", "exit", "dir", "sizeof"),
    *("setattr", "delattr", "setitem", "delitem", "iadd", "ior"),
)
for _name in (*_OTHER, *_BINARY, *(f"r{name}" for name in _BINARY)):
    setattr(Unread, f"__{_name}__", _refuse)


class Reads:
    """The reads of unreadable figures: the paths of the figures, and how many reads there were."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.count = 0

    def note(self, path: str) -> None:
        """Count a read."""
        self.paths.add(path)
        self.count += 1


def merged(first: Any, second: Any, reads: Reads, path: str = "") -> Any:
    """Return the common part of two values; it is `first` itself if `second` fits it.

    Figures that were read must be equal. Raise `DifferentError` if there is no common part.
    """
    if first is second:
        return first
    kind, other = type(first), type(second)
    if kind is Unread:
        if other in UNREADABLE or other is Unread:
            return first
        raise DifferentError(path)
    if kind is other:
        found = _merged_parts(first, second, reads, path)
        if found is not None:
            return found
    if kind in UNREADABLE and other in UNREADABLE and path not in reads.paths:
        return Unread(path, reads.note)
    raise DifferentError(path)


def _merged_parts(first: Any, second: Any, reads: Reads, path: str) -> Any:
    """Return the common part of two values of one type; None if they only differ as wholes."""
    kind = type(first)
    if issubclass(kind, Struct):
        changed = {}
        for name in kind.__struct_fields__:
            mine, theirs = getattr(first, name), getattr(second, name)
            if mine is not theirs and (part := merged(mine, theirs, reads, f"{path}.{name}")) is not mine:
                changed[name] = part
        return replace(first, **changed) if changed else first
    if kind is tuple and len(first) == len(second):
        parts = [
            merged(mine, theirs, reads, f"{path}[{at}]")
            for at, (mine, theirs) in enumerate(zip(first, second, strict=True))
        ]
        return first if all(map(_is, parts, first)) else tuple(parts)
    if kind is dict and first.keys() == second.keys() and list(first) == list(second):
        found = {key: merged(first[key], second[key], reads, f"{path}[{key!r}]") for key in first}
        return first if all(found[key] is first[key] for key in first) else found
    if kind is np.ndarray:
        is_same = first.dtype == second.dtype and np.array_equal(first, second)
        return first if is_same else None
    return first if first == second else None


def _is(first: object, second: object) -> bool:
    return first is second
