"""Presets: machines by name, such as `h100-dgx:128`, and the files that they stand for.

Devices and machines are data files beside this module, with the source of every figure; estimates are marked.
A file that `et-sim calibrate` wrote is such a machine, too, and is named by its path: `machine.json:128`.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import MachineError, UsageError, did_you_mean, unreadable
from et_sim.basics.uncertainty import CALIBRATED
from et_sim.basics.units import parse_bandwidth
from et_sim.documents.reading import parse_json
from et_sim.machine.accuracy import (
    LIBRARY,
    SMALL_LIBRARY,
    of_device,
    of_network,
    of_other_machines,
)
from et_sim.machine.collective_library.between import network_kind
from et_sim.machine.corrections import Profile
from et_sim.machine.power import CAP, POWER
from et_sim.machine.presets.options import with_options, without_replaced

_NAME = re.compile(r"([^:]*)(?::([0-9]{1,12}))?((?:,[a-z]+=[0-9A-Za-z./ -]{1,40})*)", re.ASCII)
_ENDING = ".json"
BEHIND_NICS = "behind-nics"
_KEYS = {"about", "device", "most", "costs", "sources", "estimates"}  # keys that every machine has
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


class Preset(Struct, frozen=True):
    """A machine of some NPUs, as the two files that describe it."""

    name: str
    npus: int
    system: dict[str, Any]
    network: dict[str, Any]
    options: str = ""  # as in the name

    @property
    def text(self) -> str:
        """Return the name with NPUs and options."""
        return f"{self.name}:{self.npus}{self.options}"

    @property
    def node(self) -> int:
        """Return the NPUs of a node; all NPUs if there are no nodes."""
        graph, machine = self.network.get("graph", {}), _data("machines", self.name)
        if "npus-per-node" in graph:
            return int(graph["npus-per-node"])
        if "node" not in machine or "npus_count" not in self.network:
            return self.npus
        return prod(self.network["npus_count"][: len(_node(machine))])

    @property
    def peaks(self) -> tuple[str, ...]:
        """Return the datatypes that its NPUs have a rate for; empty if its file names none."""
        return tuple(self.system["compute"].get("peaks", ()))

    @property
    def wiring(self) -> list[str]:
        """Describe the links between its NPUs, innermost first."""
        if "links" in self.network:
            return [_link_text(link) for link in self.network["links"]]
        if "graph" not in self.network:
            keys = ("topology", "npus_count", "bandwidth", "latency")
            rows = zip(*(self.network[key] for key in keys), strict=True)
            texts = [f"{shape} of {npus}, {bandwidth}, {latency}" for shape, npus, bandwidth, latency in rows]
            last = self.npus % self.node if self.network.get("npus") else 0
            return [*texts, f"the last node has {last} of {self.node}"] if last else texts
        graph = self.network["graph"]
        if "inside" not in graph:
            return [f"{graph['generator']} of {self.npus}, {graph['bandwidth']}, {graph['latency']}"]
        kind, port = graph["inside"]["generator"], graph["inside"]
        if kind == BEHIND_NICS:
            kind, port = "PCIe", graph["nic"]
        sharers = graph["npus-per-nic"]
        shared = f"{sharers} NPUs to a card" if sharers > 1 else "a card each"
        return [
            f"{kind} of {graph['npus-per-node']}, {port['bandwidth']}, {port['latency']}",
            f"rails of {graph['nodes']}, {graph['bandwidth']}, {graph['latency']}, {shared}",
        ]


def _link_text(link: dict[str, Any]) -> str:
    """Describe the ends and figures of a link of a file."""
    to = link["to"]
    ends = to if isinstance(to, str) else " and ".join(to)
    return f"{link['from']} to {ends}, {link['bandwidth']}, {link['latency']}"


class PresetEntry(Struct, frozen=True):
    """The description of a machine, for any number of NPUs."""

    name: str
    about: str
    device: str
    fewest: int
    most: int
    sources: dict[str, str]
    estimates: dict[str, str]
    calibrated: dict[str, Any]  # errors by class, by subject of the fit


def names() -> tuple[str, ...]:
    """Return the names of all machines."""
    folder = files("et_sim.machine.presets") / "machines"
    return tuple(
        sorted(file.name.removesuffix(_ENDING) for file in folder.iterdir() if file.name.endswith(_ENDING))
    )


def entry(name: str, options: str = "") -> PresetEntry:
    """Return the description of a machine, its device and the kind of network among its options included."""
    machine = with_options(name, _data("machines", name), options)
    device = _device(machine)
    return PresetEntry(
        name,
        machine["about"],
        device["about"],
        prod(_node(machine)) if "node" in machine else _cube(machine["torus"]),
        machine["most"],
        without_replaced({**device["sources"], **machine["sources"]}, options)
        | _of_network(machine, "sources"),
        without_replaced({**device["estimates"], **machine["estimates"]}, options)
        | _of_network(machine, "estimates"),
        machine.get("calibrated", {}),
    )


def known_as() -> dict[str, tuple[str, ...]]:
    """Return words in capitals by which others name each machine's hardware."""
    return {name: tuple(_data("machines", name).get("known-as", ())) for name in names()}


