"""The inside of Numba: the only module that imports its parts that are not public, or replaces them.

Other modules import Numba's public names (`numba`, `numba.extending`), and the names below from here. A new
version may lack some of these. Then the modules that need them cannot be imported, and `build` compiles with
public Numba alone, for which only the names before the `try` have to be there.
"""
# ruff: noqa: F401 - other modules import these names from here

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from numba.core.typing.templates import AttributeTemplate

try:
    from numba import _dynfunc
    from numba.core import (
        base,
        cgutils,
        errors,
        event,
        interpreter,
        ir,
        lowering,
        postproc,
        transforms,
        typeinfer,
    )
    from numba.core.bytecode import ByteCode, FunctionIdentity
    from numba.core.callconv import CPUCallConv
    from numba.core.compiler import CompilerBase, DefaultPassBuilder
    from numba.core.compiler_machinery import PassManager, register_pass
    from numba.core.cpu import CPUContext
    from numba.core.interpreter import Interpreter
    from numba.core.ir_utils import build_definitions
    from numba.core.registry import cpu_target
    from numba.core.typed_passes import NativeLowering
    from numba.core.types.functions import BaseFunction
    from numba.core.untyped_passes import TranslateByteCode
    from numba.np import arrayobj
except ImportError as error:
    LACKING = str(error)
else:
    LACKING = ""


@contextmanager
def replaced(place: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a module or class of Numba within the context."""
    getattr(place, name)  # raises if this version of Numba has no such interface
    with patch.object(place, name, value):
        yield


def replace_methods(of: Any, **methods: Any) -> None:
    """Replace methods of an object of Numba; raise AttributeError if this version does not have them."""
    for name, method in methods.items():
        getattr(of, name)
        setattr(of, name, method)


def code_of(dispatcher: Any, kinds: tuple[Any, ...]) -> tuple[Any, str, str]:
    """Return the type of the result of a compiled function, its symbol, and its intermediate code."""
    compiled = dispatcher.overloads[kinds]
    return compiled.signature.return_type, compiled.fndesc.llvm_func_name, compiled.library.get_llvm_str()
