"""Indented JSON has the same bytes as the output of the standard library."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from et_sim.basics.json_text import indented


class _Word(StrEnum):
    ONE = "one"


SINGLE = some.none() | some.booleans() | some.integers() | some.floats() | some.text()
CONTENT = some.recursive(
    SINGLE, lambda part: some.lists(part) | some.dictionaries(some.text() | some.integers(), part)
)


@given(CONTENT)
def test_any_content(content: Any) -> None:
    assert indented(content) == json.dumps(content, indent=2, ensure_ascii=False)


@pytest.mark.parametrize(
    "content",
    [
        {"a": (), "b": {}, "c": [[], [1, "ä"], ({},)], "d": _Word.ONE},
        {1: {"a": 1}, None: [1], False: {}, 1.5: [[]]},
        [{"a": "},\n    {", "b": "}"}, {"},": None}],
        [{"a": 1}, {"a": [1]}],
        {_Word.ONE: [_Word.ONE, {"x": None}]},
        float("inf"),
    ],
)
def test_chosen_content(content: Any) -> None:
    assert indented(content) == json.dumps(content, indent=2, ensure_ascii=False)
