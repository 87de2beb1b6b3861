"""Reading descriptions of engines: by name and version, or from a file of the user's own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from et_sim.basics.errors import InputError, UsageError
from et_sim.documents.descriptions import (
    ENDING,
    LIKE,
    content_of,
    content_of_file,
    names_in,
    with_changes,
)
from et_sim.documents.keys import Remarks, Section, read
from et_sim.serving.engines.description import Engine

VERSIONS = "versions"
PACKAGE, NOUN = "et_sim.serving.engines", "engine"


def engine_names() -> tuple[str, ...]:
    """Return the names of all descriptions that come with et-sim, sorted."""
    return names_in(PACKAGE)


def read_engine(given: str) -> Engine:
    """Return the description of NAME[:VERSION], or of a file whose name ends in .json."""
    if not given.endswith(ENDING):
        return _engine(f"{given.partition(':')[0]}{ENDING}", _keys_of_name(given), given)
    content = content_of_file(given, PACKAGE, NOUN)
    like = content.pop(LIKE, None)
    if like is not None and (not isinstance(like, str) or like.partition(":")[0] not in engine_names()):
        raise Section(given, content, error_type=InputError).fault(
            f'key "{LIKE}" is {like!r}', f"allowed: {', '.join(engine_names())}, or with :VERSION"
        )
    whole = content if like is None else with_changes(_keys_of_name(like), content)
    return _engine(given, whole, Path(given).name.removesuffix(ENDING))


def _engine(place: str, keys: dict[str, Any], name: str) -> Engine:
    section = Section(place, keys, error_type=InputError)
    engine = replace(read(Engine, section, Remarks()), name=name)
    if (engine.wait_passes > 0) != (engine.wait_share > 0):
        given, other = ("wait-passes", "wait-share") if engine.wait_passes else ("wait-share", "wait-passes")
        raise section.fault(f'key "{given}" has no effect without "{other}"', "give both above 0, or neither")
    return engine


def _keys_of_name(given: str) -> dict[str, Any]:
    """Return the keys of NAME[:VERSION]; `versions` has the changes of versions before each that it names."""
    name, colon, version = given.partition(":")
    if colon and not version:
        raise UsageError(
            f"--engine is {given!r}, without a version", remedy=f"give {name}, or a version, too"
        )
    whole = content_of(PACKAGE, name, NOUN)
    earlier = whole.pop(VERSIONS, {})
    for end, changes in sorted(earlier.items(), key=lambda of: numbers_of(of[0]), reverse=True):
        if version and numbers_of(version) < numbers_of(end):
            whole = with_changes(whole, changes)
    return whole


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, which order it; text without a number is newer than all."""
    found = tuple(int(word) for word in re.findall(r"\d{1,9}", version))
    return found or (10**9,)
