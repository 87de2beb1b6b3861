"""Infrastructures of InfraGraph 2.4, converted to the lists of a graph file.

A device is a list of components and the edges between them; instances place copies of devices, and edges join
these. Components of the type `xpu` become NPUs, `nic` NICs, all others switches. Slices of edges follow
Python (`port[0:8]`); the short form of an edge, `xpu.0.pcie.nic.0`, is read, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import MachineError
from et_sim.documents.reading import MOST_DEVICES, MOST_LINKS
from et_sim.machine.recognise import Imported

KINDS = {"xpu": "npu", "nic": "nic"}
SLICED = re.compile(r"([A-Za-z_][\w-]*)(?:\[(\d{0,7})(?:(:)(\d{0,7}))?\])?", re.ASCII)
INDEXED = re.compile(r"([A-Za-z_][\w-]*)\.(\d{1,7})", re.ASCII)
GB_PER_S = {"gigabits_per_second": 1 / 8, "gigabytes_per_second": 1.0}
NANOSECONDS = {"ms": 1e6, "us": 1e3, "ns": 1.0}
SCHEMES = ("one2one", "many2many", "ring")


class _Wire(Struct, frozen=True):
    """The speed in GB/s, None if not given, and the latency of a link."""

    speed: float | None
    latency_ns: float


class _Edge(Struct, frozen=True):
    """Two lists of endpoints, and the rule that joins them."""

    sources: list[str]
    targets: list[str]
    scheme: str
    link: str


class _Reader:
    """The infrastructure of a file, and the notices on it."""

    def __init__(self, content: dict[str, Any], place: str) -> None:
        self.place = place
        self.content = content.get("infrastructure", content)
        self.notices: dict[str, str] = {}
        self.devices = dict(self.named("devices", self.content))

    def fault(self, cause: str, remedy: str = "compare it with the schema of InfraGraph 2.4") -> MachineError:
        """Return a refusal with the place of the file."""
        return MachineError(cause, place=self.place, remedy=remedy)

    def listed(self, key: str, content: dict[str, Any]) -> list[Any]:
        """Return the list of a key; without the key, an empty one."""
        entries = content.get(key) or []
        if not isinstance(entries, list):
            raise self.fault(f'key "{key}" is no list')
        return entries

    def named(self, key: str, content: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the names and entries of a list."""
        for entry in self.listed(key, content):
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str) or SLICED.fullmatch(name) is None:
                raise self.fault(f'an entry of "{key}" has no name of letters, digits, - and _')
            yield name, entry

    def wires(self, content: dict[str, Any]) -> dict[str, _Wire]:
        """Return the links of a device, or of the infrastructure, by name."""
        return {name: self._wire(name, entry) for name, entry in self.named("links", content)}

    def _wire(self, name: str, entry: dict[str, Any]) -> _Wire:
        physical = entry.get("physical", entry)
        physical = physical if isinstance(physical, dict) else {}
        speed = self._figure(name, physical, "bandwidth", GB_PER_S)
        latency = self._figure(name, physical, "latency", NANOSECONDS)
        return _Wire(speed, latency or 0.0)

    def _figure(self, name: str, physical: dict[str, Any], key: str, units: dict[str, float]) -> float | None:
        figure = physical.get(key)
        if figure is None:
            return None
        chosen = figure.get("choice") if isinstance(figure, dict) else None
        unit = chosen if isinstance(chosen, str) else None
        value = figure.get(unit) if unit is not None else None
        if unit not in units:
            remedy = f"give one of {', '.join(units)}"
            raise self.fault(f'the {key} of link "{name}" is in {unit or "no unit"}', remedy)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise self.fault(f'the {key} of link "{name}" is {value!r}', "give a number above 0")
        if key == "bandwidth" and value == 0:
            raise self.fault(f'the bandwidth of link "{name}" is 0', "give a number above 0")
        return value * units[unit]


