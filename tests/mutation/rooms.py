"""Tests for a change of a module: those of its room, in the order of how much of the module they run.

`rooms.json` names them by module; a module without an entry takes those of its folder.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from mutants import REPOSITORY, Mutant, mutants_of

ROOMS = (
    *(
        "calibrate",
        "compute",
        "engine",
        "fold",
        "goodput",
        "memory",
        "network",
        "plan",
        "serving",
        "timeline",
    ),
    *("validation", "views", "workloads/inference"),
)
FOLDER = Path(__file__).parent


def modules() -> list[str]:
    """Return the modules that may change."""
    paths = (path for room in ROOMS for path in (REPOSITORY / "et_sim" / room).rglob("*.py"))
    return sorted(str(path.relative_to(REPOSITORY)) for path in paths)


@cache
def files_of_rooms() -> dict[str, list[str]]:
    """Return test files by module or folder, below `tests` and `et_sim`."""
    files: dict[str, list[str]] = json.loads((FOLDER / "rooms.json").read_text())
    return files


def room_of(module: str) -> list[str]:
    """Return the test files of a module's room, as pytest takes them."""
    name = module.removeprefix("et_sim/")
    while name not in files_of_rooms():
        name = name.rpartition("/")[0]
        if not name:
            raise KeyError(f"no tests are listed for {module}: add it, or its folder, to rooms.json")
    return [f"tests/{file}" for file in files_of_rooms()[name]]


def listed(name: str) -> list[dict[str, Any]]:
    """Return the entries of a committed list: `noticed` or `equivalent`."""
    entries: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())
    return entries


def mutant_of(entry: dict[str, Any]) -> Mutant:
    """Return the change that an entry of a list describes."""
    number = entry.get("number", 0)
    for mutant in mutants_of(entry["module"]):
        if mutant.key == (entry["module"], entry["line"], entry["change"], number):
            return mutant
    raise LookupError(f"{entry['module']} has no line {entry['line']!r} with the change {entry['change']!r}")


@cache
def equivalents() -> set[tuple[str, str, str, int]]:
    """Return keys of changes that change no result."""
    return {
        (entry["module"], entry["line"], entry["change"], entry.get("number", 0))
        for entry in listed("equivalent")
    }


def changes_to_try(module: str) -> list[Mutant]:
    """Return the changes of a module that may change a result."""
    return [mutant for mutant in mutants_of(module) if mutant.key not in equivalents()]
