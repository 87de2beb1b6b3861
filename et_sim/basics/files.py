"""Files: draft folders for output beside their targets, and checks of paths.

A killed process leaves a folder behind. A process locks its folders, so the next writer to the same place can
find and remove abandoned ones.

Checks of paths from users return false for names that no file can have. `pathlib` raises for names that are
too long or hold a null character.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote
from typing import Any

from et_sim.basics.errors import UsageError, unreadable


def in_shell(path: Path | str) -> str:
    """Return a path as a word of a shell, in quotes if it needs them."""
    return quote(str(path))


def exists(path: Path) -> bool:
    """Return whether the path exists."""
    return os.path.exists(path)  # noqa: PTH110


def is_file(path: Path) -> bool:
    """Return whether the path is a file."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder."""
    return os.path.isdir(path)  # noqa: PTH112


@contextmanager
def new_file(target: Path) -> Iterator[Any]:
    """Yield a file for bytes, which replaces the target when it is complete."""
    if not target.name:
        raise UsageError(f"{str(target)!r} is a directory", remedy="name a file in it")
    try:
        with draft_folder(target) as folder:
            draft = folder / target.name
            with draft.open("wb") as sink:
                yield sink
            draft.replace(target)
    except OSError as error:
        raise UsageError(
            f"cannot be written: {unreadable(error)}", place=str(target), remedy="name a writable file"
        ) from None


def write_file(target: Path, content: bytes) -> int:
    """Write a whole file or nothing, and return its size in bytes."""
    with new_file(target) as sink:
        sink.write(content)
    return len(content)


def write_json(content: Any, target: Path) -> None:
    """Write indented JSON."""
    with new_file(target) as sink:
        sink.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def remove_folder(folder: Path) -> None:
    """Remove a folder and what it holds, as far as that is permitted; a link to a folder stays."""
    if folder.is_symlink():
        return
    # `shutil` would load the libraries of all archives, which a short run does not need.
    for place, folders, files in os.walk(folder, topdown=False):
        for entry in (Path(place, name) for name in (*folders, *files)):
            with suppress(OSError):
                if entry.is_symlink() or not entry.is_dir():
                    entry.unlink()
                else:
                    entry.rmdir()
    with suppress(OSError):
        folder.rmdir()


_LONGEST = 40  # characters of the target's name
_DRAFTS = re.compile(r"\..*\.draft-[0-9a-f]{8}", re.DOTALL)


@contextmanager
def draft_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder beside `target`, on the same disk."""
    _remove_abandoned(target.parent)
    folder, lock = _new(target)
    try:
        yield folder
    finally:
        remove_folder(folder)
        if lock is not None:
            os.close(lock)


def _new(target: Path) -> tuple[Path, int | None]:
    while True:
        folder = target.with_name(f".{target.name[:_LONGEST]}.draft-{os.urandom(4).hex()}")
        folder.mkdir()
        lock = _locked(folder)
        if lock is not None and not folder.is_dir():  # another process removed it before it was locked
            os.close(lock)
            continue
        return folder, lock


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders that no process holds."""
    drafts: list[Path] = []
    with suppress(OSError), os.scandir(parent) as entries:  # the folder may be writable but not readable
        drafts = [parent / entry.name for entry in entries if _DRAFTS.fullmatch(entry.name)]
    for folder in drafts:
        lock = _locked(folder)
        if lock is not None:
            remove_folder(folder)
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """Return a handle that locks the folder until it is closed; None if it is locked or cannot be."""
    try:
        import fcntl
    except ImportError:  # without locks, abandoned folders stay
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
