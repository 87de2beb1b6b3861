"""Systems, networks and libraries that were read, kept for machines with the same content.

Points of a sweep differ in few keys. A description is found by its values, so that a dict may change between
points; the content of a source is a copy of the dict.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import InputError
from et_sim.basics.kept import with_parts_of
from et_sim.documents.keys import Key, Remarks, Section, Slot, keys_by_field, read_keys
from et_sim.machine.graph import like
from et_sim.machine.model import GraphFabric, LayerSettings, Network, System
from et_sim.machine.recognise import MachineFile
from et_sim.machine.sources import Given, Source, load
from et_sim.machine.system_file import read_system

MOST_KEPT = 4  # the latest first
FACTORS = keys_by_field(System)["time_factors"]


class _Read(Struct, frozen=True, eq=False):
    """A system without time factors, as it was read."""

    text: str  # its place and content
    place: str
    content: dict[str, Any]
    system: System
    layers: LayerSettings
    remarks: Remarks


class _Result(Struct, frozen=True, eq=False):
    """A part of a machine as it was read, and the remarks on it."""

    reads: Any  # all of its inputs
    value: Any
    remarks: Remarks


class KeptSystems:
    """A reader of machines that keeps the latest systems; it reads the key `time-factors` anew."""

    def __init__(self) -> None:
        self._kept: list[_Read] = []
        self._latest: dict[str, _Result] = {}  # other parts
        self._loaded: dict[MachineFile, list[tuple[bytes, Source]]] = {}  # by values, the latest first

    def load(self, given: Given, role: MachineFile) -> Source:
        """Return the source of a description; the same one for a dict of the same values."""
        values = _values_of(given)
        if not values:
            return load(given, role)
        loaded = self._loaded.get(role, [])
        found = next((known for known in loaded if known[0] == values), None)
        if found is None:
            found = values, load(given, role)
            if found[1].imported is not None or _values_of(found[1].content) != values:
                return found[1]
        self._loaded[role] = [found, *(known for known in loaded if known is not found)][:MOST_KEPT]
        return found[1]

    def read(self, source: Section, remarks: Remarks) -> tuple[System, LayerSettings]:
        """Return what `read_system` returns, with the same remarks."""
        found = self._found(source)
        if found is None:
            return read_system(source, remarks)
        _add(remarks, found.remarks)
        if FACTORS.name not in source.content:
            return found.system, found.layers
        factors = Slot(FACTORS, source, remarks).value(source.content[FACTORS.name])
        return replace(found.system, time_factors=factors), found.layers

    def network(
        self, source: Source, remarks: Remarks, read: Callable[..., Network], *, may_be_plain: bool
    ) -> Network:
        """Return what `read` returns, with the same remarks; networks of other files are read anew."""
        if source.imported is not None:
            return read(source, remarks, may_be_plain=may_be_plain)
        known = self._latest.get(source.place)
        before: Network | None = None if known is None else known.value

        def anew(noted: Remarks) -> Network:
            former = before.fabric.graph if before and isinstance(before.fabric, GraphFabric) else None
            network = read(source, noted, may_be_plain=may_be_plain, alike=partial(like, former=former))
            return network if former is None else with_parts_of(before, network)

        network: Network = self._part(remarks, (source.content, source.place, may_be_plain), anew)
        return network

    def keys(self, section: Section, keys: tuple[Key, ...], remarks: Remarks) -> dict[str, Any]:
        """Return what `read_keys` returns, with the same remarks."""
        given = section.content, section.place, keys
        values: dict[str, Any] = self._part(remarks, given, lambda noted: read_keys(section, keys, noted))
        return values

    def _part(self, remarks: Remarks, given: tuple[Any, ...], read: Callable[[Remarks], Any]) -> Any:
        """Return a part of a machine; the last one at a place is kept, by its content."""
        content, place, how = given
        known = self._latest.get(place)
        if known is None or known.reads[0] is not content or known.reads[2] is not how:
            noted = Remarks()
            known = _Result(given, read(noted), noted)
            if noted.inputs:
                remarks.inputs += noted.inputs
            else:
                self._latest[place] = known
        _add(remarks, known.remarks)
        return known.value

    def _found(self, source: Section) -> _Read | None:
        """Return the system without time factors; None if all is to be read anew: it names files, which may
        change, or is refused, or has remarks on the factors.
        """
        content: dict[str, Any] = source.content
        if FACTORS.name in content:
            if not _is_plain(source, content[FACTORS.name]):
                return None
            content = {name: value for name, value in content.items() if name != FACTORS.name}
        found = next((known for known in self._kept if _is_same(known, source.place, content)), None)
        if found is None:
            text = repr((source.place, content))
            found = next((known for known in self._kept if known.text == text), None)
        if found is None:
            remarks = Remarks()
            try:
                read = read_system(replace(source, content=content), remarks)
                found = _Read(text, source.place, content, *read, remarks)
            except InputError:
                return None
            if remarks.inputs:
                return None
        self._kept = [found, *(known for known in self._kept if known is not found)][:MOST_KEPT]
        return found


def _values_of(given: Given) -> bytes:
    """Return bytes that differ between dicts of different values or types; empty for paths and others."""
    if type(given) is not dict:
        return b""
    try:
        return marshal.dumps(given, 2)  # later versions depend on which values are one object
    except ValueError:  # it has other types, or is too deep
        return b""


def _is_plain(source: Section, factors: Any) -> bool:
    """Check whether time factors are read without remarks."""
    remarks = Remarks()
    try:
        Slot(FACTORS, source, remarks).value(factors)
    except InputError:
        return False
    return remarks == Remarks()


def _add(remarks: Remarks, others: Remarks) -> None:
    remarks.warnings += others.warnings
    remarks.defaults += others.defaults


def _is_same(known: _Read, place: str, content: dict[str, Any]) -> bool:
    """Check whether a system was read from these very values."""
    if known.place != place or known.content.keys() != content.keys():
        return False
    return all(value is content[name] for name, value in known.content.items())
