"""The key `library` of the system file: the collective library of a machine, on the machine's network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from et_sim.documents.keys import (
    Key,
    Remarks,
    Section,
    keys_of,
    made,
    note_defaults,
    read_keys,
)
from et_sim.documents.kinds import CHOICE, COUNT, OBJECT, RATE
from et_sim.machine.collective_library.candidates import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    REDUCE,
    REDUCE_SCATTER,
    LibraryGroup,
)
from et_sim.machine.collective_library.channels import CARD_EFFICIENCY, Channels, LibraryWires, speed_between
from et_sim.machine.collective_library.choice import MOST, Library, Logged
from et_sim.machine.collective_library.constants import ALGORITHMS, LIBRARIES, PROTOCOL_NAMES
from et_sim.machine.corrections import Correction, Profile
from et_sim.machine.networks import Dimension, DimensionShape, Network
from et_sim.machine.system import Implementations, System
from et_sim.machine.system_file import LIBRARY

NO_LIBRARY = "none"
LOGGED_KINDS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, REDUCE)
GPUS = tuple(dict.fromkeys(gpu for rules in LIBRARIES.values() for gpu in rules.gpus))
LIBRARY_KEYS = (
    Key(
        "name",
        CHOICE,
        "The library that chooses; `none`: the `...-implementation` keys apply.",
        choices=(*LIBRARIES, NO_LIBRARY),
        required=True,
    ),
    Key(
        "gpu",
        CHOICE,
        "The generation of the GPUs. Without it, it follows from the bandwidth of dimension 0, if that is "
        "the NVLink of one of them.",
        choices=GPUS,
    ),
    Key("link", CHOICE, "The links between the GPUs of a node.", default="NVLink", choices=("NVLink", "PCI")),
    Key(
        "link-speed",
        RATE,
        "Rate that the library counts for all links of a GPU to its node; as a rule, four fifths of the "
        "bandwidth on a data sheet.",
        unit="GB/s",
        above_minimum=True,
        maximum=MOST,
    ),
    Key(
        "cards",
        COUNT,
        "Network cards of a node. Without the key: one for each NPU, or for `npus-per-nic` of them.",
        minimum=1,
        maximum=MOST,
    ),
    Key(
        "rings",
        OBJECT,
        "Channels as the library logs them (NCCL_DEBUG_SUBSYS=GRAPH): their number on one node and "
        "between nodes, and the GB/s of each.",
        choices=("on-a-node", "between-nodes"),
    ),
    Key(
        "choices",
        OBJECT,
        "Logged choices of the library (NCCL_DEBUG_SUBSYS=TUNING), by collective: lists of the number of "
        "nodes, the bytes, the algorithm and the protocol. Between the listed sizes of a number of nodes, "
        "the next lower entry holds; outside, the library's own constants hold.",
        choices=LOGGED_KINDS,
    ),
    *keys_of(Library),
)


# GB/s of all NVLinks of a GPU, one way as on a data sheet, and as NCCL counts it.
NVLINK = {
    "volta": (150.0, 120.0),
    "ampere": (300.0, 240.0),
    "hopper": (450.0, 370.8),
    "blackwell": (900.0, 721.8),
}
PCI_EFFICIENCY = 0.762  # NCCL counts x16 of PCI 3.0, of 15.75 GB/s, as 12
LEAST_USED = 0.8  # of wires
OTHER_EFFICIENCY = 0.75  # RCCL counts a link of 64 GB/s as 48


def with_library(
    given: dict[str, Any],
    system: System,
    network: Network,
    source: Section,
    remarks: Remarks,
    keys: Callable[[Section, tuple[Key, ...], Remarks], dict[str, Any]] = read_keys,
) -> System:
    """Return the system with the library that its file names, if it can be used on this network.

    `keys` reads its keys.
    """
    library = _read_library(given, system, network, source, remarks, keys)
    if library is None and given.get("name") != NO_LIBRARY:
        dimensions = len(network.grid.dimensions)
        system = replace(system, implementations=_without_library(system.implementations, dimensions))
    return replace(system, library=library)


def _read_library(
    given: dict[str, Any],
    system: System,
    network: Network,
    source: Section,
    remarks: Remarks,
    keys: Callable[[Section, tuple[Key, ...], Remarks], dict[str, Any]],
) -> Library | None:
    """Read the library on this network; return None if there is none, or it cannot be used."""
    section = source.entry(LIBRARY, given)
    read = keys(section, LIBRARY_KEYS, remarks)
    values = note_defaults(read, LIBRARY_KEYS, section, Remarks())
    name = values["name"]
    if name == NO_LIBRARY:
        return None
    why = _why_not(system, network)
    if why:
        instead = "rings run in every dimension, and all-to-alls send directly"
        remarks.warn(section.place, "name", f"not used: a library {why}; {instead}")
        return None
    inner, outer = network.node, network.outside
    each_way = (inner or network.wiring[0]).bytes_per_ns
    gpu = values.get("gpu") or _generation(each_way, name, section, remarks)
    if gpu not in LIBRARIES[name].gpus:
        known = ", ".join(LIBRARIES[name].gpus)
        raise section.fault(f'{name} does not support "gpu" {gpu!r}', f"known: {known}")
    node = inner.npus if inner is not None else 1
    ports = node // (network.cards.sharers if network.cards else 1)
    cards = values.get("cards", ports) if inner is not None else 1
    wires = LibraryWires(
        values.get("link-speed") or _counted(each_way, gpu, link=values["link"] if inner is not None else ""),
        values["link"] == "NVLink",
        cards,
        outer.bytes_per_ns * ports / cards if outer else 0.0,
        each_way,
        inner is not None and inner.shape is DimensionShape.FULLY_CONNECTED and node > 2,
    )
    rings = values.get("rings", {})
    more = {
        "name": name,
        "gpu": gpu,
        "wires": wires,
        "node": node,
        "rings_within": _channels(rings, "on-a-node", section),
        "rings_between": _channels(rings, "between-nodes", section),
        "logged": tuple(_logged(values.get("choices", {}), section)),
    }
    library = made(Library, read | more)
    _mention_unused(library, section.place, remarks)
    return library


def _mention_unused(library: Library, place: str, remarks: Remarks) -> None:
    """Warn of wires that are faster than all channels of the library."""
    wires, gpu = library.wires, library.wires.gpu * (library.node - 1 if library.wires.is_mesh else 1)
    for nodes, carried in ((1, gpu), (2, min(gpu, wires.card * wires.cards))):
        rings = library.rings(LibraryGroup(nodes * library.node, nodes))
        if nodes > 1 >= carried or rings.count * rings.within >= LEAST_USED * carried:
            continue
        where = "on a node" if nodes == 1 else "between nodes"
        used = f"{rings.count} channels of {rings.within:g} GB/s"
        remarks.warn(
            place,
            "gpu",
            f"{library.name} has at most {used} {where} for {library.gpu}, and wires for {carried:.4g} GB/s: "
            'faster ones have no effect; name "rings" that it should have, or a later "gpu"',
        )
    gpu_of = LIBRARIES[library.name].gpus[library.gpu]
    of_card = speed_between(wires, gpu_of.speeds)
    if gpu_of.nvls_efficiency and library.has_switch and of_card < LEAST_USED * wires.card * CARD_EFFICIENCY:
        remarks.warn(
            place,
            "gpu",
            f"{library.name} counts {of_card:g} GB/s of a card of {wires.card:g} in trees over NVSwitches: "
            "faster cards do not change these",
        )


def _without_library(given: Implementations, dimensions: int) -> Implementations:
    """Return the algorithms that run if a library is named and cannot be used."""
    rings, direct = ("ring",) * dimensions, ("direct",) * dimensions
    return replace(
        given,
        all_reduce=given.all_reduce or rings,
        all_gather=given.all_gather or rings,
        reduce_scatter=given.reduce_scatter or rings,
        all_to_all=given.all_to_all or direct,
    )


def _why_not(system: System, network: Network) -> str:
    """Return the reason why the library cannot be used, or an empty string."""
    if system.behaviour.profile is not Profile.CORRECTED:
        return f"is not known in profile {system.behaviour.profile.value!r}"
    if not system.behaviour.corrects(Correction.GROUPS_BY_DIMENSION):
        return "needs groups that run by dimension, and the correction groups-by-dimension is off"
    if not network.wiring or not all(map(_is_known, network.wiring)):
        return "is known on networks whose dimensions switches join, or links of all pairs"
    return "cannot use a shared memory bus" if system.shared_bus is not None else ""


def _is_known(dimension: Dimension) -> bool:
    return dimension.shape is not DimensionShape.RING or dimension.npus <= 2


def _generation(each_way: float, name: str, section: Section, remarks: Remarks) -> str:
    for gpu, (bandwidth, _) in NVLINK.items():
        if abs(each_way / bandwidth - 1) < 0.01 and gpu in LIBRARIES[name].gpus:
            remarks.default(
                section.place, "gpu", f"not given; {gpu} is taken, by the bandwidth of dimension 0"
            )
            return gpu
    raise section.fault(
        f'key "gpu" is missing, and {each_way:g} GB/s is the NVLink of no generation',
        f"name one of {', '.join(LIBRARIES[name].gpus)}",
    )


def _counted(each_way: float, gpu: str, *, link: str) -> float:
    """Return the rate that the library counts for the links of a GPU."""
    if link != "NVLink":
        return each_way * (PCI_EFFICIENCY if link else 1)
    if gpu in NVLINK:
        bandwidth, counted = NVLINK[gpu]
        return each_way * counted / bandwidth
    return each_way * OTHER_EFFICIENCY


def _channels(given: dict[str, Any], which: str, section: Section) -> Channels | None:
    pair = given.get(which)
    if pair is None:
        return None
    numbers = isinstance(pair, list) and len(pair) == 2 and all(type(part) in (int, float) for part in pair)
    if not numbers or pair[0] != int(pair[0]) or not all(0 < part <= MOST for part in pair):
        raise section.fault(
            f'"rings": "{which}" is {pair!r}',
            "give the number of channels and the GB/s of each, as in [12, 30]",
        )
    return Channels(int(pair[0]), float(pair[1]), float(pair[1]))


def _logged(given: dict[str, Any], section: Section) -> Iterator[Logged]:
    protocols = {name: protocol for protocol, name in PROTOCOL_NAMES.items()}
    for kind, entries in given.items():
        if kind not in LOGGED_KINDS or not isinstance(entries, list):
            raise section.fault(f'"choices": {kind!r} is not known', f"known: {', '.join(LOGGED_KINDS)}")
        for entry in entries:
            match entry:
                case [int(nodes), int(size), str(algorithm), str(protocol)] if (
                    nodes > 0 and size >= 0 and algorithm in ALGORITHMS and protocol in protocols
                ):
                    yield Logged(kind, nodes, size, algorithm, protocols[protocol])
                case _:
                    raise section.fault(
                        f'"choices": "{kind}" holds {entry!r}',
                        'give nodes, bytes, algorithm and protocol, as in [1, 1048576, "ring", "LL"]',
                    )
