"""The versions of Numba whose inside our compiler was checked with, and compiling without the inside.

In another version, or if the inside lacks a part, functions are compiled by public Numba alone (`build`): the
results are the same, and compiling takes several times as long. The reason is noted in the cache of this
version, for later processes and for `et-sim doctor`. Nothing here imports Numba.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from et_sim.basics.versions import is_within, version_of
from et_sim.compiled.ownership import read_own
from et_sim.compiled.store import write_whole

CHECKED = ">=0.62,<0.69"  # the range of the package's metadata; tests run on both ends
NOTE = "public-numba"


def unchecked_version() -> str:
    """Return the reason not to use the inside of the installed Numba; empty if it is a checked version."""
    version = version_of("numba")
    if not version or is_within(version, CHECKED):
        return ""
    return f"et-sim's own compiler was checked with numba{CHECKED}, and {version} is installed"


def note_public(directory: Path, reason: str) -> None:
    """Note in a cache why functions are compiled by public Numba alone; an empty reason removes the note."""
    if reason:
        write_whole(directory / NOTE, reason.encode())
    else:
        (directory / NOTE).unlink(missing_ok=True)


def public_reason(directory: Path) -> str:
    """Return why functions of a cache are compiled by public Numba alone; empty if they are not."""
    with suppress(OSError):
        return read_own(directory / NOTE).decode(errors="replace")
    return unchecked_version()
