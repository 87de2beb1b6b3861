"""The sources of all compiled functions, and of the compiler.

It imports nothing of the package: the build of a wheel runs this file alone.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator
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
    for folder in SOURCE_FOLDERS:
        for where, _, names in os.walk(package / folder):
            within = Path(where).relative_to(package).as_posix()
            yield from (f"{within}/{name}" for name in names if name.endswith(".py"))


def is_covered(source: Path) -> bool:
    """Return whether a source file is part of the digest."""
    return any(source.is_relative_to(PACKAGE / folder) for folder in SOURCE_FOLDERS)
