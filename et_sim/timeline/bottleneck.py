"""The bottleneck of the network: the link that had the most to carry for its bandwidth, and its tier.

Not here: what the run's time went to, which need not be the network (`statistics`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.engine.load import Load
from et_sim.units import format_ranks

AS_LOADED = 0.99  # of the most loaded link: links from here on are as loaded


def bottleneck(load: Load | None, actor_of_rank: Any, time_ns: int) -> dict[str, Any] | None:
    """The most loaded link and its tier; None if nothing was carried, or links are not told apart."""
    if load is None or time_ns == 0 or load.resources.are_tiers:
        return None
    resources, used = load.resources, _used(load) / time_ns
    if not used.any():
        return None
    has_bandwidth = (resources.bytes_per_ns > 0).any()
    alike_links = resources.links_like(actor_of_rank)
    links = alike_links * ((resources.bytes_per_ns > 0) | ~has_bandwidth)
    counts = np.bincount(resources.tier, links, len(resources.tier_names))
    sums = np.bincount(resources.tier, used * alike_links, len(counts))
    at = int(np.argmax(used))
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


def _used(load: Load) -> Any:
    """How many nanoseconds each resource needs at full speed."""
    rate = load.resources.bytes_per_ns
    return np.where(rate > 0, load.bytes / np.where(rate > 0, rate, 1), load.busy_ns)
