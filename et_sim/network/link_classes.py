"""Classes of links in folded runs: the record of one link represents all links of its class."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.unique import groups_of
from et_sim.basics.units import format_ranks
from et_sim.engine.state.resources import NO_OWNER, Named, ResourceTable
from et_sim.machine.model import GridFabric, Network
from et_sim.network.outages import marks_of_links
from et_sim.plan.records import LoweredPlan


def kinds_of_links(network: Network, links: ResourceTable, speed: Any, fails: Any = None) -> Any:
    """Return a number for the figures of each link, with which its class begins; `fails`: by link, a number
    for its failures.
    """
    of_port = links.port if isinstance(network.fabric, GridFabric) else np.zeros_like(links.port)
    members = np.zeros_like(links.port) if links.members is None else links.members
    if fails is None:
        fails = marks_of_links(network) if network.failures else np.zeros_like(links.port)
    return groups_of(links.tier, of_port, speed, members, fails).of_row


def classes_of_links(plan: LoweredPlan, links: int) -> tuple[Any, Any]:
    """Return the class of each link and the first link of each class."""
    if plan.link_classes is None:
        return np.arange(links, dtype=np.int32), np.arange(links)
    return plan.link_classes, np.unique(plan.link_classes, return_index=True)[1]


def first_of_classes(links: ResourceTable, plan: LoweredPlan) -> ResourceTable:
    """Return the first link of each class, with the names of all."""
    if links.shape is None:
        return _first_of_classes(plan, links)
    made, (_, first) = (
        plan.derived(_first_of_classes, links.shape),
        plan.derived(classes_of_links, len(links)),
    )
    return replace(made, bytes_per_ns=links.bytes_per_ns[first], class_names=links.class_names)


def _first_of_classes(plan: LoweredPlan, links: ResourceTable) -> ResourceTable:
    class_of, first = plan.derived(classes_of_links, len(links))
    actor = np.where(links.actor == NO_OWNER, NO_OWNER, plan.actor_of_rank[links.actor])
    return replace(
        links,
        actor=actor[first],
        dimension=links.dimension[first],
        port=links.port[first],
        tier=links.tier[first],
        bytes_per_ns=links.bytes_per_ns[first],
        links=np.bincount(class_of, links.members).astype(np.int64),
        members=None if links.members is None else links.members[first],
        ends=None if links.ends is None else links.ends.where(first),
        named=None if plan.link_classes is None else _named(links, class_of, actor, plan.actor_of_rank),
    )


def _named(links: ResourceTable, class_of: Any, actor: Any, actor_of_rank: Any) -> Named:
    """Return links by class, actor and name, the first of each class before all others."""
    of_actor = class_of.astype(np.int64) * (int(actor.max()) + 2) + actor + 1
    key = of_actor * len(links.port_names) + links.port
    _, at, of_link, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    is_first = at == np.unique(class_of, return_index=True)[1][class_of[at]]
    order = np.lexsort((np.where(is_first, class_of[at], at), ~is_first))
    owners = np.split(links.actor[np.argsort(of_link, kind="stable")], np.cumsum(counts)[:-1])
    most = np.append(np.bincount(actor_of_rank), 1)[actor[at]]  # the last entry: links without an owner
    ranks = tuple(
        format_ranks(owners[name]) if counts[name] < most[name] else None for name in order.tolist()
    )
    at = at[order]
    return Named(
        row=class_of[at],
        actor=actor[at],
        port=links.port[at],
        links=np.bincount(of_link, links.members).astype(np.int64)[order],
        ranks=ranks,
        ends=None if links.ends is None else links.ends.where(at),
    )
