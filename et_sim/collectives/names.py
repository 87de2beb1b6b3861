"""Names of collective algorithms, and their one normal spelling.

A new algorithm is an entry here, and one in `algorithm.PROGRAMS`: the function that makes its steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct


class AlgorithmFamily(Struct, frozen=True):
    """Algorithms of one name."""

    spans: bool = False  # its `one…` form takes all NPUs as one dimension, for any shape of the network
    is_windowed: bool = False  # a number behind the name is the number of messages under way at a time
    takes_rings: bool = False  # in all or some collectives, or where nothing else can


FAMILIES: Mapping[str, AlgorithmFamily] = MappingProxyType(
    {
        "ring": AlgorithmFamily(spans=True, takes_rings=True),
        "direct": AlgorithmFamily(spans=True, is_windowed=True),
        "halvingDoubling": AlgorithmFamily(spans=True),
        "doubleBinaryTree": AlgorithmFamily(takes_rings=True),
        "inNetwork": AlgorithmFamily(takes_rings=True),
    }
)
DIGITS, MOST_DIGITS = "0123456789", 9  # of a window


class Name(Struct, frozen=True):
    """A name in its parts."""

    family: str
    spans_system: bool = False
    window: int | None = None

    def __str__(self) -> str:
        family = f"one{self.family[0].upper()}{self.family[1:]}" if self.spans_system else self.family
        return f"{family}{self.window or ''}"


def parse_name(name: str) -> Name | None:
    """Return the parts of an algorithm's name, or None if there is no such algorithm.

    `direct04` is `direct4`; `direct-1` is `direct`, because the reference reads -1 as "no window". Other
    windows below 1 never send anything there, so they are no algorithm here.
    """
    word = name.rstrip(DIGITS)
    digits = name[len(word) :]
    if digits and word.endswith("-"):
        word, digits = word[:-1], f"-{digits}"
    if len(digits.lstrip("-")) > MOST_DIGITS:
        return None
    spans = spans_all(word) and word[3:4].isupper()
    bare = word[3].lower() + word[4:] if spans else word
    family = FAMILIES.get(bare)
    window = None if digits in ("", "-1") else int(digits)
    if family is None or (spans and not family.spans) or (digits and not family.is_windowed):
        return None
    return None if window is not None and window < 1 else Name(bare, spans, window)


def spans_all(name: str) -> bool:
    """Return whether the algorithm takes all NPUs as one dimension, for any shape of the network."""
    return name.startswith("one")


def spellings() -> tuple[str, ...]:
    """Return all names, as help and messages list them."""
    names = [
        (str(Name(family, spans)), member)
        for spans in (False, True)
        for family, member in FAMILIES.items()
        if member.spans or not spans
    ]
    return tuple(
        spelled
        for name, listed in names
        for spelled in ((name, f"{name}<W>") if listed.is_windowed else (name,))
    )
