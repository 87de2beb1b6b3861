"""Names of collective algorithms, and their one normal spelling.

A new algorithm is an entry here, and one in `algorithm.PROGRAMS`: the function that makes its steps.
"""

from __future__ import annotations

import re
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
_SPELLING = re.compile(r"(one(?=[A-Z]))?([A-Za-z]+)(-?[0-9]{1,9})?", re.ASCII)


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
    match = _SPELLING.fullmatch(name)
    if match is None:
        return None
    spans = match[1] is not None
    bare = match[2][0].lower() + match[2][1:] if spans else match[2]
    family = FAMILIES.get(bare)
    window = None if match[3] in (None, "-1") else int(match[3])
    if family is None or (spans and not family.spans) or (match[3] is not None and not family.is_windowed):
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
