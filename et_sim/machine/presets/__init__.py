"""Presets: machines that can be named, such as `h100-dgx:128/node=4`, and the files they stand for.

What devices and machines are is data beside this module, with the source of every figure; estimates are named
so. A file that `et-sim calibrate` wrote is such a machine, too, and is named by its path: `machine.json:128`.
Not here: reading system and network files (`et_sim.machine.readers`).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from et_sim.errors import MachineError, UsageError, did_you_mean
from et_sim.json_text import parse_json
from et_sim.machine.profiles import Profile
from et_sim.units import parse_bandwidth

_NAME = re.compile(r"([^:]*)(?::([0-9]{1,12})(?:/(.*))?)?", re.ASCII)
_FORM = "write node=N (NPUs of a node), cards=N (network cards of a node), card=RATE (of one, as in 200Gbps)"
_ENDING = ".json"
_KEYS = {"about", "device", "most", "costs", "sources", "estimates"}  # of every machine
_COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")


@dataclass(frozen=True, slots=True)
class Preset:
    """A machine of some NPUs, as the two files that describe it."""

    name: str
    npus: int
    system: dict[str, Any]
    network: dict[str, Any]
    changes: str = ""  # as it was named

    @property
    def text(self) -> str:
        """As it is named."""
        return f"{self.name}:{self.npus}{self.changes}"

    @property
    def dimensions(self) -> list[str]:
        """What it is wired in, innermost first."""
        if "graph" not in self.network:
            keys = ("topology", "npus_count", "bandwidth", "latency")
            rows = zip(*(self.network[key] for key in keys), strict=True)
            return [f"{shape} of {npus}, {bandwidth}, {latency}" for shape, npus, bandwidth, latency in rows]
        graph = self.network["graph"]
        if "inside" not in graph:
            return [f"{graph['generator']} of {self.npus}, {graph['bandwidth']}, {graph['latency']}"]
        inside, sharers = graph["inside"], graph["npus-per-nic"]
        kind, port = inside["generator"], inside
        if kind == "behind-nics":
            kind, port = "PCIe", graph["nic"]
        within = f"{kind} of {graph['npus-per-node']}, {port['bandwidth']}, {port['latency']}"
        shared = f"each card shared by {sharers}" if sharers > 1 else "a card each"
        return [within, f"rails of {graph['nodes']}, {graph['bandwidth']}, {graph['latency']}, {shared}"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a machine, whatever its size."""

    name: str
    about: str
    device: str
    fewest: int
    most: int
    sources: dict[str, str]
    estimates: dict[str, str]


def names() -> tuple[str, ...]:
    """All machines."""
    folder = files("et_sim.machine.presets") / "machines"
    return tuple(
        sorted(one.name.removesuffix(_ENDING) for one in folder.iterdir() if one.name.endswith(_ENDING))
    )


def entry(name: str) -> Entry:
    """What is known of a machine: of its device, too."""
    machine = _data("machines", name)
    device = _device(machine)
    return Entry(
        name,
        machine["about"],
        device["about"],
        machine["torus"]["cube"] ** 3 if "torus" in machine else machine["node"],
        machine["most"],
        {**device["sources"], **machine["sources"]},
        {**device["estimates"], **machine["estimates"]},
    )


def known_as() -> dict[str, tuple[str, ...]]:
    """Words that stand in what others call a machine's hardware, in capitals, by machine."""
    return {name: tuple(_data("machines", name).get("known-as", ())) for name in names()}


def preset(text: str) -> Preset:
    """The machine of a name, `NAME`, `NAME:NPUS` or `NAME:NPUS/CHANGES`."""
    match = _NAME.fullmatch(text)
    name = match[1] if match else text.partition(":")[0]
    if not name.endswith(_ENDING) and name not in names():
        remedy = did_you_mean(name, names()) or f"et-sim machine lists them: {', '.join(names())}"
        raise UsageError(f"there is no machine called {name!r}", remedy=remedy)
    if match is None:
        raise UsageError(
            f"machine {text!r} does not end in a number of NPUs",
            remedy=f"write it as {name}:{entry(name).fewest}",
        )
    known = _changed(name, _data("machines", name), match[3])
    npus = int(match[2]) if match[2] else entry(name).fewest
    changes = "" if match[3] is None else f"/{match[3]}"
    if npus > known["most"]:
        raise UsageError(f"{name} has {known['most']:,} NPUs at most, not {npus:,}", remedy="name fewer")
    network = _torus(name, known, npus) if "torus" in known else _nodes(name, known, npus)
    return Preset(name, npus, _system(known, len(network.get("topology", ()))), network, changes)


