"""Schemas of commands as tools, from their declared options, and the words of a call.

Every value is one word of a command line, which no shell reads. Values that name files must be within the
folder of the server; values that name programs are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from et_sim.basics.declared_options import MISSING, Argument, Command, Option, described, fields_of
from et_sim.basics.errors import UsageError, did_you_mean

# Commands that are offered, and whether they only read.
TOOLS: Mapping[str, bool] = {
    "make": False,
    "plan": True,
    "check": True,
    "run": False,
    "serve": False,
    "goodput": False,
    "sweep": False,
    "search": False,
    "inspect": True,
    "compare": True,
    "explain": True,
    "machine": False,
    "validate": True,
}
JSON = "json"  # always given
PROGRAMS = ("compute_model",)  # options that name programs
_TYPES = {bool: "boolean", int: "integer", float: "number"}
_PARTS = re.compile(r"[:,=\s]")  # of a value with several names


def schema_of(declared: type[Command]) -> dict[str, Any]:
    """Return the JSON schema of a command's arguments and options."""
    properties = {name: _property(declared, name, hint) for name, hint in _offered(declared)}
    required = [name for name, _ in _offered(declared) if getattr(declared, name, MISSING) is MISSING]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def has_json(declared: type[Command]) -> bool:
    """Return whether a command can print data instead of text."""
    return JSON in fields_of(declared)


def words_of(declared: type[Command], given: Mapping[str, Any], folder: Path) -> list[str]:
    """Return the words of a call; refuse unknown names, files outside of a folder, and an argument whose
    place an earlier one leaves open.
    """
    known = dict(_offered(declared))
    for name, value in given.items():
        if name not in known:
            remedy = did_you_mean(name, tuple(known)) or f"known: {', '.join(known)}"
            raise UsageError(f"there is no argument {name!r}", remedy=remedy)
        for text in _texts(value):
            _refuse_outside(name, text, folder)
    words, last, before = [f"--{JSON}"] if has_json(declared) else [], list[str](), ""
    for name, hint in known.items():
        entry = described(declared, name, hint)
        is_argument = isinstance(entry.form, Argument)
        if given.get(name) is None:
            before = name if is_argument and not before else before
            continue
        if is_argument and before:
            raise UsageError(f"{name} is given without {before}", remedy=f"give {before}, too")
        values = given[name] if entry.is_several else [given[name]]
        if entry.kind is bool:
            words += [entry.flag] * (bool(given[name]) != bool(getattr(declared, name)))
        elif is_argument:
            last += map(str, values)
        else:
            words += [f"{entry.flag}={value}" for value in values]
    return [*words, *last]


def _offered(declared: type[Command]) -> Iterator[tuple[str, Any]]:
    """Yield the fields that tools have."""
    for name, hint in fields_of(declared).items():
        if name != JSON and name not in PROGRAMS:
            yield name, hint


def _property(declared: type[Command], name: str, hint: Any) -> dict[str, Any]:
    """Return the schema of a field."""
    entry = described(declared, name, hint)
    is_parsed = isinstance(entry.form, Option) and entry.form.parse is not None
    kind: dict[str, Any] = {"type": _TYPES.get(entry.kind, "string")}
    if is_parsed:
        kind = {"type": ["string", "number"]}
    if entry.form.choices:
        kind["enum"] = list(entry.form.choices)
    if isinstance(entry.form, Option) and entry.form.least is not None:
        kind["minimum"] = entry.form.least
    whole = {"type": "array", "items": kind} if entry.is_several else kind
    default = getattr(declared, name, MISSING)
    stated = {"default": default} if isinstance(default, bool | int | float | str) and default != "" else {}
    text = f"false: {entry.text}" if default is True else entry.text  # the text of --no-NAME
    return {**whole, **({"description": text} if text else {}), **stated}


def _texts(value: Any) -> Sequence[str]:
    """Return the texts of a value, which may name files."""
    if isinstance(value, list):
        return [str(part) for part in value]
    return [value] if isinstance(value, str) else []


def _refuse_outside(name: str, text: str, folder: Path) -> None:
    """Refuse names of files outside of a folder, of programs, and values that begin like an option."""
    if text.startswith("-"):
        raise UsageError(f"{name} is {text!r}", remedy="give a value that does not begin with -")
    for part in _PARTS.split(text):
        if part.endswith(".py") or (name == "network_model" and "." in part):
            raise UsageError(f"{name} names a program, {part}", remedy="run it from the command line")
        path = Path(part)
        if part.startswith("~") or path.is_absolute() or ".." in path.parts or not _is_within(path, folder):
            raise UsageError(
                f"{name} names {part}, which is outside of the folder of this server",
                remedy="copy the file into the folder, and give its name there",
            )


def _is_within(path: Path, folder: Path) -> bool:
    """Return whether a relative path stays in a folder, also through links."""
    try:
        return (folder / path).resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError):  # too long for a name, so it is none
        return True
