"""Names of operations without their counters, so that the layers of a model share one line.

A number in a name is a counter if it stands alone (between spaces, dots, underscores, …) and counts: names
that are otherwise equal hold several values with few gaps. Numbers in words that mix letters and digits, or
in C++ names, are part of the word: `sm80_xmma_gemm_f16f16_128x64` and `kernel<4>` keep their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from et_sim.views.run.columns import Words

_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"(?<![0-9A-Za-z])([0-9]{1,18})(?![0-9A-Za-z])")
_IDENTIFIER = re.compile(r"[A-Za-z][0-9]|[0-9][A-Za-z]|[<>&*]|::")
MANY = 32  # from this many values on, numbers count even with gaps
Skeleton = tuple[str, ...]  # the text between numbers
Numbered = tuple[int, Sequence[str]]  # index of the name, and its numbers


def stems_of(names: Words, beside: Iterable[str | None] = ()) -> Words:
    """Return names with `#` for their counters, and the index of the stem of every name.

    `beside` holds names of another run; both runs get the same stems.
    """
    stem_of_name = stems([name or "" for name in names.texts], [name or "" for name in beside])
    index: dict[str, int] = {}
    of_name = np.array([index.setdefault(stem, len(index)) for stem in stem_of_name], np.int64)
    return Words(tuple(index), of_name)


def stems(names: Sequence[str], beside: Sequence[str] = ()) -> list[str]:
    """Return the stem of every name."""
    stem_of_name = [*names, *beside]
    for skeleton, named in _taken_apart(stem_of_name).items():
        columns = zip(*(numbers for _, numbers in named), strict=True)
        counts = [_is_counter(set(map(int, set(values)))) for values in columns]
        common = "#".join(skeleton) if all(counts) else None
        for place, numbers in named:
            stem_of_name[place] = _stem(skeleton, numbers, counts) if common is None else common
    return stem_of_name[: len(names)]


def _taken_apart(names: Sequence[str]) -> dict[Skeleton, list[Numbered]]:
    """Group names by the text between numbers that may be counters; return the numbers of each name."""
    by_texts: dict[Skeleton, list[Numbered]] = {}
    for place, name in enumerate(names):
        pieces = _NUMBER.split(name)
        by_texts.setdefault(tuple(pieces[::2]), []).append((place, pieces[1::2]))
    by_skeleton: dict[Skeleton, list[Numbered]] = {}
    for texts, named in by_texts.items():
        may_count = _may_count(texts)
        if all(may_count):
            by_skeleton.setdefault(texts, []).extend(named)
            continue
        for place, numbers in named:
            skeleton, counters = [texts[0]], []
            for is_apart, number, text in zip(may_count, numbers, texts[1:], strict=True):
                if is_apart:
                    counters.append(number)
                    skeleton.append(text)
                else:
                    skeleton[-1] += number + text
            by_skeleton.setdefault(tuple(skeleton), []).append((place, counters))
    return by_skeleton


def _may_count(texts: Skeleton) -> list[bool]:
    """Return, for each number between these texts, whether it may count: it is not part of an identifier."""
    words = [word[0] for word in _WORD.finditer("0".join(texts))]
    return [not _IDENTIFIER.search(word) for word in words for _ in _NUMBER.findall(word)]


def _is_counter(values: set[int]) -> bool:
    """Return whether numbers count: there are several, and they fill most of their range."""
    span = max(values) - min(values) + 1
    return len(values) >= MANY or (len(values) > 1 and 2 * len(values) > span)


def _stem(skeleton: Skeleton, numbers: Sequence[str], counts: Sequence[bool]) -> str:
    shown = ("#" if counter else number for counter, number in zip(counts, numbers, strict=True))
    return "".join(piece for pair in zip(skeleton, (*shown, ""), strict=True) for piece in pair)
