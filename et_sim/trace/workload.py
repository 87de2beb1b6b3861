"""A workload: which rank runs which trace, and the groups the ranks name.

Many ranks may share one trace (a template), so a workload's size is the size of its distinct
traces. Not here: reading files (`files`), checking ranks against each other (`preflight`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from et_sim.errors import TraceError
from et_sim.trace.columns import RowColumn, Trace


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """`templates[template_of_rank[r]]` is the trace of rank r."""

    templates: tuple[Trace, ...]
    template_of_rank: RowColumn
    source: str = "<python>"
    # (path, content hash) of every file read, for the run's manifest.
    inputs: tuple[tuple[str, str], ...] = ()
    # What the reader accepted but somebody should know, one sentence each.
    notices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        of_rank = self.template_of_rank
        if len(of_rank) and not 0 <= int(of_rank.min()) <= int(of_rank.max()) < len(self.templates):
            raise TraceError(
                f"template_of_rank names templates {int(of_rank.min())} to {int(of_rank.max())}, "
                f"and there are {len(self.templates)}",
                place=self.source,
                remedy="number the templates from 0",
            )

    @property
    def ranks(self) -> int:
        """How many ranks the workload has."""
        return len(self.template_of_rank)

    def trace(self, rank: int) -> Trace:
        """The trace of one rank."""
        return self.templates[int(self.template_of_rank[rank])]

    @staticmethod
    def of(traces: Sequence[Trace], source: str = "<python>") -> Workload:
        """One trace per rank, in rank order; the same object given twice is stored once."""
        index: dict[int, int] = {}
        templates: list[Trace] = []
        of_rank = np.empty(len(traces), np.int32)
        for rank, trace in enumerate(traces):
            if id(trace) not in index:
                index[id(trace)] = len(templates)
                templates.append(trace)
            of_rank[rank] = index[id(trace)]
        return Workload(tuple(templates), of_rank, source)
