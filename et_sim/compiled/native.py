"""Machine code that Python can call, without Numba.

Not here: where it comes from (`store`, `build`).
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from typing import Any

import llvmlite.binding as llvm

from et_sim.compiled.signature import word_types, words_of


class Native:
    """A compiled entry function."""

    def __init__(self, symbol: str, returns: bool, content: bytes, signature: tuple[Any, ...]) -> None:
        self._engine = _engine()  # owns the code
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(content))
        self._engine.finalize_object()
        address = self._engine.get_function_address(symbol)
        if not address:
            raise ValueError(f"there is no {symbol} in it")
        types = [ctypes.c_void_p, ctypes.c_void_p, *word_types(signature)]
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(address)
        self._returns = returns

    def __call__(self, *arguments: Any) -> Any:
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        words, alive = words_of(arguments)
        status = self._call(ctypes.addressof(result), ctypes.addressof(error), *words)
        del alive
        if status:  # compiled with NUMBA_BOUNDSCHECK only: nothing else raises errors
            raise IndexError("compiled code left the bounds of an array; ET_SIM_COMPILE=never shows where")
        return result.value if self._returns else None


def bitcode(text: str) -> bytes:
    """LLVM's intermediate code, as it is kept for other machines."""
    kept: bytes = llvm.parse_assembly(text).as_bitcode()
    return kept


def object_code(code: bytes) -> bytes:
    """Machine code for this processor, of bitcode; what it calls must be in it, or in C's library."""
    module = llvm.parse_bitcode(code)
    library = ctypes.CDLL(None)
    called = [function.name for function in module.functions if function.is_declaration]
    missing = [name for name in called if not (name.startswith("llvm.") or hasattr(library, name))]
    if missing:
        raise ValueError(f"the code calls {missing[0]}, which is not there without Numba")
    content: bytes = _target().emit_object(module)
    return content


def _engine() -> Any:
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())


def _target() -> Any:
    """This processor, with all it can do."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=os.environ.get("NUMBA_CPU_NAME") or _host()[0],
        features=os.environ.get("NUMBA_CPU_FEATURES") or _host()[1],
        opt=3,
        reloc="static" if platform.machine() in ("x86_64", "AMD64", "i386", "i686") else "default",
        codemodel="jitdefault",
        jit=True,
    )


@functools.cache
def _host() -> tuple[str, str]:
    """Name and features of this processor."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def processor() -> str:
    """What the machine code of this host may use."""
    return " ".join(_host())
