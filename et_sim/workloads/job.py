"""A workload from a program: a template for every kind of rank that the program tells apart.

The program runs for the lowest rank that has no template yet. All ranks that would have got the same answers
to what it asked share the template. So the cost grows with the number of different ranks.

The profile that workloads made here are simulated in, where no machine names another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from et_sim.trace.columns import Trace
from et_sim.trace.group_rule import GroupRule
from et_sim.trace.workload import Workload
from et_sim.workloads.axes import Axes
from et_sim.workloads.rank import Rank

PROFILE = "corrected"  # what is made here has no results of the reference to repeat


Program = Callable[[Rank], object]


def make_workload(axes: Axes, program: Program, *, source: str = "<program>") -> Workload:
    """The workload in which every rank does what the program says of it."""
    ranks = np.arange(axes.ranks, dtype=np.int32)
    of_rank = np.full(axes.ranks, -1, np.int32)
    rules: dict[str, GroupRule] = {}
    known: dict[bytes, int] = {}
    templates: list[Trace] = []
    at = 0
    while at < axes.ranks:
        rank = Rank(axes, at, rules, source)
        program(rank)
        alike = of_rank < 0
        for question, answer in rank.questions.values():
            alike &= question(ranks) == answer
        number = known.setdefault(rank.recording.content, len(templates))
        if number == len(templates):
            templates.append(rank.recording.trace())
        of_rank[alike] = number
        left = np.flatnonzero(of_rank[at:] < 0)
        at = at + int(left[0]) if len(left) else axes.ranks
    return Workload(
        tuple(templates),
        of_rank,
        source,
        relative_peers=(True,) * len(templates),
        group_rules=rules,
        profile=PROFILE,
    )
