"""Columns of the table of collectives that only collectives of a library fill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import Struct, field

from et_sim.basics.units import format_bytes
from et_sim.machine.model import Notice

if TYPE_CHECKING:
    from et_sim.collectives import PhaseOperation
    from et_sim.plan.axes import DimensionWay
    from et_sim.plan.groups import GroupShape
    from et_sim.plan.layout import Layout
    from et_sim.plan.library_phases import LibraryCollective


class Wanted(NamedTuple):
    """A collective that a library is to do, in the order of `LibraryPhases.lower`."""

    operation: PhaseOperation
    size: int
    datatype: str
    group: GroupShape
    ways: list[DimensionWay]
    layout: Layout


class LibraryRow(Struct, frozen=True, eq=False):
    """A collective of a library, and what it was made for."""

    made: LibraryCollective
    wanted: Wanted
    programs: tuple[tuple[int, ...], ...]  # the rows of the programs of each chunk's phases
    parts: dict[tuple[Any, ...], Any] = field(default_factory=dict)  # steps by choices, on other machines
    alike: dict[tuple[int, bool], bool] = field(default_factory=dict)  # whether these send the same messages

    def sends_as(self, other: LibraryCollective) -> bool:
        """Return whether the collective sends the messages of another one, which has parts of this row."""
        key = id(other.parts), other.are_rounds_few
        if key not in self.alike:
            self.alike[key] = other.has_messages_of(self.made)
        return self.alike[key]

    @property
    def kind(self) -> str:
        """Return the name of the operation."""
        return self.wanted.operation.name.lower()


class LibraryRows:
    """The collectives of a library by their rows."""

    def __init__(self) -> None:
        self._made: dict[int, LibraryRow] = {}
        self._slow: list[int] = []  # rows that would be faster with more bytes

    def __iter__(self) -> Iterator[tuple[int, LibraryRow]]:
        """Yield the rows with their collectives."""
        return iter(self._made.items())

    def add(self, row: int, collective: LibraryRow) -> None:
        """Add the collective of a row."""
        self._made[row] = collective
        if collective.made.choice.larger is not None:
            self._slow.append(row)

    @property
    def notices(self) -> list[Notice]:
        """Return the notice of the collective that would gain most from more bytes, if there is one."""

        def gain(row: int) -> float:
            choice = self._made[row].made.choice
            return choice.time_us / choice.larger.time_us if choice.larger else 1.0

        if not self._slow:
            return []
        from et_sim.machine.collective_library.candidates import LibraryGroup
        from et_sim.machine.collective_library.falls import text_of

        row = max(self._slow, key=gain)
        made, wanted, kind = self._made[row].made, self._made[row].wanted, self._made[row].kind
        choice, members = made.choice, wanted.group.members
        assert choice.larger is not None
        group = LibraryGroup(members, made.nodes)
        text = text_of(kind, group, choice.time_us, choice.unlimited_us, choice.larger)
        others = len(self._slow) - 1
        more = f"; {others} others likewise" if others else ""
        text = f"more bytes are faster: {kind} of {format_bytes(wanted.size)} on {members} takes {text}{more}"
        return [Notice("collective library", "", text)]

    def choices(self, rows: int) -> tuple[str, ...]:
        """Return the library's choice for each of the first rows; empty without a library."""
        if not self._made:
            return ()
        return tuple(self._made[row].made.choice.text if row in self._made else "" for row in range(rows))

    def nodes(self, rows: int) -> tuple[int, ...]:
        """Return the number of nodes of each collective of the library; 0 of others."""
        return tuple(self._made[row].made.nodes if row in self._made else 0 for row in range(rows))

    def held(self, rows: int) -> Any:
        """Return the processors, or thousandths of memory, that each collective takes from kernels."""
        held = np.zeros(rows, np.int16)
        held[list(self._made)] = [one.made.held for one in self._made.values()]
        return held
