"""What the objects of a graph's description have in common: figures of links, names of devices, numbers."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

from et_sim.basics.quick_dataclass import quick_dataclass
from et_sim.documents.keys import Kind, Section, Slot, inline, key
from et_sim.documents.kinds import BANDWIDTH_WITH_UNIT, COUNTS, count, time
from et_sim.documents.kinds import section as part
from et_sim.machine.graph import Figures

MOST = 1 << 24  # of any whole number in a graph's description
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
        raise slot.refusal(name, index=index, why="it is no name")
    return str(name)


def _names(slot: Slot, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise slot.refusal(value)
    return tuple(_name(slot, name, index) for index, name in enumerate(value))


def _name_or_names(slot: Slot, value: Any) -> tuple[str, ...]:
    return _names(slot, value) if isinstance(value, list) else (_name(slot, value),)


def _number_or_names(slot: Slot, value: Any) -> int | tuple[str, ...]:
    return value if type(value) is int and value >= 0 else _names(slot, value)


RATIO = Kind("ratio", lambda _: 'a ratio such as 2 or "3:1"', _ratio)
NAMES = Kind("names", lambda _: "a list of names, which are texts or whole numbers", _names)
NAME_OR_NAMES = Kind("name or names", lambda _: "the name of a device, a pattern, or a list", _name_or_names)
GENERATOR = Kind("generator", lambda _: "the name of a generator", lambda _, name: name)  # checked before
NUMBER_OR_NAMES = Kind("number or names", lambda _: "how many, or a list of names", _number_or_names)


@quick_dataclass(frozen=True)
class Links:
    """What links are capable of."""

    bandwidth: float = key(BANDWIDTH_WITH_UNIT, "Of a link.", required=True)
    latency_ns: float = time("From end to end.", 0.0)
    count: int = whole("Links side by side.", 1)

    @property
    def figures(self) -> Figures:
        """Of all that are side by side."""
        return Figures(self.bandwidth * self.count, self.latency_ns)


@quick_dataclass(frozen=True)
class OtherLinks:
    """What links are capable of that are like others, unless they are said to differ."""

    bandwidth: float | None = key(BANDWIDTH_WITH_UNIT, "Of a link.", None)
    latency_ns: float | None = time("From end to end.", None)
    count: int = whole("Links side by side.", 1)


def like(given: OtherLinks | None, others: Figures) -> Figures:
    """The figures of links; what is not given is as in the others."""
    if given is None:
        return others
    bandwidth = others.bytes_per_ns if given.bandwidth is None else given.bandwidth
    latency = others.latency_ns if given.latency_ns is None else given.latency_ns
    return Figures(bandwidth * given.count, latency)


def others(meaning: str) -> Any:
    """A key that holds such links."""
    return part(meaning, None, of=OtherLinks)


@quick_dataclass(frozen=True)
class Common:
    """What most generators take."""

    section: Section
    generator: str = key(GENERATOR, "What is made.", required=True)
    links: Links = inline(Links)
    nic: Links | None = part(
        "Of links between each NPU and a NIC of its own, before the network.", None, of=Links
    )
