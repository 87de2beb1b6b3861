"""Remote memory: the figures of one memory, or a pool behind stages; and the file that describes them.

Each field with a key is that key of the memory file.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Any, ClassVar

from msgspec import Struct

from et_sim.documents.keys import (
    Key,
    Remarks,
    Section,
    Slot,
    ValueKind,
    key,
    keys_of,
    made,
    nearest,
    note_defaults,
    read_keys,
    show,
)
from et_sim.documents.kinds import NUMBER, choice, count, flag, integer, number, sections, size, text, time

MOST = 2**31 - 1  # largest number that the engine counts in 32 bits
MOST_UNITS, MOST_STAGES = 2**24, 64
_GB = "GB/s (10^9 bytes)"
of_pool = {"reference": "Not known."}
of_unit = partial(number, unit=_GB, above_minimum=True)


class MemoryKind(StrEnum):
    """The location of remote memory, and its sharing."""

    NONE = "NO_MEMORY_EXPANSION"
    PER_NPU = "PER_NPU_MEMORY_EXPANSION"
    PER_NODE = "PER_NODE_MEMORY_EXPANSION"
    POOL = "MEMORY_POOL"
    HIERARCHICAL_POOL = "HIERARCHICAL_POOL"


def stage_name(name: str) -> str:
    """Return the name of a stage, distinct from the links of the network."""
    return f"memory stage {name}"


class PoolStage(Struct, frozen=True):
    """Units of one kind that transfers pass: links, switches, or groups of memory. GB/s is bytes per ns."""

    more_keys: ClassVar[tuple[Key, ...]] = (
        Key("bandwidth", NUMBER, "Bandwidth of each unit.", unit=_GB, above_minimum=True),
    )
    name: str = text("Name of the stage, in tiers and in results.", required=True)
    count: int = count(
        "Number of units, such as switches. Consecutive NPUs share one; if there are more units than "
        "NPUs, each NPU has several of its own, which share its transfers evenly.",
        minimum=1,
        maximum=MOST_UNITS,
        required=True,
    )
    load_bandwidth: float = of_unit(  # of each unit, GB/s
        "Bandwidth of each unit for reads of NPUs, if it differs from `bandwidth`.", 0.0, name="load"
    )
    store_bandwidth: float = of_unit(
        "Bandwidth of each unit for writes of NPUs, if it differs from `bandwidth`.", 0.0, name="store"
    )
    latency_ns: float = time("Latency from a unit to the next stage.", 0.0)
    is_duplex: bool = flag(  # loads and stores do not share a unit
        "Loads and stores do not wait for each other in a unit.",
        False,
        name="duplex",
    )
    is_occupied: bool = flag(  # during the latency, too
        "A unit is also busy during its latency, like the remote memory of the reference.",
        False,
        name="latency-occupies",
    )

    @staticmethod
    def complete(given: Mapping[str, Any], section: Section, _: Remarks) -> dict[str, Any]:
        """Return both bandwidths; `bandwidth` stands for a missing one."""
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
        """Return the bandwidth of each unit in one direction."""
        return self.store_bandwidth if stores else self.load_bandwidth


class PoolTier(Struct, frozen=True):
    """A destination of requests: some of the stages, from the NPUs to the memory."""

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


PATHS = ValueKind(
    "named lists of names",
    lambda _: 'an object of lists of names, such as {"cpu": ["pcie", "dram"]}',
    _paths,
)


class MemoryPool(Struct, frozen=True):
    """The stages and tiers of a pool, and the size of the pieces that transfers are cut into."""

    chunk_bytes: int = size(
        "Most bytes of the equal pieces that transfers are cut into; pieces pass the stages one after the "
        "other. Required by HIERARCHICAL_POOL.",
        0,
        name="chunk",
        minimum=1,
        **of_pool,
    )
    stages: tuple[PoolStage, ...] = sections(
        "Stages that transfers pass, from the NPUs to the memory; required by HIERARCHICAL_POOL.",
        (),
        of=PoolStage,
        most=MOST_STAGES,
        **of_pool,
    )
    tiers: tuple[PoolTier, ...] = key(
        PATHS,
        "Memories that requests choose by their attribute `memory_tier`, and the stages on the path to "
        "each. Without the key: one tier, behind all stages.",
        (),
        **of_pool,
    )
    is_shared: bool = choice(  # transfers share units max-min fairly; else they take turns
        "Service of transfers that meet in a unit: one after the other (`in-turn`), or all at once, max-min "
        "fairly (`fair`).",
        False,
        name="sharing",
        choices=("in-turn", "fair"),
        becomes="fair".__eq__,
        **of_pool,
    )
    default_tier: int = text(
        "The tier of requests without `memory_tier`. Without the key: the first one.", 0, **of_pool
    )


class RemoteMemory(Struct, frozen=True):
    """Remote memory; bandwidth is decimal GB/s, so bytes per ns."""

    kind: MemoryKind = choice(
        "The location of remote memory: none, one per NPU, one per node, or one pool for all, whose NPUs "
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
        "Number of nodes; required by PER_NODE_MEMORY_EXPANSION.",
        0,
        stated=True,
        name="num-nodes",
        reference="Too few nodes, or none: a crash.",
        maximum=MOST,
    )
    npus_per_node: int = integer(
        "Number of consecutive ranks that share a node; required by PER_NODE_MEMORY_EXPANSION.",
        0,
        stated=True,
        name="num-npus-per-node",
        reference="0: a crash.",
        maximum=MOST,
    )
    pool: MemoryPool | None = None  # in place of all these figures


WHOLE = "pool"  # name of the only tier of a pool without `tiers`
PER_NODE_KEYS = ("num-nodes", "num-npus-per-node")
POOL_KEYS = keys_of(MemoryPool)
_UNREAD = "neither the reference nor this version of et-sim reads this key"
_EARLY = "Not read; sample files of before September 2023 have it."
MEMORY_KEYS = (
    *keys_of(RemoteMemory),
    *POOL_KEYS,
    Key("local-mem-latency", NUMBER, "No effect.", _EARLY, ignored=_UNREAD),
    Key(
        "local-mem-bw",
        NUMBER,
        "No effect here: give it in the system file.",
        _EARLY,
        ignored=f"{_UNREAD}; give it in the system file",
    ),
)


def read_memory(source: Section, ranks: int, remarks: Remarks) -> RemoteMemory:
    """Read the remote memory of a machine of `ranks` NPUs."""
    given = read_keys(source, MEMORY_KEYS, remarks)
    kind = given["memory-type"]
    _check_of_type(given, kind, source)
    if kind is MemoryKind.HIERARCHICAL_POOL:
        return RemoteMemory(kind, pool=_pool(given, source, ranks))
    in_effect = tuple(
        key
        for key in MEMORY_KEYS
        if key.name not in PER_NODE_KEYS or kind is MemoryKind.PER_NODE or key.name in given
    )
    if kind is not MemoryKind.NONE:
        note_defaults(given, in_effect, source, remarks)
    memory = made(RemoteMemory, given)
    if kind is MemoryKind.PER_NODE:
        _check_nodes(given, memory, ranks, source)
    if kind is not MemoryKind.NONE and memory.bandwidth == 0:
        # The reference divides by zero here, and converts the infinity to 0.
        text = "0, so a transfer takes only the latency, as in the reference"
        remarks.warn(source.place, "remote-mem-bw", text)
    return memory


def _check_of_type(given: dict[str, Any], kind: MemoryKind, source: Section) -> None:
    """Refuse keys of a pool in a file of another type, and the reverse."""
    is_pool = kind is MemoryKind.HIERARCHICAL_POOL
    foreign = keys_of(RemoteMemory)[1:] if is_pool else POOL_KEYS
    remedy = 'describe "stages"' if is_pool else '"memory-type": "HIERARCHICAL_POOL", or leave it out'
    for other in foreign:
        if other.name in given:
            raise source.fault(f'key "{other.name}" is not supported by {kind}', remedy)


def _check_nodes(given: dict[str, Any], memory: RemoteMemory, ranks: int, source: Section) -> None:
    for name, given_count in zip(PER_NODE_KEYS, (memory.nodes, memory.npus_per_node), strict=True):
        if given_count < 1:
            state = "is 0" if name in given else "is missing"
            raise source.fault(
                f'key "{name}" {state}: PER_NODE_MEMORY_EXPANSION requires it', "allowed: an integer >= 1"
            )
    places = memory.nodes * memory.npus_per_node
    if places < ranks:
        raise source.fault(
            f'"num-nodes" {memory.nodes} x "num-npus-per-node" {memory.npus_per_node} makes room for '
            f"{places} NPUs, the network has {ranks}",
            f"allowed: num-nodes x num-npus-per-node >= {ranks}",
        )


def _pool(given: dict[str, Any], source: Section, ranks: int) -> MemoryPool:
    """Build the pool of the checked values for a number of NPUs."""
    for name in ("chunk", "stages"):
        if name not in given:
            raise source.fault(
                f'key "{name}" is missing: HIERARCHICAL_POOL requires it',
                'give "chunk", such as "64KiB", and "stages", a list from the NPUs to the memory',
            )
    for index, stage in enumerate(given["stages"]):
        if ranks % stage.count and stage.count % ranks:
            raise source.entry("stages", {}, index).fault(
                f'key "count" is {stage.count}, and {ranks} NPUs cannot be divided evenly among them',
                f"take a divisor of {ranks}, or a multiple",
            )
    stages = [stage.name for stage in given["stages"]]
    tiers = _tiers(given.get("tiers"), stages, source)
    names = [tier.name for tier in tiers]
    default = given.get("default-tier", names[0])
    if default not in names:
        raise source.fault(
            f'key "default-tier" is {show(default)}, which is no tier',
            nearest(default, names) or f"known: {', '.join(names)}",
        )
    pool = made(MemoryPool, {**given, "tiers": tiers, "default-tier": names.index(default)})
    if pool.is_shared and any(stage.is_occupied for stage in pool.stages):
        raise source.fault('key "latency-occupies" is not supported with "sharing": "fair"', "leave it out")
    return pool


def _tiers(given: dict[str, Any] | None, stages: list[str], source: Section) -> tuple[PoolTier, ...]:
    if given is None:
        return (PoolTier(WHOLE, tuple(range(len(stages)))),)
    tiers = []
    for tier, names in given.items():
        for name in names:
            if name not in stages:
                raise source.fault(
                    f'key "tiers": {show(tier)} names {show(name)}, which is no stage',
                    nearest(name, stages) or f"known: {', '.join(stages)}",
                )
        tiers.append(PoolTier(tier, tuple(stages.index(name) for name in names)))
    unused = set(range(len(stages))) - {stage for tier in tiers for stage in tier.stages}
    if unused:
        raise source.fault(
            f'stage "{stages[min(unused)]}" is in no tier', 'name it in "tiers", or leave it out'
        )
    return tuple(tiers)
