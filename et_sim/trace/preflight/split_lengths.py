"""Do all-to-alls that list bytes for each member list as many as their groups have members?

Not here: lists that nothing can mean (`et_sim.trace.splits`), and members that list none (`collectives`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from et_sim.trace.preflight.problem import Problem, TemplateIndex
from et_sim.trace.preflight.streams import SPLIT, Sequence, Stream
from et_sim.trace.splits import ATTRIBUTE, sizes_of_texts
from et_sim.units import format_ranks, plural


def check_split_lengths(
    index: TemplateIndex, stream: Stream, of_templates: Mapping[int, Sequence], members: int
) -> list[Problem]:
    """One finding per trace: the first list of another length."""
    problems = []
    for template, (rows, content) in sorted(of_templates.items()):
        rows = rows[content[:, 1] == SPLIT]
        if not len(rows):
            continue
        trace, users = index.workload.templates[template], index.ranks_of(template)
        lengths = np.array([len(sizes) for sizes in sizes_of_texts(trace)])[trace.splits[rows]]
        wrong = np.flatnonzero((lengths != members) & (lengths > 0))
        if len(wrong):
            at = int(wrong[0])
            text = (
                f"{index.place(users)}: {trace.describe(int(rows[at]))} lists"
                f" {plural(int(lengths[at]), 'size')} in {ATTRIBUTE}, and {stream.name} has"
                f" {plural(members, 'member')}"
            )
            remedy = "list what the rank sends to every member, its own share included"
            problems.append(Problem("error", "split-count", format_ranks(users), text, remedy))
    return problems
