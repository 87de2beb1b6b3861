"""The remote-memory file: what its keys must be together.

Not here: single keys (`memory`), local memory (the system file), and how requests queue (`et_sim.memory`).
"""

from __future__ import annotations

from typing import Any

from et_sim.documents.keys import (
    Key,
    Remarks,
    Section,
    keys_of,
    made,
    nearest,
    note_defaults,
    read_keys,
    show,
)
from et_sim.documents.kinds import NUMBER
from et_sim.machine.memory import MemoryKind, MemoryPool, PoolTier, RemoteMemory

WHOLE = "pool"  # the only tier, where none are named
PER_NODE_KEYS = ("num-nodes", "num-npus-per-node")
POOL_KEYS = keys_of(MemoryPool)
_UNREAD = "the reference accepts this key and does not read it, and neither does et-sim in this version"
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
    """The remote memory that the source describes, for a machine of `ranks` NPUs."""
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
        note_defaults(given, in_effect, source.place, remarks)
    memory = made(RemoteMemory, given)
    if kind is MemoryKind.PER_NODE:
        _check_nodes(given, memory, ranks, source)
    if kind is not MemoryKind.NONE and memory.bandwidth == 0:
        # The reference divides by zero here and the infinity becomes 0 when made an integer.
        text = "0, so a transfer takes only the latency, as in the reference"
        remarks.warn(source.place, "remote-mem-bw", text)
    return memory


def _check_of_type(given: dict[str, Any], kind: MemoryKind, source: Section) -> None:
    """Refuse keys of a pool in a file of another type, and the other way round."""
    is_pool = kind is MemoryKind.HIERARCHICAL_POOL
    foreign = keys_of(RemoteMemory)[1:] if is_pool else POOL_KEYS
    remedy = 'describe "stages"' if is_pool else '"memory-type": "HIERARCHICAL_POOL", or leave it out'
    for key in foreign:
        if key.name in given:
            raise source.fault(f'key "{key.name}" means nothing to {kind}', remedy)


def _check_nodes(given: dict[str, Any], memory: RemoteMemory, ranks: int, source: Section) -> None:
    for name, count in zip(PER_NODE_KEYS, (memory.nodes, memory.npus_per_node), strict=True):
        if count < 1:
            state = "is 0" if name in given else "is missing"
            raise source.fault(
                f'key "{name}" {state}: PER_NODE_MEMORY_EXPANSION needs it', "allowed: an integer >= 1"
            )
    places = memory.nodes * memory.npus_per_node
    if places < ranks:
        raise source.fault(
            f'"num-nodes" {memory.nodes} x "num-npus-per-node" {memory.npus_per_node} makes room for '
            f"{places} NPUs, the network has {ranks}",
            f"allowed: num-nodes x num-npus-per-node >= {ranks}",
        )


def _pool(given: dict[str, Any], source: Section, ranks: int) -> MemoryPool:
    """The pool that the checked values describe, for the given number of NPUs."""
    for name in ("chunk", "stages"):
        if name not in given:
            raise source.fault(
                f'key "{name}" is missing: HIERARCHICAL_POOL needs it',
                'give "chunk", such as "64KiB", and "stages", a list from the NPUs to the memory',
            )
    for index, stage in enumerate(given["stages"]):
        if ranks % stage.count and stage.count % ranks:
            raise source.entry("stages", {}, index).fault(
                f'key "count" is {stage.count}, among which {ranks} NPUs cannot be parted evenly',
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
        raise source.fault('key "latency-occupies" means nothing with "sharing": "fair"', "leave it out")
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
