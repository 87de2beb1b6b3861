"""Columns of the table of collectives that only collectives of a library fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from et_sim.basics.units import format_bytes
from et_sim.machine.model import Notice

if TYPE_CHECKING:
    from et_sim.plan.library_phases import LibraryCollective


class LibraryRows:
    """The collectives of a library by their rows."""

    def __init__(self) -> None:
        self._made: dict[int, LibraryCollective] = {}
        self._slow: dict[int, tuple[str, int, int]] = {}  # kind, bytes and members if more bytes are faster

    def add(self, row: int, made: LibraryCollective, kind: str, size: int, members: int) -> None:
        """Add the collective of a row."""
        self._made[row] = made
        if made.choice.larger is not None:
            self._slow[row] = kind, size, members

    @property
    def notices(self) -> list[Notice]:
        """Return the notice of the collective that would gain most from more bytes, if there is one."""
        from et_sim.machine.collective_library.candidates import LibraryGroup
        from et_sim.machine.collective_library.falls import text_of

        def gain(row: int) -> float:
            choice = self._made[row].choice
            return choice.time_us / choice.larger.time_us if choice.larger else 1.0

        if not self._slow:
            return []
        row = max(self._slow, key=gain)
        (kind, size, members), choice = self._slow[row], self._made[row].choice
        assert choice.larger is not None
        group = LibraryGroup(members, self._made[row].nodes)
        text = text_of(kind, group, choice.time_us, choice.unlimited_us, choice.larger)
        others = len(self._slow) - 1
        more = f"; {others} others likewise" if others else ""
        text = f"more bytes are faster: {kind} of {format_bytes(size)} on {members} takes {text}{more}"
        return [Notice("collective library", "", text)]

    def choices(self, rows: int) -> tuple[str, ...]:
        """Return the library's choice for each of the first rows; empty without a library."""
        if not self._made:
            return ()
        return tuple(self._made[row].choice.text if row in self._made else "" for row in range(rows))

    def nodes(self, rows: int) -> tuple[int, ...]:
        """Return the number of nodes of each collective of the library; 0 of others."""
        return tuple(self._made[row].nodes if row in self._made else 0 for row in range(rows))

    def processors_held(self, rows: int) -> Any:
        """Return the number of processors that each collective takes from kernels of its ranks."""
        held = np.zeros(rows, np.int16)
        held[list(self._made)] = [made.processors for made in self._made.values()]
        return held
