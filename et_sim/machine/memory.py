"""Remote memory, declared: figures of one memory, or a pool behind stages.

Each field with a key is that key of the memory file. Not here: what keys must be together (`memory_file`),
and what a request costs (`et_sim.memory`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar

from msgspec import Struct

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.documents.keys import Key, Kind, Remarks, Section, Slot, key
from et_sim.documents.kinds import (
    NUMBER,
    choice,
    count,
    flag,
    integer,
    number,
    sections,
    size,
    text,
    time,
)

MOST = 2**31 - 1  # of what the engine counts in 32 bits
MOST_UNITS, MOST_STAGES = 2**24, 64
_GB = "GB/s (10^9 bytes)"
of_pool = {"reference": "Not known."}
of_unit = partial(number, unit=_GB, above_minimum=True)


class MemoryKind(StrEnum):
    """Where remote memory lives, and who shares what on the way."""

    NONE = "NO_MEMORY_EXPANSION"
    PER_NPU = "PER_NPU_MEMORY_EXPANSION"
    PER_NODE = "PER_NODE_MEMORY_EXPANSION"
    POOL = "MEMORY_POOL"
    HIERARCHICAL_POOL = "HIERARCHICAL_POOL"


def stage_name(name: str) -> str:
    """What a stage is called beside links of the network."""
    return f"memory stage {name}"


@quick_dataclass(frozen=True)
class PoolStage:
    """Units of one sort that transfers pass: links, switches, or groups of memory. GB/s is bytes per ns."""

    more_keys: ClassVar[tuple[Key, ...]] = (
        Key("bandwidth", NUMBER, "Of each unit.", unit=_GB, above_minimum=True),
    )
    name: str = text("What the stage is called, in tiers and in results.", required=True)
    count: int = count(
        "How many units it has, such as switches. Consecutive NPUs share one; if there are more units than "
        "NPUs, each NPU has several of its own, which share its transfers evenly.",
        minimum=1,
        maximum=MOST_UNITS,
        required=True,
    )
    load_bandwidth: float = of_unit(  # of each unit, GB/s
        "Of each unit when NPUs read, if that differs from `bandwidth`.", 0.0, name="load"
    )
    store_bandwidth: float = of_unit(
        "Of each unit when NPUs write, if that differs from `bandwidth`.", 0.0, name="store"
    )
    latency_ns: float = time("From a unit to the next stage; none if it is not given.", 0.0)
    is_duplex: bool = flag(  # loads and stores do not share a unit
        "Whether loads and stores do not wait for each other in a unit; default: they do.",
        False,
        name="duplex",
    )
    is_occupied: bool = flag(  # during the latency, too
        "Whether a unit is busy during its latency, too, as the remote memory of the reference is; "
        "default: it is not.",
        False,
        name="latency-occupies",
    )

    @staticmethod
    def complete(given: Mapping[str, Any], section: Section, _: Remarks) -> dict[str, Any]:
        """Both bandwidths, each given or that of both."""
        both = {name: given.get(name, given.get("bandwidth")) for name in ("load", "store")}
        missing = [name for name, figure in both.items() if figure is None]
        if missing:
            raise section.fault(
                f'key "{missing[0] if len(missing) == 1 else "bandwidth"}" is missing: the stage has no '
                "bandwidth",
                'give "bandwidth", or both "load" and "store", in GB/s',
            )
        if {"bandwidth", "load", "store"} <= given.keys():
            raise section.fault('key "bandwidth" has no effect beside "load" and "store"', "leave it out")
        return both

    def bandwidth(self, *, stores: bool) -> float:
        """Of each unit, in one direction."""
        return self.store_bandwidth if stores else self.load_bandwidth


class PoolTier(Struct, frozen=True):
    """Where requests may go: some of the stages, from the NPUs to the memory."""

    name: str
    stages: tuple[int, ...]


def _paths(slot: Slot, value: Any) -> dict[str, tuple[str, ...]]:
    if not value or not isinstance(value, dict):
        raise slot.refusal(value)
    for names in value.values():
        is_list = isinstance(names, list) and all(isinstance(name, str) and name for name in names)
        if not is_list or not 0 < len(names) == len(set(names)):
            raise slot.refusal(value)
    return {tier: tuple(names) for tier, names in value.items()}


PATHS = Kind(
    "named lists of names",
    lambda _: 'an object of lists of names, such as {"cpu": ["pcie", "dram"]}',
    _paths,
)


@quick_dataclass(frozen=True)
class MemoryPool:
    """Stages, tiers, and the most bytes of a transfer that pass a stage in one piece."""

    chunk_bytes: int = size(
        "Transfers are cut into equal pieces of at most so many bytes, which pass the stages one behind the "
        "other; required by HIERARCHICAL_POOL.",
        0,
        name="chunk",
        minimum=1,
        **of_pool,
    )
    stages: tuple[PoolStage, ...] = sections(
        "What transfers pass, from the NPUs to the memory; required by HIERARCHICAL_POOL.",
        (),
        of=PoolStage,
        most=MOST_STAGES,
        **of_pool,
    )
    tiers: tuple[PoolTier, ...] = key(
        PATHS,
        "Memories that requests choose between by their attribute `memory_tier`, and the stages on the way "
        "to each; without it there is one, behind all stages.",
        (),
        **of_pool,
    )
    is_shared: bool = choice(  # units fairly, by all transfers that pass them; else these take turns
        "Whether transfers that meet in a unit are served one after the other, or all at once, max-min "
        "fairly; default: in turn.",
        False,
        name="sharing",
        choices=("in-turn", "fair"),
        becomes="fair".__eq__,
        **of_pool,
    )
    default_tier: int = text("The tier of requests that name none; without it the first one.", 0, **of_pool)


@quick_dataclass(frozen=True)
class RemoteMemory:
    """Remote memory; bandwidth is decimal GB/s, so bytes per ns."""

    kind: MemoryKind = choice(
        "Where remote memory lives: nowhere, one per NPU, one per node, or one pool for all, whose NPUs "
        "take turns; or a pool behind stages.",
        MemoryKind.NONE,
        name="memory-type",
        reference="Missing: uninitialised memory.",
        choices=MemoryKind,
        required=True,
    )
    latency_ns: int = integer(
        "Time before a transfer starts.", 0, stated=True, name="remote-mem-latency", unit="ns"
    )
    bandwidth: int = integer(
        "Bandwidth of one remote memory.",
        0,
        stated=True,
        name="remote-mem-bw",
        reference="Fractions are cut off, so 0.5 is 0; with 0 a transfer takes only the latency.",
        unit=_GB,
    )
    nodes: int = integer(
        "How many nodes there are; required by PER_NODE_MEMORY_EXPANSION.",
        0,
        stated=True,
        name="num-nodes",
        reference="Too few nodes, or none: a crash.",
        maximum=MOST,
    )
    npus_per_node: int = integer(
        "How many consecutive ranks share a node; required by PER_NODE_MEMORY_EXPANSION.",
        0,
        stated=True,
        name="num-npus-per-node",
        reference="0: a crash.",
        maximum=MOST,
    )
    pool: MemoryPool | None = None  # in place of all these figures
