"""A serving over time: what came, what was done, what was under way, and what requests then waited for.

Not here: figures of the whole, which summary.json has.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.unique import unique
from et_sim.views.run.directory import RunDirectory

SLICES = 12
COLUMNS = ("arrival_ns", "finish_ns", "ttft_ns", "tpot_ns")


class Slice(Struct, frozen=True):
    """A part of the time from the first arrival to the last token."""

    start_ns: int
    end_ns: int
    arrived: int
    done: int
    under_way: int  # when it ends
    ttft_ns: int | None  # half of the requests that arrived in it took no longer; None: none arrived
    tpot_ns: int | None


def slices_of(run: RunDirectory, count: int = SLICES) -> tuple[Slice, ...]:
    """As many equal ones, or fewer where there are not so many nanoseconds."""
    arrival, finish, ttft, tpot = run.arrays("requests", COLUMNS).values()
    first, last = int(arrival.min()), int(finish.max()) + 1
    edges = unique(np.linspace(first, last, count + 1).astype(np.int64)).tolist()
    found = []
    for start, end in pairwise(edges):
        came = (arrival >= start) & (arrival < end)
        done = (finish >= start) & (finish < end)
        left = int((arrival < end).sum() - (finish < end).sum())
        medians = (_median(column[came]) for column in (ttft, tpot))
        found.append(Slice(start - first, end - first, int(came.sum()), int(done.sum()), left, *medians))
    return tuple(found)


def _median(values: Any) -> int | None:
    """The smallest value that half of those that are known do not exceed."""
    known = np.sort(values[values >= 0])
    return int(known[(len(known) - 1) // 2]) if len(known) else None
