"""Calls between compiled functions: their arguments and their result.

Numba's functions return a status, and write their result where the caller wants it. A helper cannot fail, so
it returns the result itself, which LLVM keeps in a register. Only checks of bounds (NUMBA_BOUNDSCHECK) ever
end one with an error; with them, helpers are called as Numba does.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from et_sim.compiled.numba_adapter import CPUCallConv, cgutils


class LeanCalls(CPUCallConv):
    """Calls as in Numba, and plain calls of helpers."""

    def get_arguments(self, function: Any) -> Any:
        """Return the arguments of a function."""
        return function.args if _is_plain(function) else super().get_arguments(function)

    def return_value(self, builder: Any, result: Any) -> None:
        """Return from a function."""
        if not _is_plain(builder.function):
            super().return_value(builder, result)
        elif isinstance(_returned(builder.function), ir.VoidType):
            builder.ret_void()
        else:
            builder.ret(result)

    def return_user_exc(self, builder: Any, *arguments: Any, **named: Any) -> None:
        """Return an error, which helpers never have."""
        if _is_plain(builder.function):
            builder.unreachable()
        else:
            super().return_user_exc(builder, *arguments, **named)

    def return_status_propagate(self, builder: Any, status: Any) -> None:
        """Return the error of a called function, which helpers never have."""
        if _is_plain(builder.function):
            builder.unreachable()
        else:
            super().return_status_propagate(builder, status)


def declared(context: Any, module: Any, description: Any) -> Any:
    """Return a helper as it is declared in a module."""
    result = context.data_model_manager[description.restype].get_return_type()
    if description.restype == types.none:
        result = ir.VoidType()
    arguments = context.get_arg_packer(description.argtypes).argument_types
    kind = ir.FunctionType(result, list(arguments))
    function = cgutils.get_or_insert_function(module, kind, description.mangled_name)
    function.is_plain = True
    if description.inline:
        function.attributes.add("alwaysinline")
    return function


def called(context: Any, builder: Any, description: Any, arguments: Any) -> Any:
    """Return the result of calling a helper."""
    function = declared(context, builder.module, description)
    packed = context.get_arg_packer(description.argtypes).as_arguments(builder, arguments)
    result = builder.call(function, packed)
    if description.restype == types.none:
        return context.get_dummy_value()
    return context.get_returned_value(builder, description.restype, result)


def _is_plain(function: Any) -> bool:
    return getattr(function, "is_plain", False)


def _returned(function: Any) -> Any:
    return function.function_type.return_type
