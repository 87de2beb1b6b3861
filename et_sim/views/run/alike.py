"""Ranks with equal figures share an entry, whichever actors they were simulated as."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

from et_sim.basics.units import format_ranks, parse_ranks

Figures = TypeVar("Figures")


def alike(found: Iterable[tuple[str, Figures]]) -> list[tuple[str, Figures]]:
    """(ranks, figures), each of the figures once and with all its ranks; by lowest rank."""
    ranks_of: dict[Figures, list[str]] = {}
    for ranks, figures in found:
        ranks_of.setdefault(figures, []).append(ranks)
    entries = [(together(ranks), figures) for figures, ranks in ranks_of.items()]
    return sorted(entries, key=lambda one: parse_ranks(one[0])[0].start)


def together(named: Sequence[str]) -> str:
    """Several lists of ranks as one."""
    if len(named) == 1:
        return named[0]
    spans = [span for ranks in named for span in parse_ranks(ranks)]
    return format_ranks(np.sort(np.concatenate([np.arange(s.start, s.stop, s.step) for s in spans])))
