"""Marks of helpers that can be compiled: functions that compiled functions call.

`compiled` marks one that is compiled for the types it is called with; `works_on_tables` one that takes
`Tables`, and is compiled once, with all its integers 64 bits wide. Both return the function as it is, so that
everything runs interpreted, too. Marked functions create no arrays, nor anything else on the heap.

Nothing here imports Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, ParamSpec, TypeVar, overload

from msgspec import Struct

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
MARK = "__compiled_as__"


class Mark(Struct, frozen=True):
    """The way in which a helper is compiled."""

    is_wide: bool = False  # every integer argument has 64 bits, so that it is compiled once
    is_inlined: bool = False


class Later:
    """A function by name, whose module is imported when it is called: machine code does not need it."""

    def __init__(self, module: str, name: str) -> None:
        self.__module__, self.__name__, self.__qualname__ = module, name, name

    @property
    def function(self) -> Callable[..., Any]:
        """Return the function."""
        found: Callable[..., Any] = getattr(import_module(self.__module__), self.__name__)
        return found

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        return self.function(*arguments)


class HelperChoice(Struct, frozen=True):
    """A choice among several helpers, by the module of the tables in the first argument."""

    field: str  # of the first argument, or empty: the argument itself
    function_of: Callable[[str], Callable[..., Any]]

    def stands_for(self, module: str) -> bool:
        """Return whether there is a function for tables of a module."""
        with suppress(TypeError):
            return self.function_of(module) is not None
        return False


@overload
def compiled(function: Callable[Parameters, Result], /) -> Callable[Parameters, Result]: ...
@overload
def compiled(
    *, forceinline: bool
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]: ...
def compiled(function: Any = None, /, *, forceinline: bool = False) -> Any:
    """Mark a helper, which is compiled for the types it is called with."""
    if function is None:
        return lambda helper: _marked(helper, Mark(is_inlined=forceinline))
    return _marked(function, Mark())


@overload
def works_on_tables(function: Callable[Parameters, Result], /) -> Callable[Parameters, Result]: ...
@overload
def works_on_tables(
    *, forceinline: bool
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]: ...
def works_on_tables(function: Any = None, /, *, forceinline: bool = False) -> Any:
    """Mark a helper of an entry function that takes `Tables`."""
    if function is None:
        return lambda helper: _marked(helper, Mark(is_wide=True, is_inlined=forceinline))
    return _marked(function, Mark(is_wide=True))


def prefetch(_pool: Any, _row: int) -> None:
    """Fetch a row of a pool into the cache in compiled code; interpreted, do nothing."""


setattr(prefetch, MARK, Mark(is_wide=True))


def mark_of(function: Any) -> Mark | HelperChoice | None:
    """Return the mark of a function that can be compiled as a helper, or None."""
    return getattr(function, MARK, None)


def _marked(function: Callable[Parameters, Result], mark: Mark) -> Callable[Parameters, Result]:
    setattr(function, MARK, mark)
    return function
