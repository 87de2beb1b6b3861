"""JSON text into plain values, strictly: repeated keys and syntax errors are refused with a place.

Not here: files, and what the values mean.
"""

from __future__ import annotations

import json
import re
from typing import Any

from et_sim.basics.errors import InputError
from et_sim.documents.limits import MOST_DIGITS

NESTED_TOO_DEEPLY = "the content is nested too deeply"
TOO_MANY_DIGITS = f"a number has {{}} digits, and the most are {MOST_DIGITS}"
_LONG_NUMBER = re.compile(rf"[0-9]{{{MOST_DIGITS + 1}}}")


def parse_json(text: str, place: str, error_type: type[InputError]) -> Any:
    """The value of a JSON text; `error_type` is what a refusal raises."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            raise repeated([key for key, _ in pairs], place, error_type)
        return content

    def whole(digits: str) -> int:
        if len(digits) > MOST_DIGITS:
            raise error_type(TOO_MANY_DIGITS.format(len(digits)), place=place)
        return int(digits)

    try:  # looking at every number takes time
        has_long = _LONG_NUMBER.search(text) is not None
        return json.loads(text, object_pairs_hook=unique, parse_int=whole if has_long else None)
    except json.JSONDecodeError as error:
        cause = f"line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}"
        raise error_type(cause, place=place) from None
    except RecursionError:
        raise error_type(NESTED_TOO_DEEPLY, place=place) from None


def repeated(names: list[str], place: str, error_type: type[InputError]) -> InputError:
    """The refusal of keys of which at least one is there twice."""
    seen: set[str] = set()
    name = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    return error_type(f'key "{name}" is given more than once', place=place, remedy="keep one of them")
