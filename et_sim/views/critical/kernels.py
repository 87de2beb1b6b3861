"""The loops over all moments of a record: forwards in time, and backwards.

Not here: what they are for (`slack`, `sensitivity`).
"""

from __future__ import annotations

from typing import Any

from et_sim.compiled.decorators import entry

ALIKE_NS = 1e-3  # times that differ by less are equal: they are sums of doubles


@entry(allocates=False)
def latest_ends(by: Any, also: Any, spent: Any, latest: Any) -> None:
    """From the latest that some moments may come, the latest that all may."""
    for row in range(len(by) - 1, -1, -1):
        needed = latest[row] - spent[row]
        if by[row] >= 0 and needed < latest[by[row]]:
            latest[by[row]] = needed
        if also[row] >= 0 and needed < latest[also[row]]:
            latest[also[row]] = needed


@entry(allocates=False)
def posted_at(by: Any, goes_on: Any, posted: Any) -> None:
    """From when on it was known when each moment would come; `goes_on`: as for the one that it follows."""
    for row in range(len(by)):
        posted[row] = 0 if by[row] < 0 else posted[by[row]] if goes_on[row] else by[row]


@entry(allocates=False)
def times_and_slopes(
    by: Any,
    also: Any,
    scaled: Any,
    fixed: Any,
    figures: Any,
    factor: float,
    off: float,
    gradual: bool,
    towards: float,
    time: Any,
    slope: Any,
) -> None:
    """When everything comes if a moment takes the longer of `factor * scaled` and `fixed`, and how fast that
    changes with the factor: as it grows (`towards` 1) or falls (-1).

    Each of the figures that make up a duration is rounded by `off`; if `gradual`, by no more than it changes.
    """
    for row in range(len(by)):
        came, rate = 0.0, 0.0
        if by[row] >= 0:
            came, rate = time[by[row]], slope[by[row]]
        if also[row] >= 0:
            ahead = time[also[row]] - came
            if ahead > ALIKE_NS or (ahead > -ALIKE_NS and towards * (slope[also[row]] - rate) > 0):
                came, rate = time[also[row]], slope[also[row]]
        takes = factor * scaled[row]
        if off != 0 and figures[row] > 0:
            most = abs(off)
            if gradual:
                most = min(most, abs(factor - 1) * scaled[row])
            takes = max(takes + (most if off > 0 else -most) * figures[row], 0.0)
        if takes > fixed[row] + ALIKE_NS or (takes > fixed[row] - ALIKE_NS and towards > 0):
            rate += scaled[row]
        time[row] = came + max(takes, fixed[row])
        slope[row] = rate
