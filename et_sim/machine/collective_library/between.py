"""Messages between nodes, by the kind of network: latency, share of the rate, and filling of channels.

A library's own model has one network. Real networks differ in the latency of a message beside the steps that
the library counts, and in the share of the cards' rate that bytes reach; the first bytes of a collective pass
at a lower rate. A plugin may report a latency to the library, which then enters its choice.

The figures of each kind, with their sources, are files in `presets/networks`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from et_sim.basics.units import parse_bytes, parse_time_ns
from et_sim.documents.keys import Remarks, Section
from et_sim.documents.kinds import choice, choices, number, size, time
from et_sim.machine.collective_library.constants import PROTOCOL_NAMES, LibraryProtocol, protocols_named

KINDS = ("infiniband", "roce", "efa", "efa-1", "slingshot", "tcpx", "unknown")
_FIGURES = ("latency", "told-latency", "share", "fill", "fill-size", "fill-rate", "protocols")


@cache
def network_kind(kind: str) -> Mapping[str, Any]:
    """Read the figures, accuracy, sources and estimates of a kind of network."""
    from importlib.resources import files

    path = files("et_sim.machine.presets") / "networks" / f"{kind}.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


class Between(Struct, frozen=True):
    """The network between nodes; figures that a file leaves out come from the kind."""

    kind: str = choice("The kind of network.", "", choices=KINDS)
    latency_ns: float = time(
        "Latency of a message between nodes, beside the step that the library counts.", 0.0
    )
    told_latency_ns: float = time("Latency that the plugin reports; the library uses it to choose.", 0.0)
    share: float = number(
        "The part of the rate of the cards that bytes of large collectives reach.",
        1.0,
        maximum=1,
        above_minimum=True,
    )
    fill: float = number("Extra time of the first bytes, as a multiple of their time.", 0.0, maximum=1000)
    fill_size: int = size("Bytes of a collective that count as first ones.", 0)
    fill_rate: float = number(
        "GB/s of the cards of a node from which on `fill` holds; it falls in proportion with slower ones.",
        0.0,
    )
    protocols: tuple[LibraryProtocol, ...] = choices(
        "The only protocols that are used between nodes.",
        (),
        choices=tuple(PROTOCOL_NAMES.values()),
        becomes=protocols_named,
    )

    @classmethod
    def complete(cls, given: Mapping[str, Any], _section: Section, _remarks: Remarks) -> dict[str, Any]:
        """Return the figures of the kind that the file does not give."""
        if not given.get("kind"):
            return {}
        known = network_kind(given["kind"])
        figures = {name: known[name] for name in _FIGURES if name in known and name not in given}
        return {name: _in_units(name, value) for name, value in figures.items()}

    def latency_us(self, step_us: float) -> float:
        """Return the time of a message, given the step that the library counts for it."""
        return step_us + self.latency_ns / 1000

    def reported_us(self, protocol: LibraryProtocol) -> float:
        """Return the latency that the library adds to a step; it counts it twice with Simple."""
        return self.told_latency_ns / 1000 * (2 if protocol is LibraryProtocol.SIMPLE else 1)

    def fill_us(self, size: int, full: float, node: float) -> float:
        """Return the extra time of the first bytes; `full` and `node` are GB/s of the group and of a node."""
        part = min(node / self.fill_rate, 1.0) if self.fill_rate else 1.0
        return part * self.fill * min(size, self.fill_size) / 1000 / full


def _in_units(name: str, value: Any) -> Any:
    if name.endswith("latency"):
        return parse_time_ns(value)
    if name == "fill-size":
        return parse_bytes(value)
    return protocols_named(tuple(value)) if name == "protocols" else value