@lru_cache(8)
def preset(text: str) -> Preset:
    """Return the machine of a name, `NAME:NPUS`, with options such as `,node=4,cards=2x200Gbps`.

    All callers share its files, which must not change.
    """
    match = _NAME.fullmatch(text)
    name = match[1] if match else text.partition(":")[0]
    _check_name(name)
    if match is None:
        raise UsageError(
            f"machine {text!r} does not end in a number of NPUs",
            remedy=f"write it as {name}:{entry(name).fewest}",
        )
    known = with_options(name, _data("machines", name), match[3])
    npus = int(match[2]) if match[2] else prod(_node(known)) if "node" in known else entry(name).fewest
    if npus > known["most"]:
        raise UsageError(f"{name} has at most {known['most']:,} NPUs, not {npus:,}", remedy="name fewer")
    if "network" in known:
        known = _wired(name, known, npus)
        network = known["network"]
    else:
        network = _torus(name, known, npus) if "torus" in known else _nodes(name, known, npus)
    system = _system(known, len(network.get("topology", [0])))
    return Preset(name, npus, system, network, match[3])


def unchanged(text: str) -> str:
    """Return the name of a machine without options; refuse options."""
    chosen = preset(text)
    if chosen.options:
        raise UsageError(
            f"{text}: {chosen.options[1:]} is not supported where rows give the number of NPUs",
            remedy=f"name {chosen.name}",
        )
    return chosen.name


def _node(machine: dict[str, Any]) -> list[int]:
    """Return the NPUs of a node along each of its dimensions."""
    node = machine["node"]
    return node if isinstance(node, list) else [node]


def _wired(name: str, machine: dict[str, Any], npus: int) -> dict[str, Any]:
    """Return a machine with a fixed wiring of its node, or of a part of the node."""
    parts: dict[str, dict[str, Any]] = machine.get("parts", {})
    if npus == machine["node"]:
        return machine
    if str(npus) not in parts:
        several = "".join(f", or {part} of them" for part in parts)
        remedy = " or ".join([name, *(f"{name}:{part}" for part in parts)])
        raise UsageError(f"{name} has {machine['node']} NPUs{several}, not {npus:,}", remedy=f"name {remedy}")
    part = parts[str(npus)]
    return {**machine, "network": part["network"], "system": {**machine["system"], **part["system"]}}


def _system(machine: dict[str, Any], dimensions: int) -> dict[str, Any]:
    device = _device(machine)
    return {
        "profile": Profile.CORRECTED.value,
        "scheduling-policy": "LIFO",
        "preferred-dataset-splits": 4,
        "active-chunks-per-dimension": 2,
        "collective-optimization": "localBWAware",
        **_collectives(machine, dimensions),
        **machine.get("system", {}),
        "local-mem-bw": device["local-mem-bw"],
        "local-mem-capacity": device["compute"]["memory"][0]["capacity"],
        **({"local-mem-reserved": device["memory-reserved"]} if "memory-reserved" in device else {}),
        "compute": _with_limit(device["compute"]),
        **{name: machine[name] for name in ("host-time", "time-factors") if name in machine},
        "replay-recorded-kernels": True,
        "costs": {**device.get("costs", {}), **machine["costs"]},
        "accuracy": _accuracy(device, machine),
    }


def _with_limit(compute: dict[str, Any]) -> dict[str, Any]:
    """Return the compute model of a device, whose power cap is the highest one that its board allows."""
    if POWER not in compute:
        return compute
    return {**compute, POWER: {"limit": compute[CAP], **compute[POWER]}}


