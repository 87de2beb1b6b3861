"""Machine code that Python can call, without Numba.

Not here: where it comes from (`store`, `build`), and putting it into memory (`placed`, `llvm`).
"""

from __future__ import annotations

import ctypes
from typing import Any

from et_sim.compiled.placed import placed
from et_sim.compiled.signature import word_types, words_of


class Native:
    """A compiled entry function."""

    def __init__(self, symbol: str, returns: bool, content: bytes, signature: tuple[Any, ...]) -> None:
        self._code = placed(content) or _placed_by_llvm(content)
        address = self._code.address(symbol)
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


def _placed_by_llvm(content: bytes) -> Any:
    from et_sim.compiled.llvm import PlacedByLlvm

    return PlacedByLlvm(content)
