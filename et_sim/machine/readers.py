"""Read a machine: system, network, remote memory and communicator groups, from files or dicts.

The only maker of `Machine` values; what it returns has passed every check. Not here: the traces that
custom collectives name (`et_sim.plan` reads those).
"""

from __future__ import annotations

from pathlib import Path

from et_sim.errors import MachineError
from et_sim.machine.algorithms import spans_all
from et_sim.machine.groups_file import read_groups
from et_sim.machine.keys import Remarks
from et_sim.machine.memory_file import read_memory
from et_sim.machine.model import Implementations, Machine, MemoryKind, Network, RemoteMemory, System
from et_sim.machine.network_file import read_network
from et_sim.machine.recognise import Role
from et_sim.machine.sources import Given, load
from et_sim.machine.stragglers import check_ranks_exist
from et_sim.machine.system_file import read_system


def read_machine(
    *, system: Given, network: Given, memory: Given | None = None, groups: Given | None = None
) -> Machine:
    """The machine that the given files (paths) or dicts describe; raises `MachineError`."""
    remarks = Remarks()
    network_source = load(network, Role.NETWORK)
    system_source = load(system, Role.SYSTEM)
    sources = [network_source, system_source]
    network_value = read_network(network_source, remarks)
    system_value = read_system(system_source, remarks)
    _check_dimensions(system_value, network_value, system_source.place, remarks)
    ranks = network_value.ranks
    check_ranks_exist(system_value.stragglers, ranks, system_source.place)
    memory_value = RemoteMemory()
    if memory is None:
        remarks.default("<memory>", "memory-type", f'no memory file; "{MemoryKind.NONE}" is taken')
    else:
        sources.append(load(memory, Role.MEMORY))
        memory_value = read_memory(sources[-1], ranks, remarks)
    groups_value: dict[int, tuple[int, ...]] = {}
    if groups is not None and not _means_no_groups(groups):
        sources.append(load(groups, Role.GROUPS))
        groups_value = read_groups(sources[-1], ranks)
    return Machine(
        network=network_value,
        system=system_value,
        memory=memory_value,
        groups=groups_value,
        warnings=tuple(remarks.warnings),
        defaults=tuple(remarks.defaults),
        inputs=tuple((source.place, source.digest) for source in sources),
    )


def _check_dimensions(system: System, network: Network, place: str, remarks: Remarks) -> None:
    """Compare the algorithm lists with the network's dimensions."""
    dimensions = len(network.dimensions)
    for field in Implementations.__dataclass_fields__:
        names: tuple[str, ...] | None = getattr(system.implementations, field)
        key = f"{field.replace('_', '-')}-implementation"
        if names is None or len(names) == dimensions:
            continue
        if len(names) > dimensions:
            raise MachineError(
                f'key "{key}" has {len(names)} entries, the network has {dimensions} '
                + ("dimension" if dimensions == 1 else "dimensions"),
                place=place,
                remedy="allowed: one entry per dimension, or fewer",
            )
        if field not in system.custom_implementations and not any(spans_all(name) for name in names):
            text = (
                f"{len(names)} of {dimensions} dimensions have an algorithm: the others are not used "
                f"by {field.replace('_', '-')}"
            )
            remarks.warn(place, key, text)


def _means_no_groups(groups: Given) -> bool:
    """Whether the value is the reference's word for "no group file".

    The reference ignores every path that contains "empty", even of an existing file, so a run from a
    folder named "nonempty" loses its groups. Only the bare word, with no such file, means none here.
    """
    return isinstance(groups, str) and groups == "empty" and not Path(groups).exists()
