"""Reading descriptions of engines: by name and version, or from a file of the user's own."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from et_sim.basics.errors import InputError, UsageError, did_you_mean, unreadable
from et_sim.basics.files import is_file
from et_sim.documents.keys import Remarks, Section, read
from et_sim.documents.reading import parse_json, read_bounded
from et_sim.serving.engines.description import Engine

ENDING, LIKE, VERSIONS = ".json", "like", "versions"
PACKAGE = "et_sim.serving.engines"


def engine_names() -> tuple[str, ...]:
    """Return the names of all descriptions that come with et-sim, sorted."""
    names = (file.name for file in files(PACKAGE).iterdir())
    return tuple(sorted(name.removesuffix(ENDING) for name in names if name.endswith(ENDING)))


@lru_cache(maxsize=64)
def read_engine(given: str) -> Engine:
    """Return the description of NAME[:VERSION], or of a file whose name ends in .json."""
    if not given.endswith(ENDING):
        return _engine(f"{given.partition(':')[0]}{ENDING}", _keys_of_name(given), given)
    if not is_file(Path(given)):
        raise UsageError(
            f"there is no file {given!r} of an engine",
            remedy=f"give a file, or a name: {', '.join(engine_names())}",
        )
    try:
        text = read_bounded(Path(given), InputError).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot be read: {unreadable(error)}", place=given, remedy="give a JSON file"
        ) from None
    content = parse_json(text, given, InputError)
    own = Section(given, content, error_type=InputError)
    if not isinstance(content, dict):
        raise own.fault("is not an object", "write keys with values, as in the files that come with et-sim")
    like = content.pop(LIKE, None)
    if like is not None and (not isinstance(like, str) or like.partition(":")[0] not in engine_names()):
        raise own.fault(
            f'key "{LIKE}" is {like!r}', f"allowed: {', '.join(engine_names())}, or with :VERSION"
        )
    whole = content if like is None else _over(_keys_of_name(like), content)
    return _engine(given, whole, Path(given).name.removesuffix(ENDING))


def _engine(place: str, keys: dict[str, Any], name: str) -> Engine:
    return replace(read(Engine, Section(place, keys, error_type=InputError), Remarks()), name=name)


def _keys_of_name(given: str) -> dict[str, Any]:
    """Return the keys of NAME[:VERSION]; `versions` has the changes of versions before each that it names."""
    name, _, version = given.partition(":")
    if name not in engine_names():
        remedy = did_you_mean(name, engine_names()) or f"known: {', '.join(engine_names())}"
        raise UsageError(
            f"there is no engine called {name!r}", remedy=f"{remedy}; or give a file that ends in {ENDING}"
        )
    text = (files(PACKAGE) / f"{name}{ENDING}").read_text(encoding="utf-8")
    whole: dict[str, Any] = parse_json(text, f"{name}{ENDING}", InputError)
    earlier = whole.pop(VERSIONS, {})
    for end, changes in sorted(earlier.items(), key=lambda of: numbers_of(of[0]), reverse=True):
        if version and numbers_of(version) < numbers_of(end):
            whole = _over(whole, changes)
    return whole


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, which order it; text without a number is newer than all."""
    found = tuple(int(word) for word in re.findall(r"\d{1,9}", version))
    return found or (10**9,)


def _over(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return keys with changes; objects are merged one level deep."""
    merged = {
        key: {**base[key], **value} if isinstance(base.get(key), dict) and isinstance(value, dict) else value
        for key, value in changes.items()
    }
    return {**base, **merged}
