"""Devices and links that stand in lists: of a file, or of what an importer makes of one."""

from __future__ import annotations

import fnmatch
import re
from collections import deque
from collections.abc import Callable

from et_sim.basics.errors import did_you_mean
from et_sim.documents.keys import show
from et_sim.machine.graph import KINDS, NIC, NPU, SWITCH, GraphBuilder
from et_sim.machine.topology.fields import Fields

LISTS = (("npus", NPU), ("switches", SWITCH), ("nics", NIC))
ONE_NAME = {"npus": "npu", "switches": "switch", "nics": "nic"}
PATTERN = re.compile(r"[*?\[]")


def add_devices(build: GraphBuilder, fields: Fields) -> None:
    """Those of the keys `devices`, `npus`, `switches` and `nics`."""
    for entry in fields.parts("devices"):
        kind = KINDS.index(entry.choice("kind", KINDS))
        _add(build, entry, "name", entry.text("name"), kind)
        entry.done()
    for key, kind in LISTS:
        given = fields.value(key, [])
        if type(given) is int and given >= 0:
            build.expect(devices=given)
            given = [f"{ONE_NAME[key]}{number}" for number in range(given)]
        if not isinstance(given, list):
            raise fields.fault(key, f'key "{key}" is {show(given)}', "allowed: a number, or a list of names")
        for name in given:
            if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
                raise fields.fault(key, f"{show(name)} is no name", "allowed: texts and whole numbers")
            _add(build, fields, key, str(name), kind)


def _add(build: GraphBuilder, fields: Fields, key: str, name: str, kind: int) -> None:
    try:
        build.device(name, kind, 0 if kind == NPU else 1)
    except KeyError:
        raise fields.fault(key, f"two devices are named {show(name)}", "give each its own name") from None


def add_links(build: GraphBuilder, fields: Fields) -> None:
    """Those of the key `links`, each way unless an entry says otherwise."""
    for entry in fields.parts("links"):
        ends = [_matching(build, entry, key) for key in ("from", "to")]
        figures, one_way, name = entry.figures(), entry.switch("one-way"), entry.text("name", "")
        entry.done()
        build.expect(links=(len(ends[0]) * len(ends[1]) - len(set(ends[0]) & set(ends[1]))) * (2 - one_way))
        pairs = [(source, target) for source in ends[0] for target in ends[1] if source != target]
        if name and len(pairs) > 1:
            raise entry.fault("name", f"{len(pairs)} links would be named {show(name)}", "leave it out")
        if not pairs:
            raise entry.fault("to", "the link leads from a device to itself", "name two devices")
        for source, target in pairs:
            _link(build, entry, source, target, name)(figures)
            if not one_way:
                _link(build, entry, target, source, f"{name}:back" if name else "")(figures)


def _link(build: GraphBuilder, entry: Fields, source: int, target: int, name: str) -> Callable[..., None]:
    def add(figures: object) -> None:
        try:
            build.link(source, target, figures, name)  # type: ignore[arg-type]
        except KeyError as taken:
            cause = f"a link named {show(taken.args[0])} is already there"
            raise entry.fault(
                "", cause, 'give this one a "name", or raise the "count" of the other'
            ) from None

    return add


def _matching(build: GraphBuilder, entry: Fields, key: str) -> list[int]:
    """The devices that a name or pattern means."""
    given = entry.value(key)
    if given is None:
        raise entry.fault("", f'key "{key}" is missing', "name a device, or several with a pattern")
    devices = []
    for name in given if isinstance(given, list) else [given]:
        devices += devices_named(build, entry, key, str(name))
    return list(dict.fromkeys(devices))


def devices_named(build: GraphBuilder, entry: Fields, key: str, name: str) -> list[int]:
    """The devices of a name or pattern; there must be one."""
    if name in build.number:
        return [build.number[name]]
    devices: list[int] = []
    if PATTERN.search(name):
        match = re.compile(fnmatch.translate(name)).match
        devices = [number for number, device_name in enumerate(build.names) if match(device_name)]
    if not devices:
        near = did_you_mean(name, tuple(build.names[:5000]))
        remedy = near or f"there are {', '.join(build.names[:3])}, … {build.names[-1]}" if build.names else ""
        raise entry.fault(key, f"no device is named {show(name)}", remedy or "list the devices first")
    return devices


def set_tiers(build: GraphBuilder) -> None:
    """Switches and NICs stand as many rows up as they are links away from the nearest NPU."""
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
