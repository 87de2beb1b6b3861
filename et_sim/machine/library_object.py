"""The key `library` of the system file: the collective library of a machine, on the machine's network.

Not here: what a library does (`machine.library`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from et_sim.basics.errors import MachineError
from et_sim.machine.checks import fill_defaults, read_keys
from et_sim.machine.corrections import Correction
from et_sim.machine.keys import Key, Kind, Remarks
from et_sim.machine.library.calibration import CALIBRATION_KEYS, Calibration
from et_sim.machine.library.candidates import Group
from et_sim.machine.library.channels import CARD_EFFICIENCY, Channels, Wires, speed_between
from et_sim.machine.library.model import Library, Logged
from et_sim.machine.library.rules import ALGORITHMS, LIBRARIES, PROTOCOL_NAMES
from et_sim.machine.library_tables import LIBRARY_KEYS, LOGGED_KINDS, MOST, NAME, NO_LIBRARY
from et_sim.machine.model import Dimension, Implementations, Network, Shape, System
from et_sim.machine.profiles import Profile
from et_sim.machine.sources import Source

# GB/s of all NVLinks of a GPU, as a data sheet has it one way, and as NCCL counts it.
NVLINK = {
    "volta": (150.0, 120.0),
    "ampere": (300.0, 240.0),
    "hopper": (450.0, 370.8),
    "blackwell": (900.0, 721.8),
}
PCI_EFFICIENCY = 0.762  # NCCL counts x16 of PCI 3.0, of 15.75 GB/s, as 12
LEAST_USED = 0.8  # of wires
OTHER_EFFICIENCY = 0.75  # RCCL counts a link of 64 GB/s as 48


def read_library(
    given: Any, system: System, network: Network, place: str, remarks: Remarks
) -> Library | None:
    """The library on this network; None where the system file names none."""
    if given is None:
        return None
    source = Source(f'{place}: "{NAME}"', {"name": given} if isinstance(given, str) else given, "")
    values = fill_defaults(read_keys(source, LIBRARY_KEYS, remarks), LIBRARY_KEYS, source.place, Remarks())
    if values["name"] == NO_LIBRARY:
        return None
    why = _why_not(system, network)
    if why:
        instead = "rings run in every dimension, and all-to-alls send directly"
        remarks.warn(source.place, "name", f"not used: a library {why}; {instead}")
        return None
    inner = network.wiring[0]
    outer = next((one for one in network.wiring[1:] if one.npus > 1), None)
    each_way = inner.bytes_per_ns
    gpu = values.get("gpu") or _generation(each_way, values["name"], source.place, remarks)
    if gpu not in LIBRARIES[values["name"]].gpus:
        known = ", ".join(LIBRARIES[values["name"]].gpus)
        raise MachineError(
            f'{values["name"]} knows nothing of "gpu" {gpu!r}', place=source.place, remedy=f"it knows {known}"
        )
    ports = inner.npus // (network.rails.sharers if network.rails else 1)
    cards = values.get("cards", ports)
    wires = Wires(
        values.get("link-speed") or _counted(each_way, gpu, is_nvlink=values["link"] == "NVLink"),
        values["link"] == "NVLink",
        cards,
        outer.bytes_per_ns * ports / cards if outer else 0.0,
        each_way,
        inner.shape is Shape.FULLY_CONNECTED and inner.npus > 2,
    )
    rings = values.get("rings", {})
    library = Library(
        values["name"],
        gpu,
        wires,
        inner.npus,
        values["cpu"],
        values["switch"],
        values["collnet"],
        tuple(values.get("algorithms", ())),
        tuple(one for one, name in PROTOCOL_NAMES.items() if name in values.get("protocols", ())),
        _channels(rings, "on-a-node", source.place),
        _channels(rings, "between-nodes", source.place),
        _calibration(values.get("calibration", {}), source.place),
        values["occupies"],
        tuple(_logged(values.get("choices", {}), source.place)),
    )
    _mention_unused(library, source.place, remarks)
    return library


def _mention_unused(library: Library, place: str, remarks: Remarks) -> None:
    """Wires that are so fast that no channels that the library knows use them."""
    wires, gpu = library.wires, library.wires.gpu * (library.node - 1 if library.wires.is_mesh else 1)
    for nodes, carried in ((1, gpu), (2, min(gpu, wires.card * wires.cards))):
        rings = library.rings(Group(nodes * library.node, nodes))
        if nodes > 1 >= carried or rings.count * rings.within >= LEAST_USED * carried:
            continue
        where = "on a node" if nodes == 1 else "between nodes"
        used = f"{rings.count} channels of {rings.within:g} GB/s"
        remarks.warn(
            place,
            "gpu",
            f"{library.name} has at most {used} {where} for {library.gpu}, and wires for {carried:.4g} GB/s: "
            'faster ones change nothing; name "rings" that it should have, or a later "gpu"',
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


def names_library(given: Any) -> bool:
    """Whether the value of the key names a library."""
    return given is not None and (given if isinstance(given, str) else given.get("name")) != NO_LIBRARY


def without_library(given: Implementations, dimensions: int) -> Implementations:
    """What runs where a library is named and cannot be used."""
    rings, direct = ("ring",) * dimensions, ("direct",) * dimensions
    return replace(
        given,
        all_reduce=given.all_reduce or rings,
        all_gather=given.all_gather or rings,
        reduce_scatter=given.reduce_scatter or rings,
        all_to_all=given.all_to_all or direct,
    )


def _why_not(system: System, network: Network) -> str:
    """Why the library cannot be used; empty: it can."""
    if system.behaviour.profile is not Profile.CORRECTED:
        return f"is not known in profile {system.behaviour.profile.value!r}"
    if not system.behaviour.corrects(Correction.GROUPS_BY_DIMENSION):
        return "needs groups that run by dimension, and the correction groups-by-dimension is off"
    if not network.wiring or not all(map(_is_known, network.wiring)):
        return "is known on networks whose dimensions are switches or fully connected, and on rails"
    return "cannot use a shared memory bus" if system.shared_bus is not None else ""


def _is_known(dimension: Dimension) -> bool:
    return dimension.shape is not Shape.RING or dimension.npus <= 2


def _generation(each_way: float, name: str, place: str, remarks: Remarks) -> str:
    for gpu, (bandwidth, _) in NVLINK.items():
        if abs(each_way / bandwidth - 1) < 0.01 and gpu in LIBRARIES[name].gpus:
            remarks.default(place, "gpu", f"not given; {gpu} is taken, by the bandwidth of dimension 0")
            return gpu
    raise MachineError(
        f'key "gpu" is missing, and {each_way:g} GB/s is the NVLink of no generation',
        place=place,
        remedy=f"name one of {', '.join(LIBRARIES[name].gpus)}",
    )


def _counted(each_way: float, gpu: str, *, is_nvlink: bool) -> float:
    """What the library takes the links for."""
    if not is_nvlink:
        return each_way * PCI_EFFICIENCY
    if gpu in NVLINK:
        bandwidth, counted = NVLINK[gpu]
        return each_way * counted / bandwidth
    return each_way * OTHER_EFFICIENCY


def _channels(given: dict[str, Any], which: str, place: str) -> Channels | None:
    pair = given.get(which)
    if pair is None:
        return None
    numbers = isinstance(pair, list) and len(pair) == 2 and all(type(one) in (int, float) for one in pair)
    if not numbers or pair[0] != int(pair[0]) or not all(0 < one <= MOST for one in pair):
        raise MachineError(
            f'"rings": "{which}" is {pair!r}',
            place=place,
            remedy="give the number of channels and the GB/s of each, as in [12, 30]",
        )
    return Channels(int(pair[0]), float(pair[1]), float(pair[1]))


def _logged(given: dict[str, Any], place: str) -> Iterator[Logged]:
    protocols = {name: one for one, name in PROTOCOL_NAMES.items()}
    for kind, entries in given.items():
        if kind not in LOGGED_KINDS or not isinstance(entries, list):
            raise MachineError(
                f'"choices": {kind!r} is not known', place=place, remedy=f"known: {', '.join(LOGGED_KINDS)}"
            )
        for entry in entries:
            match entry:
                case [int(nodes), int(size), str(algorithm), str(protocol)] if (
                    nodes > 0 and size >= 0 and algorithm in ALGORITHMS and protocol in protocols
                ):
                    yield Logged(kind, nodes, size, algorithm, protocols[protocol])
                case _:
                    raise MachineError(
                        f'"choices": "{kind}" holds {entry!r}',
                        place=place,
                        remedy='give nodes, bytes, algorithm and protocol, as in [1, 1048576, "ring", "LL"]',
                    )


def _calibration(given: dict[str, Any], place: str) -> Calibration:
    table = tuple(
        Key(name, Kind.NUMBER, "", field=field.name, maximum=MOST)
        for name, field in zip(CALIBRATION_KEYS, fields(Calibration), strict=True)
    )
    inner = Source(f'{place}: "calibration"', given, "")
    values = read_keys(inner, table, Remarks())
    for name in (
        "bandwidth-ll",
        "bandwidth-ll128",
        "bandwidth-simple",
        "nvls-bandwidth",
        "between-bandwidth",
    ):
        if values.get(name) == 0:
            raise MachineError(f'"{name}" is 0', place=inner.place, remedy="a factor above 0 is meant")
    return Calibration(**{key.field: float(values[key.name]) for key in table if key.name in values})
