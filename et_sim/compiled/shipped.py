"""Compiled code that comes with a wheel, as bitcode, from which machine code is made without Numba.

One archive, made by `ship`, is for all systems with 64-bit little-endian addresses: nothing in the bitcode is
of one processor. The archive holds the digest of its sources: with other sources, or if it is damaged, it is
ignored. It is also ignored if Numba's settings are changed.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from et_sim.compiled.sources import PACKAGE, source_digest
from et_sim.compiled.store import SETTINGS, write_code

ARCHIVE = "bitcode.zip"
IS_FOR_THIS_SYSTEM = sys.byteorder == "little" and sys.maxsize == 2**63 - 1
NONE, DAMAGED, OF_OTHER_SOURCES = "none", "damaged", "of other sources"


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """Write an archive; the same members give the same bytes."""
    from zipfile import ZIP_LZMA, ZipFile, ZipInfo

    with ZipFile(path, "w", ZIP_LZMA) as file:
        file.comment = source_digest().encode()
        for name in sorted(members):
            file.writestr(ZipInfo(name), members[name], ZIP_LZMA)


def member(symbol: str, returns: bool, bitcode: bytes) -> bytes:
    """Return the member of an archive for one entry function, compiled for one signature."""
    return json.dumps({"symbol": symbol, "returns": returns}).encode() + b"\n" + bitcode


@functools.cache
def finished(path: Path) -> tuple[str, bool, bytes] | None:
    """Make and store the machine code of a file of the store; return None if it was not shipped.

    The result is symbol, whether it returns a number, and object file, as in `store.read_code`.
    """
    if not is_shipped(path):
        return None
    from lzma import LZMAError
    from zipfile import BadZipFile, ZipFile

    from et_sim.compiled.llvm import object_code

    try:
        with ZipFile(_archive()) as file:
            head, _, bitcode = file.read(path.name).partition(b"\n")
        about = json.loads(head)
        made = about["symbol"], about["returns"], object_code(bitcode)
    except (OSError, EOFError, LZMAError, BadZipFile, KeyError, RuntimeError, ValueError):
        return None  # damaged, or of a newer LLVM
    with suppress(OSError):  # storing it is optional
        write_code(path, *made)
    return made


def is_shipped(path: Path) -> bool:
    """Return whether the archive has the code of a file of the store."""
    return path.name in _usable()


def fault(path: Path) -> str:
    """Return why an archive cannot be used; empty if it can."""
    from zipfile import BadZipFile, ZipFile

    if not path.is_file():
        return NONE
    try:
        with ZipFile(path) as file:
            return "" if file.comment == source_digest().encode() else OF_OTHER_SOURCES
    except (OSError, BadZipFile):
        return DAMAGED


def names_in(path: Path) -> frozenset[str]:
    """Return the files of the store for which an archive of these sources has code."""
    from zipfile import ZipFile

    if fault(path):
        return frozenset()
    with ZipFile(path) as file:
        return frozenset(file.namelist())


def shipped_code_text() -> str:
    """Return a text on the code that came with the package."""
    why = fault(_archive())
    if why == NONE:
        return "nothing; code is compiled on this machine"
    return f"{_archive().name}, {why}: ignored" if why else f"{len(names_in(_archive()))} kinds of code"


def _archive() -> Path:
    return PACKAGE / "compiled" / ARCHIVE


@functools.cache
def _usable() -> frozenset[str]:
    if not (IS_FOR_THIS_SYSTEM and _archive().is_file()) or any(os.environ.get(name) for name in SETTINGS):
        return frozenset()
    return names_in(_archive())