def _accuracy(device: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    """Return the uncertainty of the machine's times: stated terms over widths fitted to all machines."""
    stated = {
        **device.get("accuracy", {}),
        **_of_network(machine, "accuracy"),
        **machine.get("accuracy", {}),
    }
    network = machine.get("library", {}).get("between", {}).get("kind", "")
    endings = of_device("", device["about"]), of_network("", network)
    terms: dict[str, Any] = {"device": device["about"]}
    for fitted, term in _bands().items():
        own = next((fitted.removesuffix(ending) for ending in endings if fitted.endswith(ending)), "")
        name, changes = _class_of(own or fitted, stated)
        if own and name:
            terms[name] = {**term, **changes}
        elif name and " on " not in fitted:
            terms.setdefault(name, {**term, **changes})
    for name, term in stated.items():
        terms[name] = term if _has_own_width(term) else {**terms.get(name, {}), **term}
    return terms


def _bands() -> dict[str, Any]:
    """Return the widths that are fitted to the rows of all machines."""
    path = files("et_sim.machine.presets") / "bands.json"
    terms: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["terms"]
    return terms


def widths_between(network: str) -> dict[str, Any]:
    """Return the terms of collectives over a kind of network between nodes."""
    stated: dict[str, Any] = network_kind(network)["accuracy"]
    fitted = _bands()
    return {name: {**fitted.get(of_network(name, network), {}), **term} for name, term in stated.items()}


def _class_of(name: str, stated: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the class that a fitted width holds for on a machine, and changes; the class is empty if none.

    Kinds of collectives have widths of their own where the library is calibrated, and the width of a
    library whose constants are those of another machine replaces that of its size elsewhere.
    """
    size, _, kind = name.partition(" ")
    if size not in (LIBRARY, SMALL_LIBRARY):
        return name, {}
    own = stated.get(size, {})
    is_calibrated = own.get("basis") == CALIBRATED
    if name == of_other_machines(size):
        return "" if is_calibrated else size, {}
    if kind:
        return name if is_calibrated and not _has_own_width(own) else "", {"basis": CALIBRATED}
    return name if is_calibrated else "", {}


def _has_own_width(term: dict[str, Any]) -> bool:
    """Return whether a term has the errors of its own calibration, for which fitted ones do not hold."""
    return term.get("basis") == CALIBRATED and "random" in term


def _of_network(machine: dict[str, Any], what: str) -> dict[str, Any]:
    """Return an entry of the kind of network between nodes."""
    kind = machine.get("library", {}).get("between", {}).get("kind")
    return network_kind(kind).get(what, {}) if kind else {}


def _collectives(machine: dict[str, Any], dimensions: int) -> dict[str, Any]:
    """Return the keys that choose the algorithms: a library, or the machine's own."""
    if "library" in machine:
        return {"library": machine["library"]}
    if "algorithms" not in machine:
        return {}
    algorithms = machine["algorithms"][:dimensions]
    return {
        **{f"{collective}-implementation": algorithms for collective in _COLLECTIVES[:3]},
        "all-to-all-implementation": ["direct"] * dimensions,
    }


def _nodes(name: str, machine: dict[str, Any], npus: int) -> dict[str, Any]:
    """Return a network of nodes of equal size, or of a part of one node."""
    sides = _node(machine)
    node = prod(sides)
    library = machine.get("library", {})
    cards, is_pci = library.get("cards", node), library.get("link") == "PCI"
    shares_cards = node % cards == 0 and (cards < node or is_pci)
    is_rack = "tray" in machine
    may_be_part = is_rack and not shares_cards
    if npus % node and (npus > node or len(sides) > 1) and not may_be_part:
        remedy = _near(npus, node)
        part = max(size for size in range(1, node + 1) if npus % size == 0)
        if part > 1 and len(machine.get("dimensions", ())) == 2:
            remedy += f"; or use fewer of each node, as in {name}:{npus},node={part}"
        are_full = "; racks are full where GPUs share cards" if is_rack else ""
        raise UsageError(
            f"{name} has nodes of {node} NPUs, and {npus:,} NPUs are not a multiple{are_full}", remedy=remedy
        )
    if npus < 1:
        more = "more" if may_be_part else "whole nodes"
        raise UsageError(f"{name}:{npus} has no NPU", remedy=f"name 1 to {node}, or {more}")
    nodes = -(-npus // node)
    counts = [npus] if npus <= node and len(sides) == 1 else [*sides, *([nodes] if npus > node else [])]
    if npus > node and shares_cards:
        return {"graph": _rails(machine["dimensions"], counts, node // cards, is_pci=is_pci)}
    inner = [dimension for dimension, _ in zip(machine["dimensions"], counts, strict=False)]
    return {
        "topology": [dimension["topology"] for dimension in inner],
        "npus_count": counts,
        "bandwidth": [dimension["bandwidth"] for dimension in inner],
        "latency": [dimension["latency"] for dimension in inner],
        **({"npus": npus} if npus > node and npus % node else {}),
    }


def _rails(
    dimensions: list[dict[str, str]], counts: list[int], sharers: int, *, is_pci: bool
) -> dict[str, Any]:
    """Return nodes whose NPUs share cards, with a rail for each card of a node.

    With PCIe, a card and its NPUs are behind one switch, and an NPU has one link for all its messages.
    """
    inner, outer = dimensions
    card = f"{sharers * parse_bandwidth(outer['bandwidth']):g}GB/s"
    shape = {"Switch": "switch", "FullyConnected": "fully-connected"}[inner["topology"]]
    port: dict[str, Any] = {"bandwidth": inner["bandwidth"], "latency": inner["latency"]}
    inside, nic = {"generator": shape, **port}, {"bandwidth": card, "latency": 0}
    if is_pci:
        wide = f"{sharers * parse_bandwidth(inner['bandwidth']):g}GB/s"
        inside, nic = {"generator": BEHIND_NICS, "bandwidth": wide, "latency": 0}, port
    return {
        "generator": "rail-optimised",
        "nodes": counts[1],
        "npus-per-node": counts[0],
        "inside": inside,
        "npus-per-nic": sharers,
        "nic": nic,
        "bandwidth": card,
        "latency": outer["latency"],
    }


def _torus(name: str, machine: dict[str, Any], npus: int) -> dict[str, Any]:
    """Return a torus of whole cubes or squares, with sides as equal as possible."""
    torus = machine["torus"]
    whole, sides = _cube(torus), torus.get("sides", 3)
    if not npus or npus % whole:
        unit = "cubes" if sides == 3 else "squares"
        raise UsageError(
            f"{name} is built of {unit} of {whole} NPUs, and {npus:,} NPUs are not a multiple",
            remedy=_near(npus, whole),
        )
    best = min(_factors(npus // whole, sides), key=lambda torus: (torus[-1] - torus[0], torus))
    return {
        "topology": ["Ring"] * sides,
        "npus_count": [torus["cube"] * side for side in best],
        "bandwidth": [torus["bandwidth"]] * sides,
        "latency": [torus["latency"]] * sides,
    }


def _cube(torus: dict[str, Any]) -> int:
    """Return the NPUs of the cube or square that larger tori are made of."""
    return int(torus["cube"] ** torus.get("sides", 3))


def _factors(number: int, count: int) -> list[tuple[int, ...]]:
    """Return all ways to write a number as a product of `count` ascending factors."""
    ways: list[tuple[tuple[int, ...], int]] = [((), number)]
    for _ in range(count - 1):
        ways = [
            ((*factors, factor), rest // factor)
            for factors, rest in ways
            for factor in range(factors[-1] if factors else 1, rest + 1)
            if rest % factor == 0
        ]
    return [(*factors, rest) for factors, rest in ways if rest >= factors[-1]]


def _near(npus: int, unit: int) -> str:
    """Suggest numbers of NPUs that are possible."""
    below, above = npus // unit * unit, -(-npus // unit) * unit
    return f"name {above:,}" if not below else f"name {below:,} or {above:,}"


def as_one_file(name: str) -> dict[str, Any]:
    """Return a machine and its device as the content of one file."""
    _check_name(name)
    machine = _data("machines", name)
    return {**machine, "device": _device(machine)}


def _check_name(name: str) -> None:
    if not name.endswith(_ENDING) and name not in names():
        remedy = did_you_mean(name, names()) or f"et-sim machine lists them: {', '.join(names())}"
        raise UsageError(f"machine {name!r} is not known", remedy=remedy)


def _device(machine: dict[str, Any]) -> dict[str, Any]:
    named = machine["device"]
    return named if isinstance(named, dict) else _data("devices", named)


def _data(folder: str, name: str) -> dict[str, Any]:
    if name.endswith(_ENDING):
        return _own(name)
    path = files("et_sim.machine.presets") / folder / f"{name}{_ENDING}"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return _completed(_data(folder, content.pop("like")), content) if "like" in content else content


def _completed(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return an entry that builds on another one: its own figures, then those of the base.

    The accuracy of the base does not apply to it.
    """
    whole = _merged({key: value for key, value in base.items() if key != "accuracy"}, own)
    for key in own.get("estimates", {}):
        whole["sources"].pop(key, None)
    for key in own.get("sources", {}):
        whole["estimates"].pop(key, None)
    return whole


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Merge two objects key by key; null removes a key."""
    whole = dict(base)
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            whole[key] = _merged(base[key], value)
        else:
            whole[key] = value
    return {key: value for key, value in whole.items() if value is not None}


def _own(path: str) -> dict[str, Any]:
    """Read a machine from a file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {unreadable(error)}", remedy="name a file that et-sim calibrate wrote"
        ) from error
    content = parse_json(text, path, MachineError)
    if (
        not isinstance(content, dict)
        or not content.keys() >= _KEYS
        or not isinstance(content["device"], dict)
    ):
        raise MachineError(
            "the file does not describe a machine by name",
            place=path,
            remedy="name a file that et-sim calibrate wrote; other files are given as --system and --network",
        )
    return content
