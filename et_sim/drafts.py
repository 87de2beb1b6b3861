"""Folders for what is being written: each beside its target, one's own, and gone when it is done.

Who is killed leaves a folder behind. A live one is locked by its process, so the next to write into the same
place finds those that are not, and removes them. Not here: putting what is written into its place.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LONGEST = 40  # characters of the target's name
_DRAFTS = re.compile(r"\..*\.draft-[0-9a-f]{8}", re.DOTALL)


@contextmanager
def draft_folder(target: Path) -> Iterator[Path]:
    """An empty folder beside `target`, on the same disk."""
    _remove_abandoned(target.parent)
    folder, lock = _new(target)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _new(target: Path) -> tuple[Path, int | None]:
    while True:
        folder = target.with_name(f".{target.name[:_LONGEST]}.draft-{secrets.token_hex(4)}")
        folder.mkdir()
        lock = _locked(folder)
        if lock is not None and not folder.is_dir():  # somebody took it for abandoned before it was locked
            os.close(lock)
            continue
        return folder, lock


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders that nobody holds."""
    found: list[Path] = []
    with suppress(OSError), os.scandir(parent) as entries:  # it may be that one can write there, and not look
        found = [parent / entry.name for entry in entries if _DRAFTS.fullmatch(entry.name)]
    for folder in found:
        lock = _locked(folder)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """A handle that holds the folder until it is closed; None: another one holds it, or nothing can."""
    try:
        import fcntl
    except ImportError:  # no locks here: what is abandoned stays
        return None
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
