"""The bottleneck of the network: the link that had the most to carry for its bandwidth, and its tier.

Not here: what the run's time went to, which need not be the network (`statistics`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.units import format_ranks
from et_sim.engine.outcome import NetworkLoad

AS_LOADED = 0.99  # of the most loaded link: links from here on are as loaded
SAME = 1 - 1e-9  # of it: fractions that differ by less are equal, but for rounding
FOLDED = "ranks are folded, and the analytical model does not tell their links apart: --no-fold"


def bottleneck(load: NetworkLoad | None, actor_of_rank: Any, time_ns: int) -> dict[str, Any] | None:
    """The most loaded link and its tier, or class of switches; None if nothing was carried, or counted."""
    if load is None or time_ns == 0 or load.resources.are_tiers or not load.bytes.any():
        return None
    resources, used = load.resources, _used(load) / time_ns
    of_switches = max(load.switches_ns.values(), default=0.0) / time_ns
    if of_switches > used.max():
        return _of_switches(load, of_switches)
    has_bandwidth = (resources.bytes_per_ns > 0).any()
    alike_links = resources.links_like(actor_of_rank)
    links = alike_links * ((resources.bytes_per_ns > 0) | ~has_bandwidth)
    counts = np.bincount(resources.tier, links, len(resources.tier_names))
    sums = np.bincount(resources.tier, used * alike_links, len(counts))
    at = _first(resources, np.flatnonzero(used >= SAME * used.max()), actor_of_rank)
    tier, most = int(resources.tier[at]), float(used[at])
    alike = (resources.tier == tier) & (used >= AS_LOADED * most)
    named, as_loaded, ranks = 1, int(links[alike].sum()), None
    if resources.are_owned:
        alike &= resources.port == resources.port[at]
        owners = np.isin(actor_of_rank, resources.actor[alike])
        named, ranks = int(links[alike].sum()), format_ranks(np.flatnonzero(owners).tolist())
    return {
        "tier": resources.tier_names[tier],
        "link": resources.port_names[resources.port[at]],
        "ranks": ranks,
        "used": round(most, 6),
        "links": int(named),
        "links_as_loaded": as_loaded,
        "tier_links": int(counts[tier]),
        "tier_used": round(float(sums[tier] / counts[tier]), 6),
        "of": "bandwidth" if has_bandwidth else "time",
        "has_contention": resources.are_links,
    }


def why_unknown(load: NetworkLoad | None) -> str | None:
    """Why no bottleneck is known though links were recorded; None: there is one, or nothing was carried."""
    is_unknown = load is not None and load.resources.are_tiers and load.bytes.any()
    return FOLDED if is_unknown else None


def _of_switches(load: NetworkLoad, used: float) -> dict[str, Any]:
    """How many switches are as loaded is left out: where ranks are folded, one stands for others."""
    kind = max(load.switches_ns, key=lambda name: load.switches_ns[name])
    unsaid = dict.fromkeys(("link", "ranks", "links", "links_as_loaded", "tier_links", "tier_used"))
    contention = {"has_contention": load.resources.are_links}
    return {"tier": kind, "used": round(used, 6), "of": "rate", **contention, **unsaid}


def _first(resources: Any, rows: Any, actor_of_rank: Any) -> int:
    """Of links that are loaded alike the first one, the same whether links are folded or not."""
    if not resources.are_owned:
        return int(rows[np.argmin(resources.port[rows])])
    lowest = np.unique(actor_of_rank, return_index=True)[1][resources.actor[rows]]
    return int(rows[np.lexsort((resources.port[rows], lowest, resources.tier[rows]))[0]])


def _used(load: NetworkLoad) -> Any:
    """How many nanoseconds each resource needs at full speed."""
    rate = load.resources.bytes_per_ns
    return np.where(rate > 0, load.bytes / np.where(rate > 0, rate, 1), load.busy_ns)
