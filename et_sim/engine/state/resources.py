"""The resources of messages on their way, and their numbers.

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
NO_OWNER = -1


class LinkEnds(Struct, frozen=True, eq=False):
    """The devices at the ends of the links of a graph."""

    source: Any  # device at the start of each link: a row of `names`; NO_OWNER: not a link of a graph
    target: Any
    names: tuple[str, ...]
    rows: Any  # row in which each device is drawn; 0: it is an NPU

    def where(self, links: Any) -> LinkEnds:
        """Return the ends of some of the links."""
        return replace(self, source=self.source[links], target=self.target[links])

    def with_others(self, count: int, rows: int) -> LinkEnds:
        """Return these ends, with `count` links that are not of a graph behind the first `rows`."""
        source, target = (
            np.insert(column, [rows] * count, NO_OWNER) for column in (self.source, self.target)
        )
        return replace(self, source=source, target=target)


class Named(Struct, frozen=True, eq=False):
    """Links by owner and name: first those of a table, in order, then others that these represent."""

    row: Any  # row of the table that represents each link
    actor: Any
    port: Any
    links: Any  # number of links of this owner and name
    ranks: tuple[str | None, ...]  # ranks with the link; None: all of the actor's
    ends: LinkEnds | None

    def with_units(self, rows: int, units: Any, ports: Any) -> Named:
        """Add units of a pool behind the first `rows`, given the stand-in of each and its port."""
        count = len(units)
        there = np.full(count, rows)
        return Named(
            row=np.insert(self.row, there, rows + units),
            actor=np.insert(self.actor, there, NO_OWNER),
            port=np.insert(self.port, there, ports),
            links=np.insert(self.links, there, 1),
            ranks=(*self.ranks[:rows], *[None] * count, *self.ranks[rows:]),
            ends=None if self.ends is None else self.ends.with_others(count, rows),
        )


class ResourceTable(Struct, frozen=True, eq=False):
    """Resources by number, and the names of classes."""

    actor: Any  # owner of the resource; NO_OWNER: it lies between devices that are no ranks
    dimension: Any  # or level
    port: Any  # row of `port_names` among those of the actor
    port_names: tuple[str, ...]
    tier: Any  # class of links, such as those of a dimension: a row of `tier_names`
    tier_names: tuple[str, ...]
    bytes_per_ns: Any  # its capacity; 0: it has none, or there is no such link
    class_names: tuple[str, ...]
    are_links: bool  # they have a capacity that messages wait for
    are_shared: bool = False  # all messages on them share them fairly
    are_owned: bool = True  # the ranks of their actors own one each
    links: Any = None  # number of links of a row; None: one of each rank of the actor
    members: Any = None  # number of links over which a row's load is spread evenly; None: one
    ends: LinkEnds | None = None  # None: not links of a graph
    sizes: tuple[int, ...] = ()  # NPUs of each dimension, innermost first, if they lie in a grid
    named: Named | None = None  # None: rows represent no links of other names or owners
    shape: ResourceTable | None = None  # the same one for tables that differ in figures alone; None: not kept

    def __len__(self) -> int:
        return len(self.actor)

    def links_like(self, actor_of_rank: Any) -> Any:
        """Return the number of links that each row represents."""
        if self.links is not None:
            return self.links
        return np.where(self.actor == NO_OWNER, 1, np.bincount(actor_of_rank)[self.actor])

    def by_name(self, actor_of_rank: Any) -> Named:
        """Return all links by their owners and names."""
        if self.named is not None:
            return self.named
        rows, links = np.arange(len(self)), self.links_like(actor_of_rank)
        return Named(rows, self.actor, self.port, links, (None,) * len(self), self.ends)


def with_pool(
    resources: ResourceTable, units: PoolUnits, actor_of_rank: Any, rank_of_actor: Any
) -> ResourceTable:
    """Return the resources of a network, and behind them the units of a memory pool, a dimension per stage.

    A unit of the rank that an actor simulates represents those of the actor's other ranks.
    """
    if not len(units.stage):
        return resources
    count, stage = len(units.stage), units.stage
    stand_in = _stand_ins(units, actor_of_rank, rank_of_actor)
    links = np.concatenate((resources.links_like(actor_of_rank), np.bincount(stand_in, minlength=count)))
    ports = len(resources.port_names) + np.arange(count, dtype=np.int32)
    named = resources.by_name(actor_of_rank).with_units(len(resources), stand_in, ports)
    above = int(resources.dimension.max(initial=-1)) + 1
    return replace(
        resources,
        actor=np.concatenate((resources.actor, np.full(count, NO_OWNER, np.int32))),
        dimension=np.concatenate((resources.dimension, above + stage)),
        port=np.concatenate((resources.port, ports)),
        port_names=(*resources.port_names, *units.names),
        tier=np.concatenate((resources.tier, len(resources.tier_names) + stage)),
        tier_names=(*resources.tier_names, *units.stages),
        bytes_per_ns=np.concatenate((resources.bytes_per_ns, units.bytes_per_ns)),
        links=links,
        members=None
        if resources.members is None
        else np.concatenate((resources.members, np.ones(count, np.int64))),
        ends=None if resources.ends is None else resources.ends.with_others(count, len(resources)),
        are_shared=resources.are_shared or units.are_shared,
        named=named,
    )


def _stand_ins(units: PoolUnits, actor_of_rank: Any, rank_of_actor: Any) -> Any:
    """Return the simulated unit for each unit: for those of ranks, that of their actor's rank."""
    stand_in = np.arange(len(units.stage))
    own = np.flatnonzero(units.npu != SHARED)
    unit_of = np.zeros((len(units.stages), len(actor_of_rank)), np.int64)
    unit_of[units.stage[own], units.npu[own]] = own
    stand_in[own] = unit_of[units.stage[own], rank_of_actor[actor_of_rank[units.npu[own]]]]
    return stand_in


def sendings(
    tiers: int, actors: int, class_names: tuple[str, ...], tier_names: tuple[str, ...] = ()
) -> ResourceTable:
    """Return the sends of actors as resources, along each dimension or level, or over named tiers."""
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
