"""Collectives of a library among the rows of the tables: their choices, nodes and processors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.units import format_bytes
from et_sim.machine.collective_library import LibraryChoice
from et_sim.machine.model import Notice
from et_sim.plan.axes import Axes, DimensionWay
from et_sim.plan.groups import GroupShape
from et_sim.plan.layout import EqualLines, Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from et_sim.plan.library_phases import LibraryCollective, LibraryPhases


class LibraryRows:
    """The collectives of a library by their rows."""

    def __init__(self) -> None:
        self._choices: dict[int, LibraryChoice] = {}
        self._nodes: dict[int, int] = {}
        self._processors: dict[int, int] = {}
        self._slow: dict[int, tuple[str, int, int]] = {}  # kind, bytes and members if more bytes are faster

    def add(self, row: int, made: LibraryCollective, kind: str, size: int, members: int) -> None:
        """Add the collective of a row."""
        self._choices[row], self._nodes[row] = made.choice, made.nodes
        self._processors[row] = made.processors
        if made.choice.larger is not None:
            self._slow[row] = kind, size, members

    @property
    def notices(self) -> list[Notice]:
        """Return the notice of the collective that would gain most from more bytes, if there is one."""
        from et_sim.machine.collective_library.candidates import LibraryGroup
        from et_sim.machine.collective_library.falls import text_of

        def gain(row: int) -> float:
            larger = self._choices[row].larger
            return self._choices[row].time_us / larger.time_us if larger else 1.0

        if not self._slow:
            return []
        row = max(self._slow, key=gain)
        (kind, size, members), choice = self._slow[row], self._choices[row]
        assert choice.larger is not None
        group = LibraryGroup(members, self._nodes[row])
        text = text_of(kind, group, choice.time_us, choice.unlimited_us, choice.larger)
        others = len(self._slow) - 1
        more = f"; {others} others likewise" if others else ""
        text = f"more bytes are faster: {kind} of {format_bytes(size)} on {members} takes {text}{more}"
        return [Notice("collective library", "", text)]

    def choices(self, rows: int) -> tuple[str, ...]:
        """Return the library's choice for each of the first rows; empty without a library."""
        if not self._choices:
            return ()
        texts = {row: choice.text for row, choice in self._choices.items()}
        return tuple(texts.get(row, "") for row in range(rows))

    def nodes(self, rows: int) -> tuple[int, ...]:
        """Return the number of nodes of each collective of the library; 0 of others."""
        return tuple(self._nodes.get(row, 0) for row in range(rows))

    def processors_held(self, rows: int) -> Any:
        """Return the number of processors that each collective takes from kernels of its ranks."""
        return np.array([self._processors.get(row, 0) for row in range(rows)], np.int16)


def through_cards(
    axes: Axes, library: LibraryPhases, ways: Sequence[DimensionWay], layout: Layout, group: GroupShape
) -> tuple[list[DimensionWay], Layout]:
    """Join the ways between nodes to one: a card is one port, whichever switches are behind it."""
    joined, sides = list[DimensionWay](), list[EqualLines]()
    for way in ways:
        side = layout[way.number]
        before = sides[-1] if joined and not library.is_within(joined[-1]) else None
        follows = before is not None and before.stride * before.members == side.stride
        if before is None or not follows or before.blocks or side.blocks or library.is_within(way):
            joined.append(replace(way, number=len(sides)))
            sides.append(side)
            continue
        sides[-1] = replace(before, members=before.members * side.members)
        axis = axes.of_side(sides[-1], in_group=not group.spans_system)
        joined[-1] = replace(joined[-1], members=sides[-1].members, axis=axis)
    return joined, tuple(sides)


def positions_of_root(axes: Axes, members: int, root: int, ways: Sequence[DimensionWay]) -> Any:
    """Return whether each member is a root: each part that the ways join has one."""
    position, is_root = np.arange(members), np.ones(members, np.bool_)
    for way in ways:
        axis = axes[way.axis]
        place = position // axis.stride % axis.members
        is_root &= place == root // axis.stride % axis.members
    return is_root
