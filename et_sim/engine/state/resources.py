"""What messages occupy on their way, under numbers that are given once.

First come resources, such as the links of the link model, then the classes of links that share their figures
(a dimension, or single links that differ from theirs). The engine numbers both from zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from et_sim.plan.pool_tables import SHARED, PoolUnits

SENDING = "all it sends"  # where there are no links
NOBODY = -1


class Ends(Struct, frozen=True, eq=False):
    """Devices between which the links of a graph lead."""

    source: Any  # of each link, the device that it leaves: a row of `names`; NOBODY: it is no link of a graph
    target: Any
    names: tuple[str, ...]
    rows: Any  # of each device, that in which it is drawn; 0: it is an NPU

    def where(self, links: Any) -> Ends:
        """Some of the links."""
        return replace(self, source=self.source[links], target=self.target[links])

    def with_others(self, count: int) -> Ends:
        """These, and behind them this many that are no links of a graph."""
        none = np.full(count, NOBODY, np.int32)
        source, target = (np.concatenate((column, none)) for column in (self.source, self.target))
        return replace(self, source=source, target=target)


class ResourceTable(Struct, frozen=True, eq=False):
    """Resources by number, and the names of classes."""

    actor: Any  # that owns the resource; NOBODY: it lies between devices that are no ranks
    dimension: Any  # or level
    port: Any  # which of the actor's there: a row of `port_names`
    port_names: tuple[str, ...]
    tier: Any  # links of one sort, such as those of a dimension: a row of `tier_names`
    tier_names: tuple[str, ...]
    bytes_per_ns: Any  # its capacity; 0: it has none, or there is no such link
    class_names: tuple[str, ...]
    are_links: bool  # which have a capacity that messages wait for
    are_shared: bool = False  # fairly by all messages that are on them
    are_owned: bool = True  # by the ranks of their actors, each of which has one like it
    are_tiers: bool = False  # a row is all links of a tier that an actor's messages cross
    links: Any = None  # how many links a row stands for; None: one of each rank of the actor
    members: Any = None  # among how many links what a row carries is spread evenly; None: it is one link
    ends: Ends | None = None  # None: these are no links of a graph
    sizes: tuple[int, ...] = ()  # NPUs of each dimension, innermost first, if they lie in a grid

    def __len__(self) -> int:
        return len(self.actor)

    def links_like(self, actor_of_rank: Any) -> Any:
        """How many links each row stands for."""
        if self.links is not None:
            return self.links
        return np.where(self.actor == NOBODY, 1, np.bincount(actor_of_rank)[self.actor])


def with_pool(
    resources: ResourceTable, units: PoolUnits, actor_of_rank: Any, rank_of_actor: Any
) -> ResourceTable:
    """The resources of a network, and behind them the units of a memory pool: one more dimension a stage.

    Of units that ranks have for themselves, that of the rank which an actor simulates stands for the others.
    """
    if not len(units.stage):
        return resources
    rows, stage = len(units.stage), units.stage
    actor = actor_of_rank[units.npu]  # of shared ones it does not count
    stands = np.where(rank_of_actor[actor] == units.npu, np.bincount(actor_of_rank)[actor], 0)
    of_units = np.where(units.npu == SHARED, 1, stands)
    links = np.concatenate((resources.links_like(actor_of_rank), of_units))
    ports = len(resources.port_names) + np.arange(rows, dtype=np.int32)
    above = int(resources.dimension.max(initial=-1)) + 1
    return replace(
        resources,
        actor=np.concatenate((resources.actor, np.full(rows, NOBODY, np.int32))),
        dimension=np.concatenate((resources.dimension, above + stage)),
        port=np.concatenate((resources.port, ports)),
        port_names=(*resources.port_names, *units.names),
        tier=np.concatenate((resources.tier, len(resources.tier_names) + stage)),
        tier_names=(*resources.tier_names, *units.stages),
        bytes_per_ns=np.concatenate((resources.bytes_per_ns, units.bytes_per_ns)),
        links=links,
        members=None
        if resources.members is None
        else np.concatenate((resources.members, np.ones(rows, np.int64))),
        ends=None if resources.ends is None else resources.ends.with_others(rows),
        are_shared=resources.are_shared or units.are_shared,
    )


def sendings(
    tiers: int, actors: int, class_names: tuple[str, ...], tier_names: tuple[str, ...] = ()
) -> ResourceTable:
    """All that an actor sends along each of some dimensions or levels, or over tiers with names."""
    of_tier = np.tile(np.arange(tiers, dtype=np.int32), actors)
    return ResourceTable(
        actor=np.repeat(np.arange(actors, dtype=np.int32), tiers),
        dimension=of_tier,
        port=np.zeros(actors * tiers, np.int32),
        port_names=(SENDING,),
        tier=of_tier,
        tier_names=tier_names or tuple(f"dimension {number}" for number in range(tiers)),
        bytes_per_ns=np.zeros(actors * tiers),
        class_names=class_names,
        are_links=False,
    )
