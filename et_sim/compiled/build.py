"""From a marked function and a signature to machine code: everything that imports Numba."""

from __future__ import annotations

import functools
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from types import FunctionType
from typing import Any

from msgspec import Struct
from numba import from_dtype, njit, types
from numba.extending import typeof_impl

from et_sim.compiled.decorators import HelperChoice, Mark, mark_of
from et_sim.compiled.llvm import bitcode, object_code
from et_sim.compiled.numba_adapter import LACKING, code_of, replace_methods
from et_sim.compiled.numba_version import unchecked_version
from et_sim.compiled.signature import REAL, ArrayKind, TablesKind, TupleKind
from et_sim.compiled.tables_type import TablesType

HELPERS_SHARE = 0.57  # of the time, for helpers one by one; the rest is for all of them together
OPTIONS = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy", "_nrt": False}
_LEAN: ContextVar[Any] = ContextVar("lean", default=None)


class MachineCode(Struct, frozen=True):
    """An entry function, compiled for one signature."""

    symbol: str
    returns: bool  # a number, or nothing
    bitcode: bytes
    content: bytes  # an object file for this processor
    public_reason: str  # that it was compiled by public Numba alone; empty: it was not


def build(
    function: Callable[..., Any], signature: tuple[Any, ...], report: Callable[[float], None] = lambda _: None
) -> MachineCode:
    """Compile a function that Python calls; `report` gets the completed share.

    Public Numba compiles, which takes several times as long, if its version is not checked, or its inside
    lacks something that `compile_once` needs.
    """
    reason = unchecked_version()
    if not reason:
        try:
            return _built(function, signature, _lean_compilers(), report)
        except Exception as error:  # an error of the function itself is raised again, in more detail
            sys.stderr.write(traceback.format_exc())
            reason = f"et-sim's own compiler fails: {type(error).__name__}: {error}"
    return _built(function, signature, None, report, reason)


def _lean_compilers() -> Any:
    if LACKING:
        raise ImportError(LACKING)
    from et_sim.compiled import compile_once

    return compile_once


def _built(
    function: Callable[..., Any],
    signature: tuple[Any, ...],
    lean: Any,
    report: Callable[[float], None],
    public_reason: str = "",
) -> MachineCode:
    """Compile with the compilers of `compile_once`, or with Numba's own if there are none."""
    kinds = tuple(_type_of(kind) for kind in signature)
    token = _LEAN.set(lean)
    try:
        if lean is None:
            dispatcher = njit(**OPTIONS)(function)
            dispatcher.compile(kinds)
        else:
            dispatcher = njit(pipeline_class=lean.EntryCompiler, **OPTIONS)(function)
            with lean.compiling_once(function, kinds, lambda share: report(HELPERS_SHARE * share)):
                dispatcher.compile(kinds)
    finally:
        _LEAN.reset(token)
    returned, symbol, text = code_of(dispatcher, kinds)
    if returned not in (types.none, types.int64):
        raise TypeError(f"{function.__qualname__} returns {returned}, not a number of 64 bits or nothing")
    code = bitcode(text)
    return MachineCode(symbol, returned == types.int64, code, object_code(code), public_reason)


def _type_of(kind: Any) -> types.Type:
    if isinstance(kind, ArrayKind):
        item = from_dtype(kind.dtype)
        readonly = not kind.is_writeable
        return types.Array(item, kind.dimensions, kind.layout, readonly=readonly, aligned=kind.is_aligned)
    if isinstance(kind, TablesKind):
        return TablesType(
            kind.module, kind.name, tuple((name, _type_of(field)) for name, field in kind.fields)
        )
    if isinstance(kind, TupleKind):
        items = [_type_of(item) for item in kind.items]
        return types.BaseTuple.from_types(items, kind.made_by)
    return types.float64 if kind == REAL else types.int64


@typeof_impl.register(FunctionType)
def _type_of_function(value: Any, _context: Any) -> types.Type | None:
    """Return the type by which a marked function is called in its compiled form."""
    helper = _helper_of(value)
    return None if helper is None else types.Dispatcher(helper)


def _helper_of(function: Any) -> Any:
    mark = mark_of(function)
    if isinstance(mark, HelperChoice):
        return _stand_in(function, mark)
    return None if mark is None else _helper(function, mark, _LEAN.get())


@functools.cache
def _helper(function: Callable[..., Any], mark: Mark, lean: Any) -> Any:
    options: dict[str, Any] = {**OPTIONS, "forceinline": True} if mark.is_inlined else dict(OPTIONS)
    if lean is not None:
        options["pipeline_class"] = lean.HelperCompiler
    helper: Any = njit(**options)(function)
    replace_methods(helper, get_call_template=_PlainArguments(helper, mark.is_wide))
    return helper


@functools.cache
def _stand_in(function: Callable[..., Any], choice: HelperChoice) -> Any:
    """Return a dispatcher that passes Numba's requests on to the chosen helper; it is never compiled."""

    def chosen(arguments: Any) -> Any:
        kind = arguments[0].fields[choice.field] if choice.field else arguments[0]
        return _helper_of(choice.function_of(kind.module))

    stand_in: Any = njit(function)
    replace_methods(
        stand_in,
        get_call_template=lambda given, named: chosen(given).get_call_template(given, named),
        get_overload=lambda arguments: chosen(arguments).get_overload(arguments),
    )
    return stand_in


class _PlainArguments:
    """A resolver of calls of one helper, with constants as numbers, and wide numbers with 64 bits."""

    def __init__(self, helper: Any, is_wide: bool) -> None:
        self._resolve = helper.get_call_template
        self._is_wide = is_wide

    def __call__(self, arguments: Any, keywords: Any) -> Any:
        plain = tuple(self._plain(argument) for argument in arguments)
        return self._resolve(plain, {name: self._plain(kind) for name, kind in keywords.items()})

    def _plain(self, kind: Any) -> Any:
        plain = types.unliteral(kind)
        return types.int64 if self._is_wide and isinstance(plain, types.Integer) else plain
