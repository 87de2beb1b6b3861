"""The topology of a host as NCCL writes it (`NCCL_TOPO_DUMP_FILE`), converted to the lists of a graph file.

CPUs, PCI bridges and the NVSwitches of a host become switches; a GPU becomes an NPU, a NIC a NIC. The file
has the speed and width of PCI links and the speed of ports. It has no latencies, no speed of an NVLink or
between CPUs: these follow from the GPU's compute capability and the CPU's vendor, and notices state this.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from msgspec import Struct, field

from et_sim.basics.errors import MachineError
from et_sim.basics.units import plural
from et_sim.documents.reading import MOST_DEVICES, MOST_LINKS, whole_number
from et_sim.machine.recognise import Imported

DEEPEST = 64  # elements within each other
GB = 10**9
# GB/s of an NVLink in one direction, by compute capability: NVLink 1, 2 to 4, and 5.
NVLINK = {60: 20.0, 62: 20.0, 70: 25.0, 72: 25.0, 80: 25.0, 86: 14.0625, 90: 25.0, 100: 50.0, 103: 50.0}
# GB/s between the CPUs of a host, as NCCL assumes (topo.h of 2.28).
BETWEEN_CPUS = {"AuthenticAMD": 16.0, "GenuineIntel": 10.0, "  Shanghai  ": 6.0}
BETWEEN_CPUS_OF = {"arm64": 6.0, "ppc64": 32.0}
ASSUMED_PCI = 8.0, 16  # GT/s and lanes where the file has none, as NCCL assumes
TRANSFERS = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?) ?GT/s")
OLD_CODING = 5.0  # up to this many GT/s, 8 of 10 bits are data; above, 128 of 130
NVSWITCH, TO_CPU, TO_GPU = "0x068000", "0x068001", "0x03"


class _Host(Struct):
    """The devices and links of one host under construction."""

    place: str
    devices: list[dict[str, str]] = field(default_factory=list)
    links: list[dict[str, Any]] = field(default_factory=list)
    gpus: dict[str, tuple[int, str]] = field(default_factory=dict)  # by PCI address: rank and name
    ports: list[tuple[str, float]] = field(default_factory=list)  # NIC and GB/s
    notices: dict[str, str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def numbered(self, kind: str) -> str:
        """Return a new name of a kind."""
        return f"{kind}{sum(name.startswith(kind) for name in self.names)}"

    def device(self, name: str, kind: str) -> str:
        """Add a device; two with one name are refused."""
        if name in self.names:
            raise self.fault(f"two devices are named {name}", "correct the addresses")
        self.names.add(name)
        self.devices.append({"name": name, "kind": kind})
        return name

    def link(self, source: str, target: str, speed: float, *, is_one_way: bool = False) -> None:
        """Add a link of a speed in GB/s."""
        way = {"one-way": True} if is_one_way else {}
        self.links.append({"from": source, "to": target, "bandwidth": f"{speed:.10g}GB/s", **way})

    def link_to_cpu(self, gpu: str, cpu: str, speed: float) -> None:
        """Add a link beside PCI: of two between the same devices, messages take the faster one."""
        for link in self.links:
            if (link["from"], link["to"]) == (gpu, cpu):
                speed = max(speed, float(link["bandwidth"].removesuffix("GB/s")))
                self.links.remove(link)
                break
        self.link(gpu, cpu, speed)

    def fault(self, cause: str, remedy: str) -> MachineError:
        """Return a refusal with the place of the file."""
        return MachineError(cause, place=self.place, remedy=remedy)


def import_nccl_topology(text: str, place: str, hosts: int = 1) -> Imported:
    """Convert the topology of a host; several hosts are copies whose ports share one switch."""
    root = _parsed(text, place)
    host = _Host(place)
    waiting = [(element, "") for element in reversed(root)]
    links_of_gpus: list[tuple[str, str, ElementTree.Element]] = []
    cpus: list[tuple[str, ElementTree.Element]] = []
    while waiting:
        element, above = waiting.pop()
        name = _add(host, element, above, cpus)
        if element.tag == "gpu":
            links_of_gpus.extend((above, cpus[-1][0], wire) for wire in element)
        elif name:
            waiting.extend((child, name) for child in reversed(element))
    _join_cpus(host, cpus)
    speed = _nvlink_speeds(host, root)
    for gpu, cpu, wire in links_of_gpus:
        _add_wire(host, gpu, cpu, wire, speed)
    _merge_nvswitch(host)
    if len(host.gpus) < 2:
        raise host.fault(f"the host has {plural(len(host.gpus), 'GPU')}", "give one with two or more")
    host.notices["latency"] = "the file has none: links have no latency"
    return _joined(host, hosts)


def _parsed(text: str, place: str) -> ElementTree.Element:
    """Return the root element; entities and deep nesting are refused."""
    if "<!" in text.replace("<!--", ""):
        raise MachineError("it declares a document type", place=place, remedy="NCCL writes none: remove it")
    depth = 0
    root: ElementTree.Element | None = None
    try:
        for event, element in ElementTree.iterparse(io.BytesIO(text.encode()), ("start", "end")):
            root = element if root is None else root
            depth += 1 if event == "start" else -1
            if depth > DEEPEST:
                raise MachineError("elements are nested too deeply", place=place)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise MachineError(f"not valid XML: {error}", place=place, remedy="dump the topology again") from None
    if root is None or root.tag != "system":
        raise MachineError("is no topology of NCCL", place=place, remedy="give one with the root <system>")
    return root


def _add(
    host: _Host, element: ElementTree.Element, above: str, cpus: list[tuple[str, ElementTree.Element]]
) -> str:
    """Add the device of an element, and its link to the one above; return its name."""
    if element.tag == "cpu":
        cpus.append((host.device(f"cpu{len(cpus)}", "switch"), element))
        return cpus[-1][0]
    if not above:
        raise host.fault(f"<{element.tag}> is in no <cpu>", "dump the topology again")
    if element.tag == "pci":
        return _add_pci(host, element, above)
    if element.tag == "nic":
        return above
    if element.tag == "net":
        megabits = _number(host, element, "speed")
        if megabits < 1:
            raise host.fault(f"port {element.get('name')} has the speed 0", "correct it: Mbit/s")
        host.ports.append((above, megabits / 8000))
    elif element.tag != "gpu":
        host.notices[f"<{element.tag}>"] = "such elements are left out"
    return ""


def _add_pci(host: _Host, element: ElementTree.Element, above: str) -> str:
    address = _attribute(host, element, "busid").lower()
    gpu = element.find("gpu")
    kind, name = "switch", host.numbered("pci")
    if gpu is not None:
        rank = _number(host, gpu, "rank" if "rank" in gpu.attrib else "dev")
        kind, name = "npu", f"gpu{rank}"
        host.gpus[address] = rank, name
    elif element.find("nic") is not None:
        kind, name = "nic", host.numbered("nic")
    host.device(name, kind)
    host.link(name, above, _pci_speed(host, element, address))
    return name


def _pci_speed(host: _Host, element: ElementTree.Element, address: str) -> float:
    """Return the GB/s of a PCI link: transfers by lanes, without the line code."""
    written = TRANSFERS.match(element.get("link_speed", ""))
    lanes = whole_number(element.get("link_width", ""))
    if written is None or not lanes or lanes > 64:
        host.notices[f"PCI {address}"] = "the file has no speed: 8 GT/s and 16 lanes, as NCCL assumes"
        transfers, lanes = ASSUMED_PCI
    else:
        transfers = float(written[1])
    if transfers <= 0:
        raise host.fault(f"PCI {address} has the speed 0", "correct the file")
    data = 8 / 10 if transfers <= OLD_CODING else 128 / 130
    return transfers * data * lanes / 8


def _join_cpus(host: _Host, cpus: list[tuple[str, ElementTree.Element]]) -> None:
    """Connect the CPUs of each host with each other."""
    if len(cpus) > 1:
        host.notices["CPUs"] = "the file has no speed between them: that which NCCL assumes"
    for at, (name, element) in enumerate(cpus):
        vendor, arch = element.get("vendor", ""), element.get("arch", "")
        speed = BETWEEN_CPUS_OF.get(arch) or BETWEEN_CPUS.get(vendor)
        for other, another in cpus[at + 1 :]:
            if element.get("host_hash") != another.get("host_hash"):
                continue
            if speed is None:
                remedy = f"known vendors: {', '.join(word.strip() for word in BETWEEN_CPUS)}"
                raise host.fault(
                    f"the speed between CPUs of {vendor or arch or 'no vendor'} is unknown", remedy
                )
            host.link(name, other, speed)


def _nvlink_speeds(host: _Host, root: ElementTree.Element) -> float:
    """Return the GB/s of an NVLink of these GPUs."""
    wired = [gpu for gpu in root.iter("gpu") if gpu.find("nvlink") is not None]
    capabilities = {_number(host, gpu, "sm") for gpu in wired}
    for capability in capabilities:
        if capability not in NVLINK:
            known = ", ".join(map(str, NVLINK))
            raise host.fault(f"the speed of NVLinks of sm {capability} is unknown", f"known: {known}")
    if len(capabilities) > 1:
        raise host.fault("the GPUs have NVLinks of several generations", "give a host of equal GPUs")
    speed = NVLINK[capabilities.pop()] if capabilities else 0.0
    if speed:
        host.notices["NVLink"] = f"the file has no speed: {speed:g} GB/s each way, of the GPU's generation"
    return speed


def _add_wire(host: _Host, gpu: str, cpu: str, wire: ElementTree.Element, speed: float) -> None:
    """Add the NVLinks or the chip-to-chip link of a GPU."""
    if wire.tag == "c2c":
        host.link_to_cpu(gpu, cpu, _number(host, wire, "bw") * _number(host, wire, "count") / 1000)
    if wire.tag != "nvlink":
        return
    count, kind = _number(host, wire, "count"), wire.get("tclass", "")
    target = _attribute(host, wire, "target").lower()
    if not 1 <= count <= 64:
        raise host.fault(f"{gpu} has {count} NVLinks to {target}", "allowed: 1 to 64")
    if kind == NVSWITCH:
        host.link(gpu, "nvswitch", count * speed)
    elif kind == TO_CPU:
        host.link_to_cpu(gpu, cpu, count * speed)
    elif kind.startswith(TO_GPU) and target in host.gpus:
        host.link(gpu, host.gpus[target][1], count * speed, is_one_way=True)
    else:
        raise host.fault(f"an NVLink of {gpu} leads to {target}, which the file lacks", "dump it again")


def _merge_nvswitch(host: _Host) -> None:
    """Make one switch of all NVSwitches, over which GPUs spread their data, and one link to it per GPU."""
    sums: dict[str, float] = {}
    others = []
    for link in host.links:
        if link["to"] == "nvswitch":
            sums[link["from"]] = sums.get(link["from"], 0.0) + float(link["bandwidth"].removesuffix("GB/s"))
        else:
            others.append(link)
    host.links = others
    if sums:
        host.device("nvswitch", "switch")
    for gpu, speed in sums.items():
        host.link(gpu, "nvswitch", speed)


def _joined(host: _Host, hosts: int) -> Imported:
    """Return the lists of one host, or of several whose ports lead to one switch."""
    gpus = [name for _, name in sorted(host.gpus.values())]
    order = [*gpus, *(device["name"] for device in host.devices if device["kind"] != "npu")]
    kinds = {device["name"]: device["kind"] for device in host.devices}
    if hosts == 1:
        if host.ports:
            speeds = sum(speed for _, speed in host.ports)
            text = f"{plural(len(host.ports), 'port')} of {speeds:g} GB/s in all lead out of the host"
            host.notices["ports"] = f"{text}; --hosts N joins several hosts"
        devices = [{"name": name, "kind": kinds[name]} for name in order]
        return Imported({"devices": devices, "links": host.links}, notices=tuple(host.notices.items()))
    if not host.ports:
        raise host.fault("the host has no port to other hosts", "leave --hosts out")
    each = max(len(order) / MOST_DEVICES, 2 * (len(host.links) + len(host.ports)) / MOST_LINKS)
    if hosts * each >= 1:
        cause = f"{hosts:,} hosts of {len(order)} devices are more than can be simulated"
        raise host.fault(cause, f"the limit is {MOST_DEVICES:,} devices, and {MOST_LINKS:,} links")
    host.notices["ports"] = "the file ends at the ports: all lead to one switch that never blocks"
    devices, links = [], []
    for number in range(hosts):
        devices += [{"name": f"host{number}.{name}", "kind": kinds[name]} for name in order]
        ends = _prefixed(host.links, f"host{number}.")
        links += [*ends, *_outward(host.ports, f"host{number}.")]
    devices.append({"name": "fabric", "kind": "switch"})
    keys = {"routing": "ecmp"}
    return Imported(
        {"devices": devices, "links": links}, [], (len(gpus), hosts), keys, tuple(host.notices.items())
    )


def _prefixed(links: list[dict[str, Any]], prefix: str) -> Iterator[dict[str, Any]]:
    for link in links:
        yield {**link, "from": prefix + link["from"], "to": prefix + link["to"]}


def _outward(ports: list[tuple[str, float]], prefix: str) -> Iterator[dict[str, Any]]:
    """Yield the links of ports; a NIC with several has one link of all their speeds."""
    speeds: dict[str, float] = {}
    for nic, speed in ports:
        speeds[nic] = speeds.get(nic, 0.0) + speed
    for nic, speed in speeds.items():
        yield {"from": prefix + nic, "to": "fabric", "bandwidth": f"{speed:.10g}GB/s"}


def _attribute(host: _Host, element: ElementTree.Element, name: str) -> str:
    value = element.get(name)
    if not value or len(value) > 64:
        raise host.fault(f"<{element.tag}> has no {name}", "dump the topology again")
    return value


def _number(host: _Host, element: ElementTree.Element, name: str) -> int:
    """Return a whole number of an attribute."""
    word = _attribute(host, element, name)
    number = whole_number(word) if len(word) < 10 else None
    if number is None:
        raise host.fault(f"<{element.tag} {name}={word!r}> is no whole number", "dump the topology again")
    return number
