"""The findings of checks, and common words of messages: ranks, places, sizes, ordinals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import unique
from et_sim.basics.units import format_ranks, plural, rank_ranges
from et_sim.trace.workload import Workload

Severity = Literal["error", "warning"]

# problems of one kind that are printed in full; the others are counted
SPELLED_OUT = 20
REPAIR_FIRST = "repair the first ones and check again"
_RANGES = 20  # of ranks, in a sentence


class Problem(Struct, frozen=True):
    """One finding. `ranks` is compact text ("0-3,6"); `kind` is a fixed slug.

    `like` counts further findings with the same sentence for other ranks; they are part of this one.
    """

    severity: Severity
    kind: str
    ranks: str
    text: str
    remedy: str
    like: int = 0


def not_spelled_out(
    severity: Severity, kind: str, number: int, noun: str, rest: str, affected: Any = ()
) -> Problem:
    """Return the finding that counts the ones not printed in full."""
    text = f"{plural(number, f'more {noun}')} {rest}"
    return Problem(severity, kind, format_ranks(affected), text, REPAIR_FIRST)


def not_checked(question: str, size: str) -> Problem:
    """Return the finding about an unanswered question: templates leave it open, and ranks are too many."""
    reason = f"the templates do not show it, and all ranks together have {size}"
    text = f"whether {question} was not checked: {reason}"
    return Problem(
        "warning", "not-checked", "", text, "check the same job on fewer ranks; a run finds out, too"
    )


class TemplateIndex:
    """A workload by template: the ranks of each, and the names of their files."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        of_rank = np.asarray(workload.template_of_rank, np.int64)
        counts = np.bincount(of_rank, minlength=len(workload.templates))
        by_template = np.argsort(of_rank, kind="stable")
        self.ranks, self.counts = by_template, counts  # in the order of templates; number of ranks of each
        self.first = np.cumsum(counts) - counts  # of the ranks of each

    def ranks_of(self, template: int) -> Any:
        """Return the ranks that run a template, ascending."""
        return self.ranks[self.first[template] : self.first[template] + self.counts[template]]

    def used_templates(self) -> list[int]:
        """Return the templates that at least one rank runs."""
        used: list[int] = np.flatnonzero(self.counts).tolist()
        return used

    def file_of(self, rank: int) -> str:
        """Return the name of a rank's trace file, as far as it is known."""
        if self.workload.has_file_per_rank:
            return self.workload.inputs[rank][0]
        return self.workload.trace(rank).source or self.workload.source

    def place(self, ranks: Iterable[int]) -> str:
        """Return ranks with files in words: `rank 3 (x.3.et)`, or `ranks 0-3 (x.0.et and 3 more files)`."""
        listed = as_array(ranks)
        file = self.file_of(int(listed[0]))
        if len(listed) == 1:
            return f"rank {listed[0]} ({file})"
        files = len(listed) if self.workload.has_file_per_rank else self._sources(listed)
        more = f" and {plural(files - 1, 'more file')}" if files > 1 else ""
        return f"ranks {short_ranks(listed)} ({file}{more})"

    def _sources(self, ranks: Any) -> int:
        """Return the number of files of the traces of some ranks."""
        templates = unique(self.workload.template_of_rank[ranks]).tolist()
        return len({self.file_of(int(self.ranks_of(template)[0])) for template in templates})


def as_array(ranks: Iterable[int]) -> Any:
    """Return ranks as a column."""
    return ranks if isinstance(ranks, np.ndarray) else np.fromiter(ranks, np.int64)


def short_ranks(ranks: Iterable[int]) -> str:
    """Return ranks for a sentence, shortened to the first ranges if there are many."""
    listed = as_array(ranks)
    ranges = rank_ranges(listed)
    if len(ranges) <= _RANGES:
        return ",".join(ranges)
    return f"{','.join(ranges[:_RANGES])},... ({len(listed)} ranks)"


def of_ranks(ranks: Iterable[int]) -> str:
    """Return ranks with a noun: `rank 3` or `ranks 0-3`."""
    listed = as_array(ranks)
    return f"{'rank' if len(listed) == 1 else 'ranks'} {short_ranks(listed)}"


def have(ranks: Iterable[int]) -> str:
    """Return the verb for `of_ranks`."""
    return "has" if len(as_array(ranks)) == 1 else "have"


def ordinal(number: int) -> str:
    """Return a number as an ordinal: `1st`, `22nd`, `113th`."""
    if 10 <= number % 100 <= 20:
        return f"{number}th"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
