"""The text form of a system file of ASTRA-sim 1.0: `key: value` pairs of words.

Line breaks mean nothing; a word that ends with a colon is a key, and the word after it its value.
Not here: what keys mean (`version_1.system_file`).
"""

from __future__ import annotations

import re

from et_sim.errors import MachineError

_WORD = re.compile(r"\S+")
_FIRST_KEY = re.compile(r"\s*[A-Za-z][A-Za-z-]*:(\s|\Z)")


def looks_like_settings(text: str) -> bool:
    """Whether the text begins with `key:`, as no JSON does."""
    return _FIRST_KEY.match(text) is not None


def parse_settings(text: str, place: str) -> dict[str, str]:
    """Value by key, both as written; the key is without its colon."""
    settings: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = [(match[0], match.start() + 1) for match in _WORD.finditer(line)]
        at = 0
        while at < len(words):
            word, column = words[at]
            where = f"{place}: line {number}, column {column}"
            if not word.endswith(":"):
                raise MachineError(
                    f"{word!r} stands where a key is expected",
                    place=where,
                    remedy='write one "key: value" per line; a list is one word, joined by "_": ring_ring',
                )
            name = word.removesuffix(":")
            if at + 1 == len(words) or words[at + 1][0].endswith(":"):
                raise MachineError(f'key "{name}" has no value', place=where, remedy='write "key: value"')
            if name in settings:
                raise MachineError(f'key "{name}" is given twice', place=where, remedy="keep one of them")
            settings[name] = words[at + 1][0]
            at += 2
    return settings
