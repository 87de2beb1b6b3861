"""The remote-memory file.

Not here: local memory (the system file), and how requests queue (`et_sim.memory`).
"""

from __future__ import annotations

from typing import Any

from et_sim.basics.errors import MachineError
from et_sim.machine.checks import fill_defaults, nearest, read_keys, show
from et_sim.machine.keys import Remarks
from et_sim.machine.model import MemoryKind, RemoteMemory
from et_sim.machine.pool import MemoryPool, PoolStage, PoolTier
from et_sim.machine.pool_tables import MOST_STAGES, POOL_KEYS, STAGE_KEYS
from et_sim.machine.sources import Source
from et_sim.machine.tables import MEMORY_KEYS

FAIR = "fair"
WHOLE = "pool"  # the only tier, where none are named


def read_pool(given: dict[str, Any], place: str, ranks: int, remarks: Remarks) -> MemoryPool:
    """The pool that the checked values of a memory file describe, for so many NPUs."""
    for name in ("chunk", "stages"):
        if name not in given:
            raise MachineError(
                f'key "{name}" is missing: HIERARCHICAL_POOL needs it',
                place=place,
                remedy='give "chunk", such as "64KiB", and "stages", a list from the NPUs to the memory',
            )
    if len(given["stages"]) > MOST_STAGES:
        raise MachineError(
            f'key "stages" has {len(given["stages"])} entries',
            place=place,
            remedy=f"allowed: up to {MOST_STAGES}",
        )
    stages: list[PoolStage] = []
    for index, entry in enumerate(given["stages"]):
        stage = _stage(Source(f'{place}: "stages" index {index}', entry, ""), ranks, remarks)
        if stage.name in (other.name for other in stages):
            raise MachineError(
                f'two stages are called "{stage.name}"', place=place, remedy="give each a name of its own"
            )
        stages.append(stage)
    tiers = _tiers(given.get("tiers"), [stage.name for stage in stages], place)
    names = [tier.name for tier in tiers]
    default = given.get("default-tier", names[0])
    if default not in names:
        raise MachineError(
            f'key "default-tier" is {show(default)}, which is no tier',
            place=place,
            remedy=nearest(default, names) or f"known: {', '.join(names)}",
        )
    is_shared = given.get("sharing") == FAIR
    if is_shared and any(stage.is_occupied for stage in stages):
        raise MachineError(
            f'key "latency-occupies" means nothing with "sharing": "{FAIR}"',
            place=place,
            remedy="leave it out",
        )
    return MemoryPool(given["chunk"], tuple(stages), tiers, names.index(default), is_shared)


def _stage(source: Source, ranks: int, remarks: Remarks) -> PoolStage:
    given = read_keys(source, STAGE_KEYS, remarks)
    load, store = (given.get(name, given.get("bandwidth")) for name in ("load", "store"))
    if load is None or store is None:
        missing = "bandwidth" if load is store else "load" if load is None else "store"
        raise MachineError(
            f'key "{missing}" is missing: the stage has no bandwidth',
            place=source.place,
            remedy='give "bandwidth", or both "load" and "store", in GB/s',
        )
    if "bandwidth" in given and "load" in given and "store" in given:
        raise MachineError(
            'key "bandwidth" has no effect beside "load" and "store"',
            place=source.place,
            remedy="leave it out",
        )
    count = given["count"]
    if ranks % count and count % ranks:
        raise MachineError(
            f'key "count" is {count}, among which {ranks} NPUs cannot be parted evenly',
            place=source.place,
            remedy=f"take a divisor of {ranks}, or a multiple",
        )
    return PoolStage(
        given["name"],
        count,
        load,
        store,
        float(given.get("latency", 0.0)),
        given.get("duplex", False),
        given.get("latency-occupies", False),
    )


def _tiers(given: dict[str, tuple[str, ...]] | None, stages: list[str], place: str) -> tuple[PoolTier, ...]:
    if given is None:
        return (PoolTier(WHOLE, tuple(range(len(stages)))),)
    tiers = []
    for tier, names in given.items():
        for name in names:
            if name not in stages:
                raise MachineError(
                    f'key "tiers": {show(tier)} names {show(name)}, which is no stage',
                    place=place,
                    remedy=nearest(name, stages) or f"known: {', '.join(stages)}",
                )
        tiers.append(PoolTier(tier, tuple(stages.index(name) for name in names)))
    unused = set(range(len(stages))) - {stage for tier in tiers for stage in tier.stages}
    if unused:
        raise MachineError(
            f'stage "{stages[min(unused)]}" is in no tier',
            place=place,
            remedy='name it in "tiers", or leave it out',
        )
    return tuple(tiers)


_PER_NODE_KEYS = ("num-nodes", "num-npus-per-node")


def read_memory(source: Source, ranks: int, remarks: Remarks) -> RemoteMemory:
    """The remote memory that the source describes, for a machine of `ranks` NPUs."""
    given = read_keys(source, MEMORY_KEYS, remarks)
    kind = MemoryKind(given["memory-type"])
    _check_of_type(given, kind, source.place)
    if kind is MemoryKind.HIERARCHICAL_POOL:
        return RemoteMemory(kind, pool=read_pool(given, source.place, ranks, remarks))
    in_effect = tuple(
        key
        for key in MEMORY_KEYS
        if key not in POOL_KEYS
        and (key.name not in _PER_NODE_KEYS or kind is MemoryKind.PER_NODE or key.name in given)
    )
    unremarked = Remarks()
    values = fill_defaults(given, in_effect, source.place, unremarked if kind is MemoryKind.NONE else remarks)
    memory = RemoteMemory(kind, **{key.field: values[key.name] for key in in_effect if key.field})
    if kind is MemoryKind.PER_NODE:
        _check_nodes(given, memory, ranks, source.place)
    if kind is not MemoryKind.NONE and memory.bandwidth == 0:
        # The reference divides by zero here and the infinity becomes 0 when made an integer.
        text = "0, so a transfer takes only the latency, as in the reference"
        remarks.warn(source.place, "remote-mem-bw", text)
    return memory


def _check_of_type(given: dict[str, object], kind: MemoryKind, place: str) -> None:
    """Refuse keys of a pool in a file of another type, and the other way round."""
    is_pool = kind is MemoryKind.HIERARCHICAL_POOL
    of_pool = [key.name for key in POOL_KEYS]
    foreign = (
        [key.name for key in MEMORY_KEYS if key.field and key.name not in of_pool] if is_pool else of_pool
    )
    for name in foreign:
        if name in given:
            raise MachineError(
                f'key "{name}" means nothing to {kind}',
                place=place,
                remedy='describe "stages"'
                if is_pool
                else '"memory-type": "HIERARCHICAL_POOL", or leave it out',
            )


def _check_nodes(given: dict[str, object], memory: RemoteMemory, ranks: int, place: str) -> None:
    for name, count in zip(_PER_NODE_KEYS, (memory.nodes, memory.npus_per_node), strict=True):
        if count < 1:
            state = "is 0" if name in given else "is missing"
            raise MachineError(
                f'key "{name}" {state}: PER_NODE_MEMORY_EXPANSION needs it',
                place=place,
                remedy="allowed: an integer >= 1",
            )
    places = memory.nodes * memory.npus_per_node
    if places < ranks:
        raise MachineError(
            f'"num-nodes" {memory.nodes} x "num-npus-per-node" {memory.npus_per_node} makes room for '
            f"{places} NPUs, the network has {ranks}",
            place=place,
            remedy=f"allowed: num-nodes x num-npus-per-node >= {ranks}",
        )