def _changed(name: str, machine: dict[str, Any], changes: str | None) -> dict[str, Any]:
    """The machine with other nodes or cards, `node=4,cards=2`; cards are as many as in proportion."""
    if changes is None:
        return machine
    given = dict(one.partition("=")[::2] for one in changes.split(","))
    if not {*given} <= {"node", "cards", "card"} or len(given) < changes.count(",") + 1:
        raise UsageError(f"{name}: {changes!r} names no change of a machine", remedy=_FORM)
    if "torus" in machine or "graph" in machine or any("npus" in one for one in machine["dimensions"]):
        remedy = f"take it as it is, or write its files (et-sim machine {name} --out DIR) and edit them"
        raise UsageError(f"{name} has no nodes of another size, and no other cards", remedy=remedy)
    counts = {key: int(text) if text.isdecimal() else 0 for key, text in given.items() if key != "card"}
    if not all(0 < count <= machine["most"] for count in counts.values()):
        raise UsageError(f"{name}: {changes!r} is no number of NPUs or cards", remedy=_FORM)
    before, node = machine["node"], counts.get("node", machine["node"])
    cards = counts.get("cards", machine.get("cards", before) * node // before)
    if not cards or node % cards or ("cards" not in counts and machine.get("cards", before) * node % before):
        raise UsageError(
            f"{name}: {node} NPUs of a node cannot share {cards or 'no'} cards evenly",
            remedy="name cards=N, a divisor of the NPUs of a node; if an NPU has several, card=RATE of them all",
        )
    if node < 2:
        raise UsageError(f"{name}: a node of one NPU", remedy="name 2 or more")
    inner, outer = machine["dimensions"]
    outer = {**outer, "bandwidth": given.get("card", outer["bandwidth"])}
    try:
        parse_bandwidth(outer["bandwidth"])
    except UsageError as error:
        raise UsageError(error.cause, place=f"{name}/{changes}", remedy=error.remedy) from None
    return {**machine, "node": node, "cards": cards, "dimensions": [inner, outer]}


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
        "compute": device["compute"],
        "replay-recorded-kernels": True,
        "costs": {**device.get("costs", {}), **machine["costs"]},
        "accuracy": {
            "device": device["about"],
            **device.get("accuracy", {}),
            **machine.get("accuracy", {}),
        },
    }


def _collectives(machine: dict[str, Any], dimensions: int) -> dict[str, Any]:
    """What chooses the algorithms: a library, or the machine itself."""
    if "library" in machine:
        return {"library": machine["library"]}
    if "algorithms" not in machine:
        return {}
    algorithms = machine["algorithms"][:dimensions]
    return {
        **{f"{one}-implementation": algorithms for one in _COLLECTIVES[:3]},
        "all-to-all-implementation": ["direct"] * dimensions,
    }


