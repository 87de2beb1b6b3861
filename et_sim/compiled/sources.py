"""The sources of everything that is compiled, and of what compiles it.

It imports nothing of the package: the build of a wheel runs this file alone.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
SOURCE_FOLDERS = ("trace", "plan", "network", "engine")
COMPILERS = ("build", "compile_once", "decorators", "native", "shortcuts", "signature", "tables_by_reference")
SOURCE_FILES = ("basics/units.py", *(f"compiled/{name}.py" for name in COMPILERS))


@functools.cache
def source_digest(package: Path = PACKAGE) -> str:
    """Hash of all of them."""
    digest = hashlib.sha256()
    files = [path for folder in SOURCE_FOLDERS for path in sorted((package / folder).rglob("*.py"))]
    for path in (*(package / name for name in SOURCE_FILES), *files):
        content = path.read_bytes()
        digest.update(f"\0{path.relative_to(package).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def is_covered(source: Path) -> bool:
    """Whether a source file is part of the digest."""
    return any(source.is_relative_to(PACKAGE / folder) for folder in SOURCE_FOLDERS)
