"""The remote-memory file.

Not here: local memory (the system file), and how requests queue (`et_sim.memory`).
"""

from __future__ import annotations

from et_sim.errors import MachineError
from et_sim.machine.checks import fill_defaults, read_keys
from et_sim.machine.keys import Remarks
from et_sim.machine.model import MemoryKind, RemoteMemory
from et_sim.machine.pool_file import read_pool
from et_sim.machine.pool_tables import POOL_KEYS
from et_sim.machine.sources import Source
from et_sim.machine.tables import MEMORY_KEYS

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
