"""Faults of JSON files in plain words: the key, and the kind of value that it should have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import ValidationError, convert

_MISSING = r"Object missing required field `(.*)`"
_WRONG = r"Expected `(.*)`, got `.*`"
_LENGTH = r"Expected `array` of length (.*), got .*"
_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "bool": "true or false",
        "int": "a whole number",
        "float": "a number",
        "str": "a text",
        "object": "an object",
        "array": "a list",
        "null": "null",
    }
)


def fault_of(content: Any, kind: Any) -> str:
    """Return the first fault of content against a type, such as `per_rank[2].ranks is missing`; or "".

    >>> from et_sim.tables.summary import Stall
    >>> fault_of({"cause": 3}, Stall)
    'cause is not a text'
    """
    try:
        convert(content, kind)
    except ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        return _in_words(reason, place.removesuffix("`"))
    return ""


def _in_words(reason: str, place: str) -> str:
    if missing := re.fullmatch(_MISSING, reason):
        return f"{place}.{missing[1]} is missing".removeprefix(".")
    if length := re.fullmatch(_LENGTH, reason):
        return f"{place} is not a list of {length[1]}"
    if wrong := re.fullmatch(_WRONG, reason):
        return f"{place} is not {' or '.join(_WORDS.get(kind, kind) for kind in wrong[1].split(' | '))}"
    return f"{place} is not a list of ranks such as 0-3,6"  # the only texts with a pattern