def from_infragraph(content: Any, place: str) -> Imported:
    """Convert an infrastructure to devices and links."""
    if not isinstance(content, dict) or not isinstance(content.get("infrastructure", content), dict):
        raise MachineError("the file is no infrastructure", place=place, remedy="give devices and instances")
    reader = _Reader(content, place)
    instances = _instances(reader)
    devices: list[dict[str, str]] = []
    made: list[tuple[str, str, _Wire]] = []
    counts = {name: _counts(reader, entry) for name, entry in reader.devices.items()}
    inside = {name: _inner_links(reader, name, counts[name]) for name in dict(instances.values())}
    for instance, (device, count) in instances.items():
        types = _types(reader, device)
        parts = [(f"{part}.{at}", types[part]) for part, n in counts[device].items() for at in range(n)]
        if len(devices) + len(parts) * count > MOST_DEVICES:
            raise reader.fault("the infrastructure has too many components", f"the limit is {MOST_DEVICES:,}")
        for number in range(count):
            before = f"{instance}.{number}."
            devices += [{"name": before + part, "kind": KINDS.get(kind, "switch")} for part, kind in parts]
            made += [(before + source, before + target, wire) for source, target, wire in inside[device]]
        if len(made) > MOST_LINKS:
            raise reader.fault("the infrastructure has too many links", f"the limit is {MOST_LINKS:,}")
    made += _outer_links(reader, instances, counts)
    return Imported(
        {"devices": devices, "links": _links(reader, made)}, notices=tuple(reader.notices.items())
    )


def _instances(reader: _Reader) -> dict[str, tuple[str, int]]:
    """Return device and count of each instance; without instances, one device with NPUs is placed."""
    instances: dict[str, tuple[str, int]] = {}
    for name, entry in reader.named("instances", reader.content):
        device, count = entry.get("device"), entry.get("count", 1)
        if not isinstance(device, str) or device not in reader.devices:
            raise reader.fault(f'instance "{name}" is of device {device!r}, which is not described')
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_DEVICES:
            raise reader.fault(f'the count of instance "{name}" is {count!r}', "give a number above 0")
        instances[name] = device, count
    if instances:
        return instances
    hosts = [name for name in reader.devices if "xpu" in _types(reader, name).values()]
    if len(hosts) != 1:
        cause = f"there are no instances, and {len(hosts)} devices have XPUs"
        raise reader.fault(cause, 'place devices under "instances"')
    reader.notices["instances"] = f"there are none: one {hosts[0]} is placed"
    return {hosts[0]: (hosts[0], 1)}


def _types(reader: _Reader, device: str) -> dict[str, str]:
    """Return the type of each component of a device."""
    types = {}
    for name, entry in reader.named("components", reader.devices[device]):
        kind = entry.get("choice", entry.get("type", ""))
        if kind == "device":
            raise reader.fault(f'component "{name}" of "{device}" is a device', "list its components there")
        types[name] = str(kind)
    return types


def _counts(reader: _Reader, device: dict[str, Any]) -> dict[str, int]:
    """Return the number of each component: its count, or the highest number that an edge names."""
    highest: dict[str, int] = {}
    for entry in (*reader.listed("edges", device), *reader.listed("connections", device)):
        for name, number in INDEXED.findall(entry) if isinstance(entry, str) else ():
            highest[name] = max(highest.get(name, 0), int(number) + 1)
    counts = {}
    for name, entry in reader.named("components", device):
        count = entry.get("count", highest.get(name, 1))
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_DEVICES:
            raise reader.fault(f'the count of component "{name}" is {count!r}', "give 0 or a number above it")
        counts[name] = count
    return counts


Link = tuple[str, str, _Wire]


def _inner_links(reader: _Reader, device: str, counts: dict[str, int]) -> list[Link]:
    entry = reader.devices[device]
    wires = reader.wires(entry)
    links: list[Link] = []
    for edge in (*reader.listed("edges", entry), *reader.listed("connections", entry)):
        if isinstance(edge, str):
            words = re.fullmatch(rf"({INDEXED.pattern})\.([\w-]+)\.({INDEXED.pattern})", edge, re.ASCII)
            if words is None:
                raise reader.fault(f"edge {edge!r} is not of the form xpu.0.pcie.nic.0")
            ends = [_ends(reader, f"{words[at]}[{words[at + 1]}]", counts) for at in (2, 6)]
            found = _Edge(ends[0], ends[1], "one2one", words[4])
        else:
            found = _edge(reader, edge, lambda end: _ends(reader, end.get("component"), counts))
        links += _joined(reader, found, wires)
    return links


def _outer_links(
    reader: _Reader, instances: dict[str, tuple[str, int]], counts: dict[str, dict[str, int]]
) -> list[Link]:
    wires = reader.wires(reader.content)
    placed = {name: count for name, (_, count) in instances.items()}

    def ends(end: dict[str, Any]) -> list[str]:
        owners = _ends(reader, end.get("instance"), placed)
        device = instances[owners[0].rpartition(".")[0]][0]
        parts = _ends(reader, end.get("component"), counts[device])
        return [f"{owner}.{part}" for owner in owners for part in parts]

    links: list[Link] = []
    for edge in reader.listed("edges", reader.content):
        links += _joined(reader, _edge(reader, edge, ends), wires)
    return links


