"""The loops over all causal events of a record: forwards in time, and backwards.

Not here: what they are for (`slack`, `sensitivity`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.entry_points import entry

ALIKE_NS = 1e-3  # times that differ by less are equal: they are sums of doubles


def _seconds(critical_parent: Any, *_others: Any) -> float:
    return len(critical_parent) * 2e-6


@entry(what="the views of paths", seconds=_seconds)
def latest_ends(critical_parent: Any, other_parent: Any, spent: Any, latest: Any) -> None:
    """From the latest that some events may come, the latest that all may."""
    for row in range(len(critical_parent) - 1, -1, -1):
        needed = latest[row] - spent[row]
        if critical_parent[row] >= 0 and needed < latest[critical_parent[row]]:
            latest[critical_parent[row]] = needed
        if other_parent[row] >= 0 and needed < latest[other_parent[row]]:
            latest[other_parent[row]] = needed


@entry(what="the views of paths", seconds=_seconds)
def times_and_slopes(
    critical_parent: Any,
    other_parent: Any,
    spent: Any,
    rows: Any,
    scaled: Any,
    fixed: Any,
    base: Any,
    figures: Any,
    factor: float,
    off: float,
    towards: float,
    time: Any,
    slope: Any,
) -> None:
    """When everything comes if events take what they took (`spent`), but these `rows`, which ascend, take
    `base`, and then the longer of `factor * scaled` and `fixed`.

    And how fast that changes with the factor: as it grows (`towards` 1) or falls (-1).

    Each of the figures that make up a duration is rounded by `off`.
    """
    at = 0
    for row in range(len(critical_parent)):
        came, rate = 0.0, 0.0
        if critical_parent[row] >= 0:
            came, rate = time[critical_parent[row]], slope[critical_parent[row]]
        if other_parent[row] >= 0:
            ahead = time[other_parent[row]] - came
            if ahead > ALIKE_NS or (ahead > -ALIKE_NS and towards * (slope[other_parent[row]] - rate) > 0):
                came, rate = time[other_parent[row]], slope[other_parent[row]]
        if at < len(rows) and rows[at] == row:
            takes = factor * scaled[at]
            if figures[at] > 0:
                takes = max(takes + off * figures[at], 0.0)
            if takes > fixed[at] + ALIKE_NS or (takes > fixed[at] - ALIKE_NS and towards > 0):
                rate += scaled[at]
            time[row] = came + base[at] + max(takes, fixed[at])
            at += 1
        else:
            time[row] = came + spent[row]
        slope[row] = rate
