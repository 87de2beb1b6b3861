"""Docstrings, comments and messages keep the rules of plain English (`tests/language/wording.py`)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.language.wording import FOLDERS, NOT_HERE, ROOT, faults, faults_of_source, modules

MOST_NOT_HERE = 40
PROGRAMS = ("benchmarks", "docs", ".ci")


def _rooms() -> list[str]:
    """Return the folders and modules directly inside the packages."""
    inside = (each for folder in FOLDERS for each in (ROOT / folder).iterdir())
    return sorted(
        str(each.relative_to(ROOT))
        for each in inside
        if each.suffix == ".py" or (each / "__init__.py").exists() or any(each.glob("**/*.py"))
    )


@pytest.mark.parametrize("room", [*_rooms(), *PROGRAMS])
def test_a_room_keeps_the_rules(room: str) -> None:
    assert [str(fault) for fault in faults(room)] == []


def test_few_modules_point_elsewhere() -> None:
    texts = [path.read_text("utf-8") for folder in FOLDERS for path in modules(folder)]
    assert sum(text.count(NOT_HERE) for text in texts) <= MOST_NOT_HERE


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ('def f():\n    """Return the bytes of a message."""', []),
        ('def f():\n    """The bytes of a message."""', ["a function's docstring begins with a verb"]),
        ('class A:\n    """What a message is."""', ["a docstring begins with a noun", "fragment"]),
        ('class A:\n    """Messages. Of these the first one counts."""', ["fragment"]),
        ('class A:\n    """Messages; the file knows `says`."""', ["treats code as a person"]),
        ("# nobody waits", ["treats code as a person"]),
        ("# no rank waits", []),
        ('text = f"{name} says so in the file"', ["treats code as a person"]),
        ('text = "says"', []),
    ],
)
def test_the_rules_themselves(source: str, rules: list[str]) -> None:
    ast.parse(source)
    assert [fault.rule for fault in faults_of_source(source, Path("module.py"))] == rules