def _edge(reader: _Reader, edge: Any, ends: Any) -> _Edge:
    """Return an edge of the long form."""
    given: list[Any] = [edge.get(key) if isinstance(edge, dict) else None for key in ("ep1", "ep2")]
    if not all(isinstance(end, dict) for end in given):
        raise reader.fault('an edge lacks "ep1" or "ep2"')
    if any(end.get("device") for end in given):
        raise reader.fault("an edge leads into a device within a device", "list its components there")
    scheme = edge.get("scheme", "one2one")
    if scheme not in SCHEMES:
        raise reader.fault(f"the scheme of an edge is {scheme!r}", f"known: {', '.join(SCHEMES)}")
    return _Edge(ends(given[0]), ends(given[1]), scheme, str(edge.get("link", "")))


def _ends(reader: _Reader, text: Any, counts: dict[str, int]) -> list[str]:
    """Return the names that a text with a slice stands for."""
    words = SLICED.fullmatch(text) if isinstance(text, str) else None
    if words is None or words[1] not in counts:
        raise reader.fault(f"an edge names {text!r}", f"there are {', '.join(counts) or 'none'}")
    count = counts[words[1]]
    if words[2] is None:
        numbers = range(count)
    elif words[3] is None:
        numbers = range(int(words[2] or 0), int(words[2] or 0) + 1)
    else:
        numbers = range(int(words[2] or 0), int(words[4] or count))
    if not numbers or numbers.stop > count:
        raise reader.fault(f"an edge names {text!r}, and there are {count}", "numbers begin at 0")
    return [f"{words[1]}.{number}" for number in numbers]


def _joined(reader: _Reader, edge: _Edge, wires: dict[str, _Wire]) -> list[Link]:
    """Return the links of an edge."""
    if edge.link not in wires:
        raise reader.fault(f'an edge names the link "{edge.link}"', f"there are {', '.join(wires) or 'none'}")
    sources, targets, wire = edge.sources, edge.targets, wires[edge.link]
    if edge.scheme == "many2many":
        if len(sources) * len(targets) > MOST_LINKS:
            raise reader.fault("an edge makes too many links", f"the limit is {MOST_LINKS:,}")
        pairs = [(source, target) for source in sources for target in targets if source != target]
        unique = {(min(pair), max(pair)): pair for pair in pairs}
        return [(source, target, wire) for source, target in unique.values()]
    if edge.scheme == "ring":
        around = list(dict.fromkeys((*sources, *targets)))
        following = (*around[1:], around[0]) if len(around) > 2 else around[1:]
        return [(source, target, wire) for source, target in zip(around, following, strict=False)]
    if len(sources) != len(targets) and 1 not in (len(sources), len(targets)):
        raise reader.fault(f"one2one joins {len(sources)} with {len(targets)}", "give equally many, or one")
    longest = max(len(sources), len(targets))
    firsts = sources * longest if len(sources) == 1 else sources
    seconds = targets * longest if len(targets) == 1 else targets
    return [(source, target, wire) for source, target in zip(firsts, seconds, strict=True)]


def _links(reader: _Reader, made: list[Link]) -> list[dict[str, Any]]:
    """Return the entries of links; those without a speed have the highest of the file."""
    speeds = [wire.speed for _, _, wire in made if wire.speed is not None]
    if not speeds:
        raise reader.fault("no link has a bandwidth", "give it under physical, bandwidth")
    if len(speeds) < len(made):
        text = f"{len(made) - len(speeds)} have none: taken as fast as the fastest, {max(speeds):g} GB/s"
        reader.notices["bandwidth"] = text
    seen: dict[tuple[str, str], int] = {}
    links = []
    for source, target, wire in made:
        ends = (min(source, target), max(source, target))
        seen[ends] = seen.get(ends, 0) + 1
        speed = max(speeds) if wire.speed is None else wire.speed
        link = {"from": source, "to": target, "bandwidth": f"{speed:.10g}GB/s", "latency": wire.latency_ns}
        links.append(link | ({"name": f"{source}->{target}#{seen[ends]}"} if seen[ends] > 1 else {}))
    return links
