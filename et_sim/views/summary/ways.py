"""Paths of messages through a graph, and the imbalance that a hash causes."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from et_sim.basics.units import plural

if TYPE_CHECKING:
    from et_sim.tables.summary import Summary
    from et_sim.views.run.topology import TierUse

WAYS = MappingProxyType(
    {
        "spread": "messages spread evenly over equal ways",
        "shortest": "of equal ways, messages take the one that was made first",
        "destination": "of equal ways, the number of the target picks one",
        "ecmp": "of equal ways, a hash of source and target picks one",
        "ecmp-ns3": "of equal ways, a hash picks one for each message",
        "valiant": "for each message, a hash picks a group to go by",
        "dimension-order": "messages cross one dimension after the other",
    }
)
WITHOUT_CHOICE = ("shortest", "dimension-order")  # networks have these as their default, without a choice
HASHED = ("ecmp", "ecmp-ns3", "valiant")


def routing_text(summary: Summary) -> str:
    """Return how messages are routed, and the number of actors after a hash; empty if there is no choice."""
    routing = summary.get("routing")
    if routing is None or (routing["is_default"] and routing["name"] in WITHOUT_CHOICE):
        return ""
    default = ", the default" if routing["is_default"] else ""
    text = f"{WAYS[routing['name']]} (routing: {routing['name']}{default})"
    actors = routing["actors_by_hash"]
    if actors is None or actors == 1:
        return text
    return f"{text}; the hash differs by rank, and {plural(actors, 'actor')} are simulated"


def imbalance_notes(summary: Summary, tiers: Sequence[TierUse]) -> list[str]:
    """Return, by tier, the load of the fullest link over the mean of its links, if a hash picks ways."""
    routing = summary.get("routing")
    if routing is None or routing["name"] not in HASHED:
        return []
    loads = [
        f"{tier.most_used / tier.used:.2f} in {tier.tier}"
        for tier in tiers
        if tier.links is not None and tier.used > 0 and round(tier.most_used / tier.used, 2) > 1
    ]
    if not loads:
        return []
    return [f"imbalance: the fullest link by the mean of its tier, {', '.join(loads)}"]
