"""Models: their files, their dimensions, and the weights that follow from them.

JSON files of all kinds of models are found by name or by path; they name the publications of the dimensions.
Transformers are in `model` and `configuration`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from et_sim.basics.errors import InputError, UsageError, brief, did_you_mean, unreadable
from et_sim.basics.files import is_file
from et_sim.documents.reading import parse_json

Found = TypeVar("Found")


def preset_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the models that come with et-sim."""
    return tuple(sorted(path.stem for path in folder.glob("*.json")))


def content_of(folder: Path, name: str, form: str = "JSON file") -> tuple[str, Path, Any]:
    """Return a model's name, its file, and the content of the file."""
    known = preset_names(folder)
    path = folder / f"{name}.json" if name in known else Path(name)
    a_file = f"give a {form}"
    if not is_file(path):
        remedy = did_you_mean(name, known) or f"{a_file}, or one of: {', '.join(known)}"
        raise UsageError(f"there is no model {name!r}", remedy=remedy)
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot be read: {unreadable(error)}", place=str(path), remedy=a_file) from None
    return path.stem, path, parse_json(text, str(path), InputError)


def read_preset(folder: Path, name: str, form: type[Found]) -> tuple[str, Found]:
    """Return a model's name and dimensions."""
    stem, path, content = content_of(folder, name)
    return stem, converted(content, str(path), form)


def converted(content: Any, place: str, form: type[Found]) -> Found:
    """Return the checked content of a file."""
    try:
        return msgspec.convert(content, form)
    except msgspec.ValidationError as error:
        raise UsageError(
            brief(str(error)), place=place, remedy="look at the models that come with et-sim"
        ) from None
