"""Machine code that Python can call, without Numba; and loading of an object file without LLVM.

Loading LLVM takes a tenth of a short run. It is not needed for the files that it writes for x86-64 and Linux
in its large code model: every place that depends on the address of the code is a 64-bit address. The file is
copied as a whole; its sections stay where they are. LLVM loads all other object files (`llvm`).
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from et_sim.compiled.signature import is_same_call, reference_to, word_types, words_of

HEAD = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
RELOCATION = struct.Struct("<QQq")
ADDRESS = struct.Struct("<Q")
ELF_64_LITTLE, X86_64 = b"\x7fELF\x02\x01", 62
SYMBOLS, RELOCATIONS, NO_BITS = 2, 4, 8  # kinds of sections
WRITABLE, IN_MEMORY = 1, 2  # flags of sections
UNDEFINED, RESERVED = 0, 0xFF00  # in place of a symbol's section
WHOLE_ADDRESS = 1  # the kind of relocation


class _Section(Struct, frozen=True):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class _OtherError(Exception):
    """An object file of another kind."""


class Placed:
    """Machine code in memory, for as long as this object lives."""

    def __init__(self, content: bytes) -> None:
        sections = _sections(content)
        self._memory = mmap.mmap(-1, len(content), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.write(content)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        places = [section.offset for section in sections]
        library = ctypes.CDLL(None)
        self._addresses: dict[str, int] = {}
        addresses: list[int | None] = []
        for name, section, value in _symbols(content, sections):
            if section == UNDEFINED:
                addresses.append(ctypes.cast(getattr(library, name), ctypes.c_void_p).value if name else None)
            elif section < RESERVED:
                self._addresses[name] = base + places[section] + value
                addresses.append(self._addresses[name])
            else:
                addresses.append(None)  # the name of a source file, for example
        for place, symbol, addend in _open_places(content, sections):
            address = addresses[symbol]
            if address is None:
                raise _OtherError
            ADDRESS.pack_into(self._memory, place, address + addend)
        if library.mprotect(
            ctypes.c_void_p(base), ctypes.c_size_t(len(content)), mmap.PROT_READ | mmap.PROT_EXEC
        ):
            raise _OtherError

    def address(self, symbol: str) -> int:
        """Return the address of a function; 0 if there is none."""
        return self._addresses.get(symbol, 0)


def placed(content: bytes) -> Placed | None:
    """Load an object file into memory; return None if it is of another kind."""
    if not content.startswith(ELF_64_LITTLE):
        return None
    try:
        return Placed(content)
    except (_OtherError, AttributeError, IndexError, OSError, struct.error):
        return None


def _sections(content: bytes) -> list[_Section]:
    head = HEAD.unpack_from(content)
    if head[2] != X86_64:
        raise _OtherError
    first, count = head[6], head[12]
    found = [_Section(*SECTION.unpack_from(content, first + row * SECTION.size)) for row in range(count)]
    for section in found:
        if section.flags & IN_MEMORY and section.size:
            is_aligned = section.offset % (section.alignment or 1) == 0
            if section.kind == NO_BITS or section.flags & WRITABLE or not is_aligned:
                raise _OtherError
    return found


def _symbols(content: bytes, sections: list[_Section]) -> Iterator[tuple[str, int, int]]:
    """Yield name, section, and offset in it, of every symbol."""
    for table in sections:
        if table.kind == SYMBOLS:
            names = sections[table.link].offset
            for name, _, _, section, value, _ in SYMBOL.iter_unpack(_bytes_of(content, table)):
                begin = names + name
                yield content[begin : content.index(b"\0", begin)].decode(), section, value


def _open_places(content: bytes, sections: list[_Section]) -> Iterator[tuple[int, int, int]]:
    """Yield the places in the file that need an address, with the symbol and the offset from it."""
    for table in sections:
        if table.kind == RELOCATIONS and sections[table.info].flags & IN_MEMORY:
            for place, kind, addend in RELOCATION.iter_unpack(_bytes_of(content, table)):
                if kind & 0xFFFFFFFF != WHOLE_ADDRESS:
                    raise _OtherError
                yield sections[table.info].offset + place, kind >> 32, addend


def _bytes_of(content: bytes, section: _Section) -> bytes:
    return content[section.offset : section.offset + section.size]


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
        self._latest: tuple[Any, list[Any], list[Any]] = (None, [], [])  # tables of the last call, in words

    def __call__(self, *arguments: Any) -> Any:
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        reference, first, alive = self._latest
        if is_same_call(reference, arguments):
            words = [*first, *arguments[1:]]
        else:
            words, alive = words_of(arguments)
            self._latest = reference_to(arguments[0]), words[:1], alive
        status = self._call(ctypes.addressof(result), ctypes.addressof(error), *words)
        del alive
        if status:  # only if compiled with NUMBA_BOUNDSCHECK: nothing else raises errors
            raise IndexError("compiled code left the bounds of an array; ET_SIM_COMPILE=never locates it")
        return result.value if self._returns else None


def _placed_by_llvm(content: bytes) -> Any:
    from et_sim.compiled.llvm import PlacedByLlvm

    return PlacedByLlvm(content)
