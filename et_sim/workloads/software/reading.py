"""Reading descriptions of software: by name, or from a file of the user's own."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from et_sim.basics.errors import InputError
from et_sim.basics.files import is_file
from et_sim.documents.descriptions import (
    ENDING,
    LIKE,
    content_of,
    content_of_file,
    names_in,
    with_changes,
)
from et_sim.documents.keys import Remarks, Section, read
from et_sim.workloads.software.description import Software

PACKAGE, NOUN = "et_sim.workloads.software", "software"
NOTES = ("fitted", "sources", "estimates")


def software_names() -> tuple[str, ...]:
    """Return the names of all descriptions that come with et-sim, sorted."""
    return names_in(PACKAGE)


def read_software(name_or_path: str) -> Software:
    """Return the description of a name, or of a file whose name ends in .json."""
    if not name_or_path.endswith(ENDING):
        return _named(name_or_path)
    path = Path(name_or_path)
    state = path.stat() if is_file(path) else None
    return _of_file(name_or_path, state and state.st_mtime_ns, state and state.st_size)


def keys_of_software(name: str) -> dict[str, Any]:
    """Return all keys of a description that comes with et-sim, with inherited ones, in a file's form."""
    read_software(name)  # raises if there is no such name
    return _whole(Section(name, {LIKE: name}, error_type=InputError))


@lru_cache(maxsize=64)
def _named(name: str) -> Software:
    return _described(content_of(PACKAGE, name, NOUN), f"{name}{ENDING}", name)


@lru_cache(maxsize=64)
def _of_file(path: str, time_ns: int | None, size: int | None) -> Software:  # noqa: ARG001 states differ
    return _described(content_of_file(path, PACKAGE, NOUN), path, Path(path).name.removesuffix(ENDING))


def _described(content: dict[str, Any], place: str, name: str) -> Software:
    """Return the description in a file, with inherited keys."""
    own = Section(place, content, error_type=InputError)
    return replace(read(Software, Section(place, _whole(own), error_type=InputError), Remarks()), name=name)


def _whole(own: Section) -> dict[str, Any]:
    """Return the keys of a file, which override those of the chain of files that it is like.

    A note of the file on a figure replaces inherited notes on it.
    """
    chain, names = [own.content], list[str]()
    while LIKE in chain[-1]:
        name = chain[-1][LIKE]
        if name not in software_names():
            raise own.fault(
                f'key "{LIKE}" is {name!r}', f"allowed: one of {', '.join(software_names())}", key=LIKE
            )
        if name in names:
            raise own.fault(f'key "{LIKE}" leads back to "{name}"', "leave it out in one of them", key=LIKE)
        names.append(name)
        chain.append(content_of(PACKAGE, name, NOUN))
    whole: dict[str, Any] = {}
    for content in reversed(chain):
        noted = [name for note in NOTES if isinstance(content.get(note), dict) for name in content[note]]
        for note in NOTES:
            if isinstance(whole.get(note), dict):
                whole[note] = {name: text for name, text in whole[note].items() if name not in noted}
        whole = with_changes(whole, {key: value for key, value in content.items() if key != LIKE})
    return whole
