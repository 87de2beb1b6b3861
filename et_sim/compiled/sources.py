"""The sources of all compiled functions, and of the compiler.

It imports nothing of the package: the build of a wheel runs this file alone.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
SOURCE_FOLDERS = ("trace", "plan", "network", "engine")
COMPILERS = (
    "build",
    "compile_once",
    "decorators",
    "lean_lower",
    "llvm",
    "native",
    "numba_adapter",
    "numba_version",
    "reachable",
    "shortcuts",
    "signature",
    "tables_by_reference",
    "tables_type",
)
SOURCE_FILES = ("basics/units.py", *(f"compiled/{name}.py" for name in COMPILERS))


def source_stamp(package: Path = PACKAGE) -> str:
    """Return a hash of sizes and times of all sources, which changes whenever one of them is written."""
    digest = hashlib.sha256(f"{package}\0".encode())
    for name in (*SOURCE_FILES, *sorted(_below(package))):
        status = os.stat(f"{package}/{name}")  # noqa: PTH116 - as below
        digest.update(
            f"{name} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}\n".encode()
        )
    return digest.hexdigest()


@functools.cache
def source_digest(package: Path = PACKAGE) -> str:
    """Return a hash of all sources."""
    digest = hashlib.sha256()
    for name in (*SOURCE_FILES, *sorted(_below(package))):
        with open(f"{package}/{name}", "rb") as file:  # noqa: PTH123 - paths take as long as reading
            content = file.read()
        digest.update(f"\0{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _below(package: Path) -> Iterator[str]:
    """Yield the sources in the folders, by their paths in the package."""
    folders = list(SOURCE_FOLDERS)
    while folders:
        folder = folders.pop()
        with suppress(FileNotFoundError), os.scandir(f"{package}/{folder}") as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    yield f"{folder}/{entry.name}"
                elif entry.name != "__pycache__" and entry.is_dir():
                    folders.append(f"{folder}/{entry.name}")


def is_covered(source: Path) -> bool:
    """Return whether a source file is part of the digest."""
    return any(source.is_relative_to(PACKAGE / folder) for folder in SOURCE_FOLDERS)
