"""Uses of LLVM: bitcode, machine code made of it, and machine code in memory if `placed` does not support it.

Importing LLVM takes a tenth of a short run.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from typing import Any

import llvmlite.binding as llvm


class PlacedByLlvm:
    """Machine code in memory, for as long as this object lives."""

    def __init__(self, content: bytes) -> None:
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(content))
        self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        """Return the address of a function; 0 if there is none."""
        found: int = self._engine.get_function_address(symbol)
        return found


def bitcode(text: str) -> bytes:
    """Return LLVM's intermediate code, as it is kept for other machines."""
    kept: bytes = llvm.parse_assembly(text).as_bitcode()
    return kept


def object_code(code: bytes) -> bytes:
    """Return machine code for this processor; functions it calls are in the bitcode, or C's library."""
    module, target = llvm.parse_bitcode(code), _target()
    called = [function.name for function in module.functions if function.is_declaration]
    missing = [name for name in called if not _is_anywhere(name)]
    if missing:
        raise ValueError(f"the code calls {missing[0]}, which is not there without Numba")
    module.triple, module.data_layout = (
        target.triple,
        str(target.target_data),
    )  # perhaps of another system
    content: bytes = target.emit_object(module)
    return content


def _is_anywhere(function: str) -> bool:
    """Return whether a function is an intrinsic of all processors, or in C's library."""
    if function.startswith("llvm."):
        return not function.startswith(("llvm.x86.", "llvm.aarch64."))
    return hasattr(ctypes.CDLL(None), function)


def _target() -> Any:
    """Return this processor as a target, with all its features."""
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
    """Return name and features of this processor."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def processor() -> str:
    """Return the features that the machine code of this host may use."""
    return " ".join(_host())
