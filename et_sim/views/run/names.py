"""Names of operations without their counters, so that the layers of a model are one line.

A number in a name is a counter if it stands by itself (between spaces, dots, underscores, …), and counts:
among names that are otherwise alike it takes several values, with few gaps between them. Numbers in words
that mix letters and digits, or in C++ names, are part of the word: `sm80_xmma_gemm_f16f16_128x64` and
`kernel<4>` are what they are called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from et_sim.views.run.columns import Words

_WORD = re.compile(r"\S+")
_NUMBER = re.compile(r"(?<![0-9A-Za-z])[0-9]{1,18}(?![0-9A-Za-z])")
_IDENTIFIER = re.compile(r"[A-Za-z][0-9]|[0-9][A-Za-z]|[<>&*]|::")
MANY = 32  # values: numbers of things, even with gaps
Spans = tuple[tuple[int, int], ...]
Skeleton = tuple[str, ...]  # what stands between the numbers


def stems_of(names: Words, beside: Iterable[str | None] = ()) -> Words:
    """Names with `#` for their counters; the codes say which stem every name has.

    `beside` are names of another run that are to have the same stems.
    """
    stem_of_name = stems([name or "" for name in names.texts], [name or "" for name in beside])
    index: dict[str, int] = {}
    of_name = np.array([index.setdefault(stem, len(index)) for stem in stem_of_name], np.int64)
    return Words(tuple(index), of_name)


def stems(names: Sequence[str], beside: Sequence[str] = ()) -> list[str]:
    """The stem of every name."""
    spans: dict[str, Spans] = {}  # of the words of names, which are few
    taken_apart = {name: _taken_apart(name, spans) for name in (*names, *beside)}
    values: dict[Skeleton, list[set[int]]] = {}
    for skeleton, numbers in taken_apart.values():
        sets = values.setdefault(skeleton, [set() for _ in numbers])
        for known, number in zip(sets, numbers, strict=True):
            known.add(int(number))
    counts = {skeleton: tuple(map(_is_counter, sets)) for skeleton, sets in values.items()}
    return [_stem(*taken_apart[name], counts) for name in names]


def _taken_apart(name: str, spans: dict[str, Spans]) -> tuple[Skeleton, tuple[str, ...]]:
    """What stands between the numbers that may be counters, and these."""
    spans_of_numbers = []
    for word in _WORD.finditer(name):
        if (spans_of_word := spans.get(word[0])) is None:
            spans_of_word = spans[word[0]] = _numbers(word[0])
        spans_of_numbers += [(word.start() + first, word.start() + end) for first, end in spans_of_word]
    ends = [0, *(place for span in spans_of_numbers for place in span), len(name)]
    pieces = [name[first:end] for first, end in pairwise(ends)]
    return tuple(pieces[::2]), tuple(pieces[1::2])


def _numbers(word: str) -> Spans:
    """Where in a word there are numbers that may be counters."""
    if _IDENTIFIER.search(word):
        return ()
    return tuple(number.span() for number in _NUMBER.finditer(word))


def _is_counter(values: set[int]) -> bool:
    """Whether numbers count: several, most of those between the least and the greatest."""
    span = max(values) - min(values) + 1
    return len(values) >= MANY or (len(values) > 1 and 2 * len(values) > span)


def _stem(skeleton: Skeleton, numbers: tuple[str, ...], counts: Mapping[Skeleton, tuple[bool, ...]]) -> str:
    shown = ("#" if counter else number for counter, number in zip(counts[skeleton], numbers, strict=True))
    return "".join(piece for pair in zip(skeleton, (*shown, ""), strict=True) for piece in pair)
