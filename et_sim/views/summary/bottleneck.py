"""The bottleneck of the network in one line: the most loaded link, and how its tier compares.

Not here: how loaded the other links are (`links`).
"""

from __future__ import annotations

from typing import Any

from et_sim.basics.units import plural
from et_sim.views.summary.rank_table import called
from et_sim.views.text import share

MOST_LETTERS = 24  # of a list of ranks


def bottleneck_text(summary: dict[str, Any]) -> str:
    """Empty if nothing was carried, or it was not counted."""
    found = summary["bottleneck"]
    if found is None:
        reason = summary["bottleneck_unknown"]
        return f"not known: {reason}" if reason else ""
    waits = "" if found["has_contention"] else "; nothing waits on this model"
    return f"{_load(found)}{waits}"


def _load(found: dict[str, Any]) -> str:
    used, tier, links, alike = (found[name] for name in ("used", "tier", "tier_links", "links_as_loaded"))
    percent = share(used, 1)
    if found["of"] == "rate":
        passes = "passes" if found["has_contention"] else "would pass"
        rate = f"{passes} data on at its rate for {percent} of the run"
        return f"{tier}: the busiest switch {rate}, more than any link"
    if found["of"] == "time":  # all that a rank sends, whichever links it takes
        ranks = found["ranks"]
        whose = called(ranks, MOST_LETTERS)
        if not ranks.isdecimal():
            whose = "each rank" if alike == links else f"each of {whose}"
        return f"{tier}: what {whose} sends takes {percent} of the run, message after message"
    several, one = ("use", "uses") if found["has_contention"] else ("would need", "would need")
    if alike == links:
        them = "its link" if links == 1 else f"each of its {links:,} links"
        return f"{tier}: {them} {one} {percent} of its bandwidth over the run"
    others = alike - found["links"]
    more = f" and {plural(others, 'other')}" if others else ""
    name = (
        found["link"]
        if found["ranks"] is None
        else f"{found['link']}, {called(found['ranks'], MOST_LETTERS)}"
    )
    verb, whose = (one, "its") if alike == 1 else (several, "their")
    of_tier = f"the tier's {links:,} links {share(found['tier_used'], 1)}"
    return f"{name}{more} ({tier}): {verb} {percent} of {whose} bandwidth over the run; {of_tier}"
