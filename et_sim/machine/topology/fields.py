"""Values of a graph's description, checked where they stand: every refusal names the file, the line and what
to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from et_sim.basics.errors import InputError, UsageError
from et_sim.basics.units import parse_bandwidth, parse_time_ns
from et_sim.documents.keys import Key, Kind, Remarks, Section, Slot, nearest, show
from et_sim.documents.kinds import CHOICE, COUNT, FLAG, TEXT
from et_sim.machine.graph import Figures

MOST = 1 << 24  # of any whole number in a graph's description
BANDWIDTH_FORMS = "allowed: a bandwidth with its unit, such as 400Gbps, 50 GB/s or 1.8TB/s"
LATENCY_FORMS = "allowed: a time such as 500ns or 0.5us; a bare number is in ns"


class Fields:
    """One object of the description; each key is read once, and keys that are not read are refused."""

    def __init__(self, section: Section) -> None:
        self.section = section
        if not isinstance(section.content, dict):
            raise section.fault(
                f"{show(section.content)} stands where an object belongs", "write keys with values"
            )
        self._content = section.content
        self._asked: dict[str, None] = {}

    def __contains__(self, key: str) -> bool:
        self._asked[key] = None
        return key in self._content

    def fault(self, key: str, cause: str, remedy: str) -> InputError:
        """An error about one of the keys; about the whole, without one."""
        return self.section.fault(cause, remedy, key=key)

    def missing(self, key: str, remedy: str) -> InputError:
        """An error about a key that is not there, or is misspelt."""
        near = next(
            (known for known in self._content if nearest(known, (key,)) and known not in self._asked), None
        )
        if near is not None:
            return self.fault(near, f"key {show(near)} is not known", nearest(near, (key,)))
        return self.section.fault(f'key "{key}" is missing', remedy)

    def value(self, key: str, default: Any = None) -> Any:
        """Whatever stands there."""
        self._asked[key] = None
        return self._content.get(key, default)

    def read(self, key: str, kind: Kind, default: Any = None, **more: Any) -> Any:
        """The checked value of a key, or its default; without one, it must be there."""
        declared = Key(key, kind, "", **more)
        if key in self:
            return Slot(declared, self.section, Remarks()).value(self._content[key])
        if default is None:
            raise self.missing(key, f"allowed: {declared.allowed}")
        return default

    def whole(self, key: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number."""
        number: int = self.read(key, COUNT, default, minimum=least, maximum=MOST)
        return number

    def wholes(self, key: str, *, least: int = 1) -> tuple[int, ...]:
        """A list of whole numbers."""
        value = self.value(key)
        good = isinstance(value, list) and bool(value) and all(type(number) is int for number in value)
        if not good or not all(least <= number <= MOST for number in value):
            cause = f'key "{key}" is missing' if value is None else f'key "{key}" is {show(value)}'
            raise self.fault(key, cause, f"allowed: a list of whole numbers >= {least}, such as [ 4, 8 ]")
        return tuple(value)

    def ratio(self, key: str) -> Fraction:
        """A ratio such as 2 or "3:1"; 1 if it is not there."""
        value = self.value(key, 1)
        try:
            ratio = Fraction(str(value).replace(":", "/")) if not isinstance(value, bool) else Fraction(0)
        except (ValueError, ZeroDivisionError):
            ratio = Fraction(0)
        if not 0 < ratio <= MOST:
            raise self.fault(key, f'key "{key}" is {show(value)}', 'allowed: a ratio such as 2 or "3:1"')
        return ratio

    def choice(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of some words."""
        return str(self.read(key, CHOICE, default, choices=tuple(choices)))

    def switch(self, key: str) -> bool:
        """True or false; false if it is not there."""
        return bool(self.read(key, FLAG, False))

    def text(self, key: str, default: str | None = None) -> str:
        """A text; an empty one is its default."""
        is_empty = default is not None and self.value(key) == ""
        return str(default if is_empty else self.read(key, TEXT, default))

    def entries(self, key: str) -> list[Any]:
        """A list; empty if it is not there."""
        value = self.value(key, [])
        if not isinstance(value, list):
            raise self.fault(key, f'key "{key}" is {show(value)}', "allowed: a list")
        return value

    def part(self, key: str) -> Fields:
        """An object inside."""
        if key not in self:
            raise self.missing(key, "give an object there")
        return Fields(self.section.entry(key, self._content[key]))

    def parts(self, key: str) -> list[Fields]:
        """A list of objects; empty if it is not there."""
        return [Fields(self.section.entry(key, entry, row)) for row, entry in enumerate(self.entries(key))]

    def bandwidth(self, default: float | None = None) -> float:
        """The bandwidth in bytes per ns."""
        return self.rate("bandwidth", default)

    def rate(self, key: str, default: float | None) -> float:
        """Bytes per ns of a key."""
        value = self.value(key)
        if value is None:
            if default is None:
                raise self.missing(key, BANDWIDTH_FORMS)
            return default
        try:
            return parse_bandwidth(value)
        except UsageError as error:
            why = error.cause if isinstance(value, str) else f"{key} {show(value)} has no unit"
            raise self.fault(key, why, BANDWIDTH_FORMS) from None

    def latency(self, default: float | None = 0.0) -> float:
        """The latency in ns."""
        value = self.value("latency", default)
        try:
            return parse_time_ns(value)
        except UsageError as error:
            raise self.fault("latency", error.cause, LATENCY_FORMS) from None

    def figures(self, default: Figures | None = None) -> Figures:
        """Bandwidth, latency and count of links."""
        bandwidth = self.bandwidth(default.bytes_per_ns if default else None)
        latency = self.latency(default.latency_ns if default else 0.0)
        return Figures(bandwidth * self.whole("count", 1), latency)

    def figures_of(self, key: str, default: Figures) -> Figures:
        """Those of an object inside; what it does not give is as in `default`."""
        if key not in self:
            return default
        part = self.part(key)
        figures = part.figures(default)
        part.done()
        return figures

    def done(self) -> None:
        """Refuse keys that were not read."""
        for key in self._content:
            if key not in self._asked:
                known = list(self._asked)
                remedy = nearest(key, known) or f"known here: {', '.join(known)}"
                raise self.fault(key, f"key {show(key)} is not known", remedy)
