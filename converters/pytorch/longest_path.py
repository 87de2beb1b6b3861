"""When nodes end if only their dependencies hold them back, and what held back the last, in compiled code.

Rows are in an order in which every dependency leads forward. Not here: making that order (`graph`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.entry_points import entry


@entry(what="the longest path", seconds=lambda *arrays: len(arrays[2]) * 1e-6)
def replay_times(duration: Any, first: Any, before: Any, ends: Any, decisive: Any) -> None:
    """Fill `ends`: row r comes after the rows `before[first[r] : first[r + 1]]`.

    `decisive` gets the index into `before` of the row that ends last, or -1 where there is none.
    """
    for row in range(len(duration)):
        ready = 0
        decisive[row] = -1
        for at in range(first[row], first[row + 1]):
            if decisive[row] < 0 or ends[before[at]] > ready:
                ready = ends[before[at]]
                decisive[row] = at
        ends[row] = ready + duration[row]


@entry(what="the longest path", seconds=lambda last, *_: last * 2e-7)
def longest_path(last: int, decided_by: Any, path: Any) -> int:
    """Put node `last` and all that decided before it into `path`; returns how many these are."""
    node, count = last, 0
    while node >= 0:
        path[count] = node
        count += 1
        node = decided_by[node]
    return count
