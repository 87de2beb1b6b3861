"""Names of collective algorithms: which exist, and their one normal spelling.

Not here: what the algorithms do (`et_sim.collectives`), and whether a group size suits them.
"""

from __future__ import annotations

import re

_PLAIN = frozenset(
    {
        "ring",
        "direct",
        "halvingDoubling",
        "doubleBinaryTree",
        "inNetwork",
        "oneRing",
        "oneDirect",
        "oneHalvingDoubling",
    }
)
_WINDOWED = re.compile(r"(direct|oneDirect)(-?[0-9]{1,9})", re.ASCII)


def normal_name(name: str) -> str | None:
    """The normal spelling of an algorithm's name, or None if there is no such algorithm.

    `direct04` is `direct4`; `direct-1` is `direct`, because the reference reads -1 as "no window".
    Other windows below 1 never send anything there, so they are no algorithm here.
    """
    if name in _PLAIN:
        return name
    match = _WINDOWED.fullmatch(name)
    if match is None:
        return None
    window = int(match[2])
    if window == -1:
        return match[1]
    return f"{match[1]}{window}" if window >= 1 else None


def spans_all(name: str) -> bool:
    """Whether the algorithm takes all NPUs as one dimension, whatever the network's shape."""
    return name.startswith("one")
