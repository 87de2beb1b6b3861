"""Records of arrays that compiled functions take as one pointer.

A frozen record that derives from `Tables` holds arrays (or further `Tables`) and is passed to compiled
code as the address of their descriptors: passing it on costs one machine word, for any number of arrays, and
compiling a function that takes it costs little. The arrays cannot be exchanged while compiled code runs, only
their contents.

Where several records represent the same thing in different ways (network models, fabrics), a function
marked `chosen_by_tables` stands for the functions of one name in the modules of these records: the type
of the tables determines the function when the caller is compiled.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from et_sim.compiled.decorators import MARK, HelperChoice, Later, works_on_tables

__all__ = ["Tables", "chosen_by_tables", "in_module", "works_on_tables"]


class Tables:
    """The base of records of arrays, Structs or dataclasses, that compiled code takes by reference."""

    __slots__ = ()


def chosen_by_tables(name: str, field: str = "", default: Callable[..., Any] | None = None) -> Any:
    """Return a function that stands for the functions `name` in the modules of all `Tables` records.

    Its first argument is such a record, or has one as `field`. A module may name one that is elsewhere
    (`Later`); `default` is for modules without it.
    """
    chosen = functools.cache(functools.partial(_function_of, name=name, default=default))

    def called_by_python(first: Any, *others: Any) -> Any:
        tables = getattr(first, field) if field else first
        return chosen(type(tables).__module__)(first, *others)

    setattr(called_by_python, MARK, HelperChoice(field, chosen))
    return called_by_python


def in_module(module: str, name: str, default: Callable[..., Any] | None = None) -> Any:
    """Return a function of a module that is imported when the function is called, or compiled."""
    found = functools.cache(functools.partial(_function_of, module, name, default))

    def called_by_python(*arguments: Any) -> Any:
        return found()(*arguments)

    setattr(called_by_python, MARK, HelperChoice("", lambda _: found()))
    return called_by_python


def _function_of(module: str, name: str, default: Callable[..., Any] | None) -> Any:
    found = getattr(importlib.import_module(module), name, default)
    if isinstance(found, Later):
        return found.function
    if found is None:
        raise TypeError(f"{module} has no function {name!r}")
    return found
