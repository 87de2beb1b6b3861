"""Systems that were read, kept for machines with the same content: points of a sweep differ in few keys."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import InputError
from et_sim.documents.keys import Remarks, Section, Slot, keys_by_field
from et_sim.machine.model import LayerSettings, System
from et_sim.machine.recognise import MachineFile
from et_sim.machine.sources import Given, Source, load
from et_sim.machine.system_file import read_system

MOST_KEPT = 4  # the latest first
FACTORS = keys_by_field(System)["time_factors"]


class _Read(Struct, frozen=True, eq=False):
    """A system without time factors, as it was read."""

    text: str  # its place and content
    system: System
    layers: LayerSettings
    remarks: Remarks


class KeptSystems:
    """A reader of systems that keeps the latest ones; it reads the key `time-factors` anew.

    A dict that describes a system must not change after it was read.
    """

    def __init__(self) -> None:
        self._kept: list[_Read] = []
        self._loaded: list[tuple[Given, Source]] = []  # the latest first

    def load(self, given: Given) -> Source:
        """Return the source of a system; the same one for the same object."""
        found = next((known for known in self._loaded if known[0] is given), None)
        if found is None:
            found = given, load(given, MachineFile.SYSTEM)
        if isinstance(given, dict):
            self._loaded = [found, *(known for known in self._loaded if known is not found)][:MOST_KEPT]
        return found[1]

    def read(self, source: Section, remarks: Remarks) -> tuple[System, LayerSettings]:
        """Return what `read_system` returns, with the same remarks."""
        found = self._found(source)
        if found is None:
            return read_system(source, remarks)
        remarks.warnings += found.remarks.warnings
        remarks.defaults += found.remarks.defaults
        if FACTORS.name not in source.content:
            return found.system, found.layers
        factors = Slot(FACTORS, source, remarks).value(source.content[FACTORS.name])
        return replace(found.system, time_factors=factors), found.layers

    def _found(self, source: Section) -> _Read | None:
        """Return the system without time factors; None if all is to be read anew: it names files, which may
        change, or is refused, or has remarks on the factors.
        """
        content: dict[str, Any] = source.content
        if FACTORS.name in content:
            if not _is_plain(source, content[FACTORS.name]):
                return None
            content = {name: value for name, value in content.items() if name != FACTORS.name}
        text = repr((source.place, content))
        found = next((known for known in self._kept if known.text == text), None)
        if found is None:
            remarks = Remarks()
            try:
                found = _Read(text, *read_system(replace(source, content=content), remarks), remarks)
            except InputError:
                return None
            if remarks.inputs:
                return None
        self._kept = [found, *(known for known in self._kept if known is not found)][:MOST_KEPT]
        return found


def _is_plain(source: Section, factors: Any) -> bool:
    """Check whether time factors are read without remarks."""
    remarks = Remarks()
    try:
        Slot(FACTORS, source, remarks).value(factors)
    except InputError:
        return False
    return remarks == Remarks()
