"""Devices and links from lists: of a file, or of an importer."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from et_sim.basics.errors import did_you_mean
from et_sim.basics.patterns import fits_pattern
from et_sim.documents.keys import Section, inline, key, show
from et_sim.documents.kinds import choice, flag, sections, text
from et_sim.machine.graph import KINDS, NIC, NPU, SWITCH, GraphBuilder
from et_sim.machine.topology.keys import NAME_OR_NAMES, NUMBER_OR_NAMES, LinkKeys

PATTERN = re.compile(r"[*?\[]")


class ListedDevice(Struct, frozen=True):
    """A device of a list."""

    section: Section
    name: str = text("Name of the device.", required=True)
    kind: str = choice("Kind of the device.", required=True, choices=KINDS)


class ListedLink(Struct, frozen=True):
    """A link, or several equal ones."""

    section: Section
    sources: tuple[str, ...] = key(NAME_OR_NAMES, "Device at which it begins.", name="from", required=True)
    targets: tuple[str, ...] = key(NAME_OR_NAMES, "Device at which it ends.", name="to", required=True)
    links: LinkKeys = inline(LinkKeys)
    is_one_way: bool = flag("There is no link back.", False, name="one-way")
    name: str = text("Name of the link; the link back has the suffix `:back`.", "", may_be_empty=True)


class ListedNetwork(Struct, frozen=True):
    """Devices and links, one by one."""

    section: Section
    devices: tuple[ListedDevice, ...] = sections("Devices in order.", (), of=ListedDevice, may_be_empty=True)
    npus: int | tuple[str, ...] = key(NUMBER_OR_NAMES, "NPUs.", ())
    switches: int | tuple[str, ...] = key(NUMBER_OR_NAMES, "Switches.", ())
    nics: int | tuple[str, ...] = key(NUMBER_OR_NAMES, "NICs.", ())
    links: tuple[ListedLink, ...] = sections("Links.", (), of=ListedLink, may_be_empty=True)


def add_devices(build: GraphBuilder, lists: ListedNetwork) -> None:
    """Add the devices of the keys `devices`, `npus`, `switches` and `nics`."""
    for entry in lists.devices:
        _add(build, entry.section, "name", entry.name, KINDS.index(entry.kind))
    named = (("npus", NPU), ("switches", SWITCH), ("nics", NIC))
    for field, kind in named:
        given = getattr(lists, field)
        if isinstance(given, int):
            build.expect(devices=given)
            given = tuple(f"{KINDS[kind]}{number}" for number in range(given))
        for name in given:
            _add(build, lists.section, field, name, kind)


def _add(build: GraphBuilder, section: Section, key: str, name: str, kind: int) -> None:
    try:
        build.device(name, kind, 0 if kind == NPU else 1)
    except KeyError:
        cause = f"two devices are named {show(name)}"
        raise section.fault(cause, "give each its own name", key=key) from None


def add_links(build: GraphBuilder, lists: ListedNetwork) -> None:
    """Add the links of the key `links`, each way unless an entry is one-way."""
    for entry in lists.links:
        sources = devices_meant(build, entry.section, "from", entry.sources)
        targets = devices_meant(build, entry.section, "to", entry.targets)
        count = len(sources) * len(targets) - len(set(sources) & set(targets))
        build.expect(links=count * (2 - entry.is_one_way))
        pairs = [(source, target) for source in sources for target in targets if source != target]
        name, fault = entry.name, entry.section.fault
        if name and len(pairs) > 1:
            raise fault(f"{len(pairs)} links would be named {show(name)}", "leave it out", key="name")
        if not pairs:
            raise fault("the link leads from a device to itself", "name two devices", key="to")
        figures = entry.links.figures
        try:
            for source, target in pairs:
                build.link(source, target, figures, name)
                if not entry.is_one_way:
                    build.link(target, source, figures, f"{name}:back" if name else "")
        except KeyError as taken:
            cause = f"a link named {show(taken.args[0])} is already there"
            raise fault(cause, 'give this one a "name", or raise the "count" of the other') from None


def devices_meant(build: GraphBuilder, section: Section, key: str, names: Iterable[str]) -> list[int]:
    """Return the devices that names and patterns match, each once; refuse one that matches none."""
    devices = (device for name in names for device in _devices_named(build, section, key, name))
    return list(dict.fromkeys(devices))


def _devices_named(build: GraphBuilder, section: Section, key: str, name: str) -> list[int]:
    if name in build.number:
        return [build.number[name]]
    devices: list[int] = []
    if PATTERN.search(name):
        fits = fits_pattern(name)
        devices = [number for number, device_name in enumerate(build.names) if fits(device_name)]
    if not devices:
        near = did_you_mean(name, tuple(build.names[:5000]))
        remedy = near or f"there are {', '.join(build.names[:3])}, … {build.names[-1]}" if build.names else ""
        raise section.fault(
            f"no device has the name {show(name)}", remedy or "list the devices first", key=key
        )
    return devices


def set_tiers(build: GraphBuilder) -> None:
    """Set the tiers of switches and NICs to their distance from the nearest NPU, in links."""
    neighbours: list[list[int]] = [[] for _ in build.names]
    for source, target in zip(build.sources, build.targets, strict=True):
        neighbours[source].append(target)
        neighbours[target].append(source)
    tier = [0 if kind == NPU else -1 for kind in build.kinds]
    waiting = deque(number for number, kind in enumerate(build.kinds) if kind == NPU)
    while waiting:
        here = waiting.popleft()
        for there in neighbours[here]:
            if tier[there] < 0:
                tier[there] = tier[here] + 1
                waiting.append(there)
    build.tiers[:] = [
        max(distance, 1) if kind != NPU else 0 for distance, kind in zip(tier, build.kinds, strict=True)
    ]
