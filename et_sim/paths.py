"""What lies at a path that somebody gave: nothing, if no file can have that name.

`pathlib` raises for names that are too long or hold a null character.
"""

from __future__ import annotations

import os
from pathlib import Path


def exists(path: Path) -> bool:
    """Whether there is anything."""
    return os.path.exists(path)  # noqa: PTH110


def is_file(path: Path) -> bool:
    """Whether there is a file."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Whether there is a folder."""
    return os.path.isdir(path)  # noqa: PTH112
