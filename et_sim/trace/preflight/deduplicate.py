"""Findings that say the same of other ranks, groups or nodes: the first is told, the others are counted.

Alike are findings of one kind whose sentences differ in numbers only (ranks, nodes, tags, names of files),
but for sizes: messages of other sizes are another mistake. Not here: any check.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

from et_sim.trace.preflight.problem import Problem, of_ranks
from et_sim.units import format_ranks, parse_ranks

# Circles are told by their nodes, and few of them.
_APART = frozenset(("dependency-cycle", "message-circle", "collective-circle"))
# A number, unless it is (part of) a size: 1 MiB, 1048576 bytes, 1.5 KiB.
_NUMBER = re.compile(r"(?<!\d)(?<!\d\.)\d+(?:\.\d+)?(?![\d.]*(?: (?:B|[KMGTPE]iB|bytes)\b|\d))")
# Ranks of a sentence: "rank 3", "ranks 0-3,6".
_RANKS = re.compile(r"\branks? #(?:[-,/]#)*")


def deduplicate(problems: list[Problem]) -> list[Problem]:
    """Every finding once, in the order of the first of its like."""
    found: dict[tuple[str, str, str], list[Problem]] = defaultdict(list)
    for at, problem in enumerate(problems):
        if problem.kind in _APART:
            found[problem.severity, problem.kind, str(at)].append(problem)
            continue
        shape = _RANKS.sub("ranks", _NUMBER.sub("#", problem.text))
        found[problem.severity, problem.kind, shape].append(problem)
    return [_merged(alike) for alike in found.values()]


def _merged(alike: list[Problem]) -> Problem:
    first, *others = alike
    if not others:
        return first
    listed = {rank for other in others for piece in _ranges(other.ranks) for rank in piece}
    where = f", on {of_ranks(listed)}" if listed else ""
    text = f"{first.text}; {len(others):,} more like it{where}"
    everyone = listed.union(*_ranges(first.ranks))
    return replace(first, text=text, ranks=format_ranks(everyone), like=len(others))


def _ranges(ranks: str) -> list[range]:
    return parse_ranks(ranks) if ranks else []
