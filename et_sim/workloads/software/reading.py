"""Reading descriptions of software: by name, or from a file of the user's own."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from et_sim.basics.errors import InputError, UsageError, did_you_mean, unreadable
from et_sim.basics.files import is_file
from et_sim.documents.keys import Remarks, Section, read
from et_sim.documents.reading import parse_json, read_bounded
from et_sim.workloads.software.description import Software

ENDING, LIKE = ".json", "like"
NOTES = ("fitted", "sources", "estimates")


def software_names() -> tuple[str, ...]:
    """Return the names of all descriptions that come with et-sim, sorted."""
    folder = files("et_sim.workloads.software")
    names = (file.name for file in folder.iterdir())
    return tuple(sorted(name.removesuffix(ENDING) for name in names if name.endswith(ENDING)))


def read_software(name_or_path: str) -> Software:
    """Return the description of a name, or of a file whose name ends in .json."""
    if not name_or_path.endswith(ENDING):
        return _named(name_or_path)
    path = Path(name_or_path)
    if not is_file(path):
        raise UsageError(
            f"there is no file {name_or_path!r} of software",
            remedy=f"give a file, or a name: {', '.join(software_names())}",
        )
    state = path.stat()
    return _of_file(name_or_path, state.st_mtime_ns, state.st_size)


def keys_of_software(name: str) -> dict[str, Any]:
    """Return all keys of a description that comes with et-sim, with inherited ones, in a file's form."""
    read_software(name)  # raises if there is no such name
    return _whole(Section(name, {LIKE: name}, error_type=InputError))


@lru_cache(maxsize=64)
def _named(name: str) -> Software:
    if name not in software_names():
        remedy = did_you_mean(name, software_names()) or f"known: {', '.join(software_names())}"
        raise UsageError(
            f"there is no software called {name!r}", remedy=f"{remedy}; or give a file that ends in {ENDING}"
        )
    file = files("et_sim.workloads.software") / f"{name}{ENDING}"
    place = f"{name}{ENDING}"
    return _described(parse_json(file.read_text(encoding="utf-8"), place, InputError), place, name)


@lru_cache(maxsize=64)
def _of_file(path: str, time_ns: int, size: int) -> Software:  # noqa: ARG001 another file has another state
    try:
        text = read_bounded(Path(path), InputError).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot be read: {unreadable(error)}", place=path, remedy="give a JSON file"
        ) from None
    return _described(parse_json(text, path, InputError), path, Path(path).name.removesuffix(ENDING))


def _described(content: Any, place: str, name: str) -> Software:
    """Return the description in a file, with inherited keys."""
    own = Section(place, content, error_type=InputError)
    if not isinstance(content, dict):
        raise own.fault("is not an object", "write keys with values, as in the files that come with et-sim")
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
        text = (files("et_sim.workloads.software") / f"{name}{ENDING}").read_text(encoding="utf-8")
        chain.append(parse_json(text, name, InputError))
    whole: dict[str, Any] = {}
    for content in reversed(chain):
        noted = [name for note in NOTES if isinstance(content.get(note), dict) for name in content[note]]
        for note in NOTES:
            if isinstance(whole.get(note), dict):
                whole[note] = {name: text for name, text in whole[note].items() if name not in noted}
        whole = _over(whole, {key: value for key, value in content.items() if key != LIKE})
    return whole


def _over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return keys with changes; objects are merged one level deep."""
    changed = dict(base)
    for key, value in changes.items():
        before = base.get(key)
        changed[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    return changed
