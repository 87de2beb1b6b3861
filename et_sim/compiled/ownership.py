"""Ownership of files and folders: code is only loaded where no other user can write.

Windows keeps caches in folders of the user, and has neither numbers of owners nor modes: all is trusted
there.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from et_sim.basics.errors import UsageError

ROOT = 0
WRITTEN_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def distrust(status: os.stat_result) -> str:
    """Return how others can write a file with this status; empty: only this user and root can."""
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid not in (os.geteuid(), ROOT):
        return f"user {status.st_uid} owns it"
    if status.st_mode & WRITTEN_BY_OTHERS:
        return f"its mode {stat.S_IMODE(status.st_mode):04o} lets other users write to it"
    return ""


def check_folder(folder: Path) -> None:
    """Refuse a folder of machine code that others can write."""
    if reason := distrust(folder.stat()):
        raise UsageError(
            f"no machine code is loaded from here: {reason}",
            place=str(folder),
            remedy="remove the folder, or set ET_SIM_CACHE_DIR to one that only you can write",
        )


def read_own(path: Path) -> bytes:
    """Return the content of a file; raise PermissionError if others can write it."""
    with path.open("rb") as file:
        if reason := distrust(os.fstat(file.fileno())):
            raise PermissionError(reason)
        return file.read()
