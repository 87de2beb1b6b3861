"""Read a machine: system, network, remote memory and communicator groups, from files or dicts.

This module alone makes `Machine` values, after all checks.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from et_sim.basics.errors import MachineError, UsageError, unreadable
from et_sim.basics.group_names import group_key
from et_sim.basics.units import parse_watts, plural
from et_sim.collectives.names import FAMILIES, spans_all
from et_sim.documents.keys import Key, Remarks, Section, Slot, entry_place, nearest, read_keys, show
from et_sim.documents.kinds import COUNTS
from et_sim.machine.compute_rules import NAME as COMPUTE
from et_sim.machine.corrections import Correction, Profile
from et_sim.machine.credits import CREDITS_KEY
from et_sim.machine.gpu_failures import failures_of_gpus, with_dead_gpus
from et_sim.machine.model import (
    Implementations,
    LayerSettings,
    LogicalGrid,
    Machine,
    MemoryKind,
    Network,
    RemoteMemory,
    System,
    WhenFull,
)
from et_sim.machine.network_file import read_network
from et_sim.machine.power import CAP, POWER, with_cap
from et_sim.machine.protocol_presets import DEFAULT_PRESET, PROTOCOL_KEY
from et_sim.machine.recognise import MachineFile, is_graph, is_hierarchy, is_loggops, is_version_1
from et_sim.machine.remote_memory import read_memory
from et_sim.machine.sources import Given, Source, as_given, load
from et_sim.machine.system_file import LIBRARY, read_system
from et_sim.machine.system_parts import CAPACITY, WHEN_FULL
from et_sim.machine.texts import parse_yaml

if TYPE_CHECKING:
    from et_sim.machine.graph import Change
    from et_sim.machine.kept_systems import KeptSystems


def read_programs(path: str) -> tuple[dict[int, str], tuple[tuple[str, str], ...]]:
    """Read program prefixes by node id; return also the path and content hash of the file."""
    try:
        raw = Path(path).read_bytes()
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MachineError(
            f"cannot be read: {unreadable(error)}", place=path, remedy='see "per-node-custom-implementation"'
        ) from None
    content = parse_yaml(text, path)
    programs: dict[int, str] = {}
    for node, prefix in (content if isinstance(content, dict) else {"": content}).items():
        if not str(node).isdecimal() or not isinstance(prefix, str):
            raise MachineError(
                f"entry {node!r}: {prefix!r} does not name a program for a node",
                place=path,
                remedy='write lines like "7: programs/ring": a node id and the prefix of its files',
            )
        programs[int(node)] = prefix
    return programs, ((path, hashlib.sha256(raw).hexdigest()),)


_LONGEST = 200  # characters of a name


def read_groups(source: Source, ranks: int) -> dict[str, tuple[int, ...]]:
    """Read groups by name; ranks keep the order of the file, which may be that of a ring.

    Numbers have one spelling: group 7 is also found as 007.
    """
    groups: dict[str, tuple[int, ...]] = {}
    for name, members in source.content.items():
        key = _key(name, source.place)
        if key in groups:
            raise MachineError(
                f"group {show(name)} is given twice, in two spellings of one number",
                place=source.place,
                remedy="keep one of them",
            )
        groups[key] = _members(name, members, ranks, source.place)
    return groups


def _key(name: str, place: str) -> str:
    if not name.strip("0"):
        problem = "cannot be defined: 0 always means all ranks" if name else "has no name"
        remedy = "leave it out, or give the group another name"
        raise MachineError(f"group {show(name)} {problem}", place=place, remedy=remedy)
    if len(name) > _LONGEST:
        raise MachineError(
            f"group {show(name)}: the name has {len(name)} characters",
            place=place,
            remedy=f"allowed: names of at most {_LONGEST} characters",
        )
    return group_key(name)


def _members(name: str, members: Any, ranks: int, place: str) -> tuple[int, ...]:
    form = f"a list of different ranks, each an integer from 0 to {ranks - 1}"
    slot = Slot(Key(name, COUNTS, "", maximum=ranks - 1, form=form), Section(place, {}), Remarks())
    numbers: tuple[int, ...] = slot.value(members)
    if len(set(numbers)) < len(numbers):
        twice = Counter(numbers).most_common(1)[0][0]
        raise slot.refusal(members, why=f"it has rank {twice} twice")
    return numbers


NAME = "rings"
TAKE_RINGS = tuple(name for name, family in FAMILIES.items() if family.takes_rings)


def _check_rings(system: System, grid: LogicalGrid, source: Source, remarks: Remarks) -> None:
    """Refuse rings that do not match the dimensions, or that no collective uses."""
    if not system.rings:
        return
    if len(system.rings) != len(grid.dimensions):
        raise source.fault(
            f'key "{NAME}" has {plural(len(system.rings), "entry", "entries")}, and the network has '
            + plural(len(grid.dimensions), "dimension"),
            "give one list of rings per dimension; an empty one leaves it at one ring",
        )
    for number, (rings, dimension) in enumerate(zip(system.rings, grid.dimensions, strict=True)):
        for ring in rings:
            if len(ring) != dimension.npus:
                raise source.fault(
                    f'key "{NAME}" index {number} has a ring of {len(ring)} NPUs, and the dimension has '
                    f"{dimension.npus}",
                    f"name each from 0 to {dimension.npus - 1} once",
                )
        if rings and not _are_taken(system.implementations, number):
            raise source.fault(
                f'key "{NAME}" has rings for dimension {number}, where no collective uses a ring',
                f'give "ring" for it, or an empty list in "{NAME}"',
            )
    _remark_on_chunks(system, source.place, remarks)


def _are_taken(implementations: Implementations, number: int) -> bool:
    names = (getattr(implementations, field) for field in Implementations.__struct_fields__)
    return any(words is not None and len(words) > number and words[number] in TAKE_RINGS for words in names)


def _remark_on_chunks(system: System, place: str, remarks: Remarks) -> None:
    most = max(len(rings) for rings in system.rings)
    for key, chunks in (
        ("preferred-dataset-splits", system.splits),
        ("active-chunks-per-dimension", system.active_chunks),
    ):
        if chunks < most:
            text = f"{chunks}, so only {chunks} of {most} rings are used at a time"
            remarks.warn(place, key, text)


def read_machine(
    *,
    system: Given,
    network: Given,
    memory: Given | None = None,
    groups: Given | None = None,
    profile: str | None = None,
    corrections: Collection[Correction] = (),
    when_full: str | None = None,
    power: str | None = None,
    steady: float | None = None,
    usual_profile: str | None = None,
    systems: KeptSystems | None = None,
) -> Machine:
    """Read the machine that files (paths) or dicts describe; raise `MachineError`.

    `profile`, `when_full` and `power` override the system file, and `steady` the network file; `corrections`
    are added to the system's own. The `usual_profile` is that of a machine whose files name none. `systems`
    has systems that were read before.
    """
    remarks = Remarks()
    loaded = load if systems is None else systems.load
    network_source = loaded(network, MachineFile.NETWORK)
    system_source = loaded(system, MachineFile.SYSTEM)
    configuration = {"system": as_given(system_source), "network": as_given(network_source)}
    names_profile = profile is not None or _names_profile(system_source, network_source)
    profile = profile if names_profile else usual_profile
    if profile is not None:
        system_source = _with_profile(system_source, profile)
    if corrections:
        system_source = _with_corrections(system_source, corrections)
    if when_full is not None:
        system_source = _with_when_full(system_source, when_full)
    if power is not None:
        system_source = _with_power(system_source, power)
    if steady is not None:
        network_source = _with_steady(network_source, steady)
    sources = [network_source, system_source]
    network_value, system_value, layers = _read_network_and_system(
        network_source, system_source, remarks, systems
    )
    wanted = system_source.content.get(LIBRARY)
    wanted = {"name": wanted} if isinstance(wanted, str) else wanted
    if wanted is not None:
        from et_sim.machine.collective_library_keys import with_library

        keys = read_keys if systems is None else systems.keys
        system_value = with_library(wanted, system_value, network_value, system_source, remarks, keys)
    _check_dimensions(system_value, network_value, system_source, remarks)
    _check_rings(system_value, network_value.grid, system_source, remarks)
    ranks = network_value.ranks
    for key, named in (
        ("stragglers", [entry.ranks for entry in system_value.stragglers]),
        ("time-factors", [entry.ranks for entry in system_value.time_factors]),
        ("compute", [rule.where.ranks if rule.where else None for rule in system_value.compute]),
    ):
        _check_ranks_exist(key, named, ranks, system_source.place)
    section = Section(system_source.place, system_source.content)
    of_gpus = failures_of_gpus(system_value.failures, network_value, section)
    network_value = with_dead_gpus(network_value, [each for each in of_gpus if each.is_dead])
    memory_value = RemoteMemory()
    if memory is None:
        remarks.default("<memory>", "memory-type", f'no memory file; "{MemoryKind.NONE}" is taken')
    else:
        sources.append(load(memory, MachineFile.MEMORY))
        configuration["memory"] = as_given(sources[-1])
        memory_value = read_memory(sources[-1], ranks, remarks)
    _refuse_spilling_nowhere(system_value, memory_value, system_source)
    groups_value: dict[str, tuple[int, ...]] = {}
    if groups is not None and not _is_no_groups(groups):
        sources.append(load(groups, MachineFile.GROUPS))
        configuration["groups"] = as_given(sources[-1])

        groups_value = read_groups(sources[-1], ranks)
    return Machine(
        network=network_value,
        system=system_value,
        memory=memory_value,
        groups=groups_value,
        layers=layers,
        warnings=tuple(remarks.warnings),
        defaults=tuple(remarks.defaults),
        inputs=(
            *(pair for source in sources for pair in ((source.place, source.digest), *source.imports)),
            *dict.fromkeys(remarks.inputs),
        ),
        names_profile=names_profile,
        configuration=configuration,
        slow=tuple(each for each in of_gpus if not each.is_dead),
    )


def _names_profile(system: Source, network: Source) -> bool:
    """Return whether the system file names a profile, or shows by its form that it is of ASTRA-sim 1.0."""
    return "profile" in system.content or _is_of_1(system, network)


def _is_of_1(system: Source, network: Source) -> bool:
    is_old = is_hierarchy(network.content) or isinstance(network.content.get("topology"), str)
    return system.is_text or is_version_1(system.content, beside_version_1=is_old)


def _check_ranks_exist(key: str, named: Sequence[tuple[range, ...] | None], ranks: int, place: str) -> None:
    """Refuse entries of a key with ranks that the network does not have."""
    for index, pieces in enumerate(named):
        highest = max((piece[-1] for piece in pieces or ()), default=0)
        if highest >= ranks:
            raise MachineError(
                f'key "ranks" names rank {highest}, and the network has {ranks} NPUs',
                place=entry_place(place, key, index),
                remedy=f"allowed: ranks from 0 to {ranks - 1}",
            )


def _refuse_spilling_nowhere(system: System, memory: RemoteMemory, source: Source) -> None:
    """Refuse to spill tensors without remote memory, or where moving them has no time."""
    if system.local_memory is None or system.local_memory.when_full is not WhenFull.SPILL:
        return
    if memory.kind is MemoryKind.NONE:
        raise source.fault(
            'key "when-full" is "spill", and the machine has no remote memory',
            'describe one with --memory ("memory-type": "MEMORY_POOL", …), or choose another value',
        )
    if system.replay_only:
        raise source.fault(
            'key "when-full" is "spill", and with "replay-only" nodes take recorded times: '
            "stores and loads that are not in the traces have none",
            'leave out "replay-only", or choose another value',
        )


def read_network_alone(given: Given, remarks: Remarks | None = None) -> Network:
    """Read the network of a file of either version, without a system that might change it."""
    source, remarks = load(given, MachineFile.NETWORK), remarks or Remarks()
    if is_hierarchy(source.content):
        from et_sim.machine.version_1 import read_hierarchy

        return read_hierarchy(source, {}, remarks)
    return _read_network(source, remarks, may_be_plain=True)


def _read_network(
    source: Source, remarks: Remarks, *, may_be_plain: bool, alike: Change | None = None
) -> Network:
    """Read the network of a file that is not of ASTRA-sim 1.0; `alike` may change a graph to an equal one."""
    if is_loggops(source.content):
        from et_sim.machine.network_file import read_loggops

        return read_loggops(source, remarks)
    if is_graph(source.content):
        from et_sim.machine.topology.graph_file import read_graph

        return read_graph(source, remarks, alike)
    return read_network(source, remarks, may_be_plain=may_be_plain)


def read_system_alone(given: Given) -> System:
    """Read the system of a file of either version, without its network."""
    source = load(given, MachineFile.SYSTEM)
    if source.is_text or is_version_1(source.content, beside_version_1=False):
        from et_sim.machine.version_1 import read_system_1

        return read_system_1(source, Remarks())[0]
    return read_system(source, Remarks())[0]


def check_profile(name: str) -> None:
    """Refuse an unknown profile."""
    names = [profile.value for profile in Profile]
    if name not in names:
        remedy = nearest(name, names) or f"known: {', '.join(names)}"
        raise UsageError(f"profile {name!r} is not known", remedy=remedy)


def check_when_full(name: str) -> None:
    """Refuse an unknown value of `--when-full`."""
    names = [value.value for value in WhenFull]
    if name not in names:
        remedy = nearest(name, names) or f"known: {', '.join(names)}"
        raise UsageError(f"--when-full {name!r} is not known", remedy=remedy)


def _with_when_full(system: Source, when_full: str) -> Source:
    """Return the system with another value of `when-full`."""
    check_when_full(when_full)
    if system.is_text or CAPACITY not in system.content:
        raise UsageError(
            f"--when-full {when_full} has no effect: the system has no memory capacity",
            place=system.place,
            remedy=f'add "{CAPACITY}", or leave out --when-full',
        )
    return structs.replace(system, content={**system.content, WHEN_FULL: when_full})


def _with_power(system: Source, power: str) -> Source:
    """Return the system with another power cap for all devices with a power model."""
    watts = parse_watts(power)
    given = {} if system.is_text else system.content
    rules = given.get(COMPUTE)
    every = rules if isinstance(rules, list) else [rules]
    device = given["accuracy"].get("device", "") if isinstance(given.get("accuracy"), dict) else ""
    if not any(isinstance(rule, dict) and POWER in rule for rule in every):
        cause = "the system has no device with a power model"
        if device:
            cause = (
                f"{device} has no power model, since no published rate of products at a limit of its power"
                " was found, from which the energy of an operation would follow"
            )
        raise UsageError(
            f"--power {power} has no effect: {cause}",
            place=system.place,
            remedy=f'give the model "roofline" of "{COMPUTE}" the keys "{POWER}" (idle, and the energy of an '
            f'operation) and "{CAP}", or leave out --power',
        )
    capped = [
        with_cap(rule, watts, device or system.place) if isinstance(rule, dict) and POWER in rule else rule
        for rule in every
    ]
    content = {**system.content, COMPUTE: capped if isinstance(rules, list) else capped[0]}
    return structs.replace(system, content=content)


def _with_steady(network: Source, steady: float) -> Source:
    """Return the network with another tolerance of steady phases."""
    given = {} if network.is_text else network.content
    protocol = given.get(PROTOCOL_KEY.name, {"preset": DEFAULT_PRESET})
    if network.is_text or CREDITS_KEY.name in given or not isinstance(protocol, dict):
        raise UsageError(
            f"--steady {steady:g} has no effect: the network has no packets over RoCE",
            place=network.place,
            remedy=f'describe it in the form of 2.x, without "{CREDITS_KEY.name}", or leave out --steady',
        )
    return structs.replace(network, content={**given, PROTOCOL_KEY.name: {**protocol, "steady": steady}})


def _with_profile(system: Source, profile: str) -> Source:
    """Return the system with another profile."""
    check_profile(profile)
    if system.is_text and profile != Profile.ASTRA_1:
        raise UsageError(
            f"the profile cannot be {profile!r}: the system file is of ASTRA-sim 1.0",
            place=system.place,
            remedy="leave out the profile, or describe the system in the form of 2.x",
        )
    return structs.replace(system, content={**system.content, "profile": profile})


def _with_corrections(system: Source, corrections: Collection[Correction]) -> Source:
    """Return the system with some corrections on."""
    switches = {**system.content.get("corrections", {}), **dict.fromkeys(map(str, corrections), True)}
    return structs.replace(system, content={**system.content, "corrections": switches})


def _read_network_and_system(
    network: Source, system: Source, remarks: Remarks, kept: KeptSystems | None
) -> tuple[Network, System, LayerSettings]:
    """Read both files, each in the version of ASTRA-sim that its content shows."""
    levels = is_hierarchy(network.content)
    overrides: dict[str, list[Any]] = {}
    if _is_of_1(system, network):
        from et_sim.machine.version_1 import read_system_1

        system_value, layers, overrides = read_system_1(system, remarks)
    else:
        system_value, layers = (read_system if kept is None else kept.read)(system, remarks)
    if levels:
        from et_sim.machine.version_1 import read_hierarchy

        return read_hierarchy(network, overrides, remarks, system.place), system_value, layers
    if overrides:
        name = next(iter(overrides))
        raise MachineError(
            f'key "{name}" changes a network of ASTRA-sim 1.0, and the network file is of 2.x',
            place=system.place,
            remedy="change the network file instead",
        )
    may_be_plain = system_value.behaviour.profile is Profile.ASTRA_1
    if kept is not None:
        network_value = kept.network(network, remarks, _read_network, may_be_plain=may_be_plain)
        return network_value, system_value, layers
    return _read_network(network, remarks, may_be_plain=may_be_plain), system_value, layers


def _check_dimensions(system: System, network: Network, source: Source, remarks: Remarks) -> None:
    """Compare the algorithm lists with the network's dimensions."""
    dimensions = len(network.grid.dimensions)
    for field in Implementations.__struct_fields__:
        names: tuple[str, ...] | None = getattr(system.implementations, field)
        key = f"{field.replace('_', '-')}-implementation"
        if names is None or field == "broadcast" or len(names) == dimensions:
            continue
        if len(names) > dimensions:
            raise source.fault(
                f'key "{key}" has {len(names)} entries, the network has {plural(dimensions, "dimension")}',
                "allowed: one entry per dimension, or fewer",
            )
        if field not in system.custom_implementations and not any(spans_all(name) for name in names):
            text = (
                f"{len(names)} of {dimensions} dimensions have an algorithm: the others are not used "
                f"by {field.replace('_', '-')}"
            )
            remarks.warn(source.place, key, text)


def _is_no_groups(groups: Given) -> bool:
    """Check whether the value is the reference's word for "no group file".

    The reference ignores every path that contains "empty", even of an existing file, so a run from a folder
    named "nonempty" loses its groups. Only the bare word, with no such file, means none here.
    """
    return isinstance(groups, str) and groups == "empty" and not Path(groups).exists()
