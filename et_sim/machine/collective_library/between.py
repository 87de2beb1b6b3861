"""Messages between nodes, by the kind of network: latency, part of the rate, and how channels fill.

A library's own model has one network. Networks differ in the time of a message beside the steps that the
library counts, and in the part of the cards' rate that bytes reach; the first bytes of a collective do not
pass at that rate yet. A plugin may tell the library a latency, by which it then chooses.

Figures of each kind, with their sources, are files in `presets/networks`. Not here: the formula of time
(`choice`), and the cards of a node (`channels`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.basics.units import parse_bytes, parse_time_ns
from et_sim.documents.keys import Remarks, Section
from et_sim.documents.kinds import choice, choices, number, size, time
from et_sim.machine.collective_library.constants import PROTOCOL_NAMES, Protocol, protocols_named

KINDS = ("infiniband", "roce", "efa", "efa-1", "slingshot", "tcpx", "unknown")
_FIGURES = ("latency", "told-latency", "share", "fill", "fill-size", "protocols")


@cache
def network_kind(kind: str) -> Mapping[str, Any]:
    """Return all that is known of a kind of network: figures, accuracy, sources, estimates."""
    path = files("et_sim.machine.presets") / "networks" / f"{kind}.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


@quick_dataclass(frozen=True)
class Between:
    """The network between nodes; what a file leaves out is as the kind has it."""

    kind: str = choice("The kind of network.", "", choices=KINDS)
    latency_ns: float = time("Of a message between nodes, beside the step that the library counts.", 0.0)
    told_latency_ns: float = time("That the network's plugin tells the library, which chooses by it.", 0.0)
    share: float = number(
        "The part of the rate of the cards that bytes of large collectives reach.",
        1.0,
        maximum=1,
        above_minimum=True,
    )
    fill: float = number("How many times longer than that the first bytes take besides.", 0.0, maximum=1000)
    fill_size: int = size("How many bytes of a collective these are.", 0)
    protocols: tuple[Protocol, ...] = choices(
        "Only these are used between nodes.",
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
        """Return the time of a message whose step the library counts so."""
        return step_us + self.latency_ns / 1000

    def told_us(self, protocol: Protocol) -> float:
        """Return what the library adds to a step; with Simple, it counts the latency twice."""
        return self.told_latency_ns / 1000 * (2 if protocol is Protocol.SIMPLE else 1)

    def fill_us(self, size: int, full: float) -> float:
        """Return the time in which channels fill, where all bytes pass at so many GB/s afterwards."""
        return self.fill * min(size, self.fill_size) / 1000 / full


def _in_units(name: str, value: Any) -> Any:
    if name.endswith("latency"):
        return parse_time_ns(value)
    if name == "fill-size":
        return parse_bytes(value)
    return protocols_named(tuple(value)) if name == "protocols" else value
