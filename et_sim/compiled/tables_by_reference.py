"""Lets compiled functions take a dataclass of arrays as one pointer.

A frozen dataclass that derives from `Tables` holds arrays (or further `Tables`) and is handed to
compiled code as the address of their descriptors: passing it on costs one machine word, however many
arrays it has, and compiling a function that takes it costs little. The arrays cannot be exchanged while
compiled code runs, only their contents.

Functions that take `Tables` are marked `works_on_tables` (called by compiled code) or `entry_on_tables`
(called by Python). They are compiled without reference counting, and once: all their integer arguments
are 64 bits wide, whatever width the field had that a caller read them from.

Where several dataclasses stand for the same thing in different ways (network models, fabrics), a function
marked `chosen_by_tables` stands for the functions of one name in the modules of these dataclasses: which of
them is meant follows from the type of the tables, when the caller is compiled.

Not here: which arrays there are (`engine.state`, `network.analytical`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils, config
from numba.core.typing.templates import AttributeTemplate
from numba.core.typing.typeof import typeof
from numba.extending import (
    NativeValue,
    infer_getattr,
    lower_getattr_generic,
    models,
    register_model,
    typeof_impl,
    unbox,
)

from et_sim.compiled.compile_once import HelperCompiler
from et_sim.compiled.decorators import entry

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def works_on_tables(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a helper that only compiled code calls."""
    if config.DISABLE_JIT:
        return function
    # Nobody but compiled code calls a helper, so it needs no wrapper for Python or C.
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "error_model": "numpy"}
    helper: Any = njit(_nrt=False, pipeline_class=HelperCompiler, **options)(function)
    helper.get_call_template = _WideIntegers(helper)
    return helper  # type: ignore[no-any-return]


def entry_on_tables(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Compile a function that Python calls, and keep its machine code on disk."""
    return entry(allocates=False, error_model="numpy")(function)


def chosen_by_tables(name: str, field: str = "", default: Callable[..., Any] | None = None) -> Any:
    """A function that stands for all functions `name` in the modules of dataclasses derived from `Tables`.

    Its first argument is of such a dataclass, or has one as `field`. `default` is for modules without it.
    """

    def called_by_python(first: Any, *others: Any) -> Any:
        tables = getattr(first, field) if field else first
        return _function_of(type(tables).__module__, name, default)(first, *others)

    if config.DISABLE_JIT:
        return called_by_python

    def chosen(arguments: Any) -> Any:
        kind = dict(arguments[0].fields)[field] if field else arguments[0]
        return _function_of(kind.module, name, default)

    # Numba asks these two of whatever is called; the stand-in itself is never compiled.
    stand_in: Any = njit(called_by_python)
    stand_in.get_call_template = lambda given, named: chosen(given).get_call_template(given, named)
    stand_in.get_overload = lambda arguments: chosen(arguments).get_overload(arguments)
    return stand_in


def _function_of(module: str, name: str, default: Callable[..., Any] | None) -> Any:
    found = getattr(importlib.import_module(module), name, default)
    if found is None:
        raise TypeError(f"{module} has no function {name!r}")
    return found


class _WideIntegers:
    """Resolves calls of one helper with every integer argument taken as 64 bits wide."""

    def __init__(self, helper: Any) -> None:
        self._resolve = helper.get_call_template

    def __call__(self, arguments: Any, keywords: Any) -> Any:
        wide = tuple(self._widen(argument) for argument in arguments)
        return self._resolve(wide, {name: self._widen(kind) for name, kind in keywords.items()})

    @staticmethod
    def _widen(kind: Any) -> Any:
        plain = types.unliteral(kind)
        return types.int64 if isinstance(plain, types.Integer) else plain


class Tables:
    """Base of dataclasses of arrays that compiled code takes by reference."""

    __slots__ = ()


class TablesType(types.Type):
    """The compiled type of one dataclass with certain array types."""

    def __init__(self, module: str, name: str, fields: tuple[tuple[str, types.Type], ...]) -> None:
        self.module, self.fields = module, fields
        described = ", ".join(f"{field}: {kind}" for field, kind in fields)
        super().__init__(name=f"{module}{_edition(module)}.{name}({described})")

    def index(self, field: str) -> int:
        """Position of a field; raises ValueError for an unknown one."""
        return [name for name, _ in self.fields].index(field)


@typeof_impl.register(Tables)
def _type_of_tables(value: Any, _context: Any) -> TablesType:
    fields = tuple((f.name, typeof(getattr(value, f.name))) for f in dataclasses.fields(value))
    return TablesType(type(value).__module__, type(value).__name__, fields)


def _edition(module: str) -> str:
    """Tells machine code of one edition of a module from another's; of our own, the cache takes care."""
    source = getattr(importlib.import_module(module), "__file__", None)
    if source is None or module.partition(".")[0] == __name__.partition(".")[0]:
        return ""
    return f"#{hashlib.sha256(Path(source).read_bytes()).hexdigest()[:16]}"


@register_model(TablesType)
class _TablesModel(models.OpaqueModel):
    """A bare pointer."""


def _descriptors(context: Any, kind: TablesType) -> ir.Type:
    return ir.LiteralStructType([context.get_value_type(field) for _, field in kind.fields])


@unbox(TablesType)
def _unbox_tables(kind: TablesType, value: Any, c: Any) -> NativeValue:
    """Collect the array descriptors in the caller's frame, which outlives the call."""
    place = cgutils.alloca_once(c.builder, _descriptors(c.context, kind))
    failed = cgutils.false_bit
    for index, (name, field) in enumerate(kind.fields):
        attribute = c.pyapi.object_getattr_string(value, name)
        native = c.unbox(field, attribute)
        failed = c.builder.or_(failed, native.is_error)
        c.builder.store(native.value, cgutils.gep_inbounds(c.builder, place, 0, index))
        c.pyapi.decref(attribute)
    return NativeValue(c.builder.bitcast(place, cgutils.voidptr_t), is_error=failed)


@infer_getattr
class _TablesAttribute(AttributeTemplate):
    key = TablesType

    def generic_resolve(self, kind: TablesType, attribute: str) -> types.Type | None:
        return dict(kind.fields).get(attribute)


@lower_getattr_generic(TablesType)
def _load_field(context: Any, builder: Any, kind: TablesType, value: Any, attribute: str) -> Any:
    place = builder.bitcast(value, _descriptors(context, kind).as_pointer())
    loaded = builder.load(cgutils.gep_inbounds(builder, place, 0, kind.index(attribute)))
    loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
    return loaded
