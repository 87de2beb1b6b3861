"""Descriptions by name: JSON files that come with a package, and files of the user's own with the same keys.

Notes of a description state where its figures are from. `like` names the description that a file differs
from.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from et_sim.basics.errors import InputError, UsageError, did_you_mean, unreadable
from et_sim.basics.files import is_file
from et_sim.documents.keys import Section, Slot, ValueKind, key
from et_sim.documents.reading import parse_json, read_bounded

ENDING, LIKE = ".json", "like"


def _texts(slot: Slot, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) and each for each in value.values()):
        raise slot.refusal(value)
    return dict(value)


TEXTS = ValueKind("texts by name", lambda _: "texts by name", _texts)


def notes(about: str) -> Any:
    """Return the default of a field of notes by name of figure."""
    return key(TEXTS, about, {})


def refuse_many_fitted(given: Mapping[str, Any], section: Section, most: int) -> None:
    """Refuse more fitted figures than a description may have."""
    if len(given.get("fitted", ())) > most:
        raise section.fault(
            f'key "fitted" has {len(given["fitted"])} figures', f"allowed: at most {most}", key="fitted"
        )


def names_in(package: str) -> tuple[str, ...]:
    """Return the names of all descriptions that come with a package, sorted."""
    names = (file.name for file in files(package).iterdir())
    return tuple(sorted(name.removesuffix(ENDING) for name in names if name.endswith(ENDING)))


def content_of(package: str, name: str, noun: str) -> dict[str, Any]:
    """Return the keys of a description that comes with a package; `noun` is its kind, as in messages."""
    names = names_in(package)
    if name not in names:
        remedy = did_you_mean(name, names) or f"known: {', '.join(names)}"
        raise UsageError(
            f"there is no {noun} called {name!r}", remedy=f"{remedy}; or give a file that ends in {ENDING}"
        )
    text = (files(package) / f"{name}{ENDING}").read_text(encoding="utf-8")
    content: dict[str, Any] = parse_json(text, f"{name}{ENDING}", InputError)
    return content


def content_of_file(given: str, package: str, noun: str) -> dict[str, Any]:
    """Return the keys of a file of the user's own."""
    path = Path(given)
    if not is_file(path):
        raise UsageError(
            f"there is no {noun} file {given!r}",
            remedy=f"give a file, or a name: {', '.join(names_in(package))}",
        )
    try:
        text = read_bounded(path, InputError).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot be read: {unreadable(error)}", place=given, remedy="give a JSON file"
        ) from None
    content = parse_json(text, given, InputError)
    if not isinstance(content, dict):
        raise Section(given, content, error_type=InputError).fault(
            "is not an object", "write keys with values, as in the files that come with et-sim"
        )
    return content


def with_changes(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys with changes; objects are merged one level deep."""
    merged = {
        key: {**base[key], **value} if isinstance(base.get(key), dict) and isinstance(value, dict) else value
        for key, value in changes.items()
    }
    return {**base, **merged}