def _nodes(name: str, machine: dict[str, Any], npus: int) -> dict[str, Any]:
    """Nodes of equal size; as many NPUs of one node as are wanted, too, if all are connected alike."""
    node = machine["node"]
    dimensions = machine.get("dimensions", ())
    sizes = [one["npus"] for one in dimensions if "npus" in one]
    is_whole = bool(sizes) or "graph" in machine
    if npus % node and (npus > node or is_whole):
        raise UsageError(
            f"{name} has nodes of {node} NPUs, and {npus:,} are no whole nodes", remedy=_near(npus, node)
        )
    if npus < 1:
        raise UsageError(f"{name}:{npus} has no NPU", remedy=f"name 1 to {node}, or whole nodes")
    if "graph" in machine:
        return {"graph": machine["graph"]}
    counts = [npus] if npus <= node and not sizes else [*(sizes or [node]), npus // node]
    if sizes and npus == node:
        counts.pop()
    sharers = node // machine.get("cards", node)
    is_pci = machine.get("library", {}).get("link") == "PCI"
    if npus > node and (sharers > 1 or is_pci):
        return {"graph": _rails(dimensions, counts, sharers, is_pci=is_pci)}
    inner = [one for one, _ in zip(machine["dimensions"], counts, strict=False)]
    return {
        "topology": [one["topology"] for one in inner],
        "npus_count": counts,
        "bandwidth": [one["bandwidth"] for one in inner],
        "latency": [one["latency"] for one in inner],
    }


def _rails(
    dimensions: list[dict[str, str]], counts: list[int], sharers: int, *, is_pci: bool
) -> dict[str, Any]:
    """Nodes whose NPUs share cards, one rail for each card of a node.

    With PCIe, a card and its NPUs are behind one switch, and NPUs have one link for all that they send.
    """
    inner, outer = dimensions
    nic: dict[str, Any] = {"bandwidth": outer["bandwidth"], "latency": 0}
    shape = {"Switch": "switch", "FullyConnected": "fully-connected"}[inner["topology"]]
    figures: dict[str, Any] = {key: inner[key] for key in ("bandwidth", "latency")}
    inside = {"generator": shape, **figures}
    if is_pci:
        wide = f"{sharers * parse_bandwidth(inner['bandwidth']):g}GB/s"
        nic, inside = figures, {"generator": "behind-nics", "bandwidth": wide, "latency": 0}
    return {
        "generator": "rail-optimised",
        "nodes": counts[1],
        "npus-per-node": counts[0],
        "inside": inside,
        "npus-per-nic": sharers,
        "nic": nic,
        "bandwidth": outer["bandwidth"],
        "latency": outer["latency"],
    }


def _torus(name: str, machine: dict[str, Any], npus: int) -> dict[str, Any]:
    """A torus of whole cubes, whose sides differ as little as they can."""
    torus = machine["torus"]
    cube = torus["cube"]
    if not npus or npus % cube**3:
        raise UsageError(
            f"{name} is built of cubes of {cube**3} NPUs, and {npus:,} are no whole cubes",
            remedy=_near(npus, cube**3),
        )
    cubes = npus // cube**3
    sides = [
        (first, second, cubes // first // second)
        for first in range(1, cubes + 1)
        if cubes % first == 0
        for second in range(first, cubes // first + 1)
        if cubes // first % second == 0 and cubes // first // second >= second
    ]
    best = min(sides, key=lambda one: (one[2] - one[0], one))
    return {
        "topology": ["Ring"] * 3,
        "npus_count": [cube * side for side in best],
        "bandwidth": [torus["bandwidth"]] * 3,
        "latency": [torus["latency"]] * 3,
    }


def _near(npus: int, unit: int) -> str:
    """Numbers of NPUs that are possible."""
    below, above = npus // unit * unit, -(-npus // unit) * unit
    return f"name {above:,}" if not below else f"name {below:,} or {above:,}"


def as_one_file(name: str) -> dict[str, Any]:
    """All that is known of a machine and of its device, as a file of its own holds it."""
    machine = _data("machines", name)
    return {**machine, "device": _device(machine)}


def _device(machine: dict[str, Any]) -> dict[str, Any]:
    named = machine["device"]
    return named if isinstance(named, dict) else _data("devices", named)


def _data(folder: str, name: str) -> dict[str, Any]:
    if name.endswith(_ENDING):
        return _own(name)
    path = files("et_sim.machine.presets") / folder / f"{name}{_ENDING}"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _own(path: str) -> dict[str, Any]:
    """A machine in a file of its own."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path} cannot be read: {error}", remedy="name a file that et-sim calibrate wrote"
        ) from error
    found = parse_json(text, path, MachineError)
    if not isinstance(found, dict) or not found.keys() >= _KEYS or not isinstance(found["device"], dict):
        raise MachineError(
            "this describes no machine by name",
            place=path,
            remedy="name a file that et-sim calibrate wrote; other files are given as --system and --network",
        )
    return found
