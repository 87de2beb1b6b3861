"""Keys that the objects of a graph's description share: figures of links, names of devices, numbers."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

from msgspec import Struct

from et_sim.documents.keys import Section, Slot, ValueKind, inline, key
from et_sim.documents.kinds import BANDWIDTH_WITH_UNIT, COUNTS, count, time
from et_sim.documents.kinds import section as part
from et_sim.machine.graph import LinkFigures

MOST = 1 << 24  # limit of whole numbers in a graph's description
whole, wholes = partial(count, minimum=1, maximum=MOST), partial(key, COUNTS, minimum=1, maximum=MOST)


def _ratio(slot: Slot, value: Any) -> Fraction:
    try:
        ratio = Fraction(str(value).replace(":", "/")) if not isinstance(value, bool) else Fraction(0)
    except (ValueError, ZeroDivisionError):
        ratio = Fraction(0)
    if not 0 < ratio <= MOST:
        raise slot.refusal(value)
    return ratio


def _name(slot: Slot, name: Any, index: int | None = None) -> str:
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise slot.refusal(name, index=index, why="it is not a name")
    return str(name)


def _names(slot: Slot, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise slot.refusal(value)
    return tuple(_name(slot, name, index) for index, name in enumerate(value))


RATIO = ValueKind("ratio", lambda _: 'a ratio such as 2 or "3:1"', _ratio)
NAMES = ValueKind("names", lambda _: "a list of names, which are texts or whole numbers", _names)
NAME_OR_NAMES = ValueKind(
    "name or names",
    lambda _: "the name of a device, a pattern, or a list",
    lambda slot, value: _names(slot, value) if isinstance(value, list) else (_name(slot, value),),
)
GENERATOR = ValueKind(
    "generator", lambda _: "the name of a generator", lambda _, name: name
)  # checked before
NUMBER_OR_NAMES = ValueKind(
    "number or names",
    lambda _: "a number of devices, or a list of names",
    lambda slot, value: value if type(value) is int and value >= 0 else _names(slot, value),
)


class LinkKeys(Struct, frozen=True):
    """The figures of links."""

    bandwidth: float = key(BANDWIDTH_WITH_UNIT, "Bandwidth of a link.", required=True)
    latency_ns: float = time("Latency from end to end.", 0.0)
    count: int = whole("Parallel links.", 1)

    @property
    def figures(self) -> LinkFigures:
        """Return the figures of all parallel links together."""
        return LinkFigures(self.bandwidth * self.count, self.latency_ns)


class OtherLinks(Struct, frozen=True):
    """The figures of links that resemble others, and their differences."""

    bandwidth: float | None = key(BANDWIDTH_WITH_UNIT, "Bandwidth of a link.", None)
    latency_ns: float | None = time("Latency from end to end.", None)
    count: int = whole("Parallel links.", 1)


def like(given: OtherLinks | None, others: LinkFigures) -> LinkFigures:
    """Return the figures of links, with those of `others` for missing keys."""
    if given is None:
        return others
    bandwidth = others.bytes_per_ns if given.bandwidth is None else given.bandwidth
    latency = others.latency_ns if given.latency_ns is None else given.latency_ns
    return LinkFigures(bandwidth * given.count, latency)


def others(meaning: str) -> Any:
    """Declare a key that holds such links."""
    return part(meaning, None, of=OtherLinks)


class Common(Struct, frozen=True):
    """The keys of most generators."""

    section: Section
    generator: str = key(GENERATOR, "Generator of the network.", required=True)
    links: LinkKeys = inline(LinkKeys)
    nic: LinkKeys | None = part("Links between each NPU and its own NIC.", None, of=LinkKeys)
