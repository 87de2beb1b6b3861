"""Reading of documents, strictly and within limits.

Sizes and counts beyond the limits are refused before anything is made of them. A small document may announce
billions of objects, or unpack to more than any memory holds. Readers check here first, so that every refusal
comes at once and names the limit.

JSON text becomes plain values; repeated keys and syntax errors are refused with a place.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from et_sim.basics.errors import InputError

MOST_TEXT_BYTES = 1 << 28  # of one configuration
MOST_DIGITS = 2000  # of a number: Python prints no longer ones
MOST_VALUES = 1 << 22  # of one document, with each alias counted as its value
DEEPEST = 50  # nested lists and objects of YAML
MOST_DEVICES, MOST_LINKS = 1 << 20, 1 << 22  # of a graph; links of both directions


def bounded(content: bytes, place: str, error_type: type[InputError]) -> bytes:
    """Return the content of a configuration, unless it is too long."""
    if len(content) > MOST_TEXT_BYTES:
        cause = f"the file has more than {MOST_TEXT_BYTES >> 20} MiB"
        raise error_type(
            cause, place=place, remedy=f"the limit of a configuration is {MOST_TEXT_BYTES:,} bytes"
        )
    return content


def read_bounded(path: Path, error_type: type[InputError]) -> bytes:
    """Return the bytes of a configuration, and read no more than the limit."""
    with path.open("rb") as file:
        return bounded(file.read(MOST_TEXT_BYTES + 1), str(path), error_type)


def csv_columns(text: str, place: str) -> list[str]:
    """Return the names of the columns of a CSV, which are its first line."""
    import csv

    try:
        return next(csv.reader(io.StringIO(text)), [])
    except csv.Error as error:
        raise InputError(f"is no CSV: {error}", place=f"{place}, line 1", remedy="correct it") from None


def csv_rows(text: str, place: str) -> Iterator[tuple[int, dict[Any, Any]]]:
    """Yield the number of its last line and the values by column of each row of a CSV, as `DictReader`."""
    import csv

    reader = csv.DictReader(io.StringIO(text))
    try:
        for row in reader:
            yield reader.line_num, row
    except csv.Error as error:
        where = f"{place}, line {reader.reader.line_num}"
        raise InputError(f"is no CSV: {error}", place=where, remedy="correct it") from None


def whole_number(word: str) -> int | None:
    """Return a whole number from decimal digits; None if it is none, or has too many digits."""
    return int(word) if word.isascii() and word.isdecimal() and len(word) <= MOST_DIGITS else None


NESTED_TOO_DEEPLY = "the content is nested too deeply"
TOO_MANY_DIGITS = f"a number has {{}} digits, and the most are {MOST_DIGITS}"
_LONG_NUMBER = re.compile(rf"[0-9]{{{MOST_DIGITS + 1}}}")


def parse_json(text: str, place: str, error_type: type[InputError]) -> Any:
    """Return the value of a JSON text; `error_type` is the type of refusals."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            raise repeated([key for key, _ in pairs], place, error_type)
        return content

    def whole(digits: str) -> int:
        if len(digits) > MOST_DIGITS:
            raise error_type(TOO_MANY_DIGITS.format(len(digits)), place=place)
        return int(digits)

    try:  # checking every number takes time
        has_long = _LONG_NUMBER.search(text) is not None
        return json.loads(text, object_pairs_hook=unique, parse_int=whole if has_long else None)
    except json.JSONDecodeError as error:
        found = error.msg.removesuffix(" starting at") if text.strip() else "it is empty"
        cause = f"line {error.lineno}, column {error.colno}: not valid JSON: {found}"
        raise error_type(cause, place=place, remedy="correct it there") from None
    except RecursionError:
        raise error_type(NESTED_TOO_DEEPLY, place=place) from None


def repeated(names: list[str], place: str, error_type: type[InputError]) -> InputError:
    """Return the refusal of keys that contain a repeated one."""
    seen: set[str] = set()
    name = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    return error_type(f'key "{name}" is given more than once', place=place, remedy="keep one of them")
