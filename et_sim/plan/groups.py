"""Communicator groups as tables: who sits where.

Group row 0 is the whole system in rank order. A listed group that holds every rank behaves like the
whole system (its members' order in the file does not matter), but counts its own collectives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from et_sim.errors import TraceError, did_you_mean
from et_sim.plan import tables

WHOLE_SYSTEM_NAMES = ("", "0")


class GroupTable:
    """All groups of a machine, addressed by row."""

    def __init__(self, ranks: int, listed: Mapping[int, tuple[int, ...]]) -> None:
        self._ranks = ranks
        self._numbers = [0, *listed]
        self._members = [
            tuple(sorted(members)) if len(members) == ranks else members for members in listed.values()
        ]
        self._positions: dict[int, dict[int, int]] = {}
        self._row_of = {number: row for row, number in enumerate(self._numbers)}
        sizes = [0, *(len(m) for m in self._members)]
        self._first = np.concatenate(([0], np.cumsum(sizes))).tolist()

    def row(self, name: str, place: str) -> int:
        """The row of the group that a node calls `name`."""
        if name in WHOLE_SYSTEM_NAMES:
            return 0
        if not name.isdecimal() or int(name) not in self._row_of:
            known = [str(number) for number in self._numbers[1:]]
            hint = did_you_mean(name, known) or (
                f"known groups: {', '.join(known[:8])}" if known else "pass the groups file with --groups"
            )
            raise TraceError(f"communicator group {name!r} is not defined", place=place, remedy=hint)
        return self._row_of[int(name)]

    def number(self, row: int) -> int:
        """The group's number in the input; 0 for the whole system."""
        return self._numbers[row]

    def is_listed(self, row: int) -> bool:
        """Whether the group came from a file, as opposed to the implicit group of all ranks."""
        return row > 0

    def spans_system(self, row: int) -> bool:
        """Whether every rank is a member."""
        return self.size(row) == self._ranks

    def size(self, row: int) -> int:
        """How many members the group has."""
        return self._ranks if row == 0 else len(self._members[row - 1])

    def members(self, row: int) -> Sequence[int]:
        """Ranks of the group, in the order of their positions."""
        return range(self._ranks) if row == 0 else self._members[row - 1]

    def first_member(self, row: int) -> int:
        """Where the group's members begin in the member table."""
        return int(self._first[row])

    def first_seat(self, row: int) -> int:
        """The seat of the group's first member; the seats of all ranks come before all others."""
        return 0 if row == 0 else self._ranks + self.first_member(row)

    def position(self, row: int, rank: int) -> int | None:
        """The rank's place in the group; None if it is not a member."""
        if row == 0:
            return rank
        if row not in self._positions:
            self._positions[row] = {member: k for k, member in enumerate(self._members[row - 1])}
        return self._positions[row].get(rank)

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """The group table, and the ranks of all listed groups one after the other."""
        out = tables.table(tables.GROUP, len(self._numbers))
        for row, number in enumerate(self._numbers):
            out[row].number, out[row].members = number, self.size(row)
            out[row].members_first = self.first_member(row)
            out[row].seat_first = self.first_seat(row)
        flat = [rank for members in self._members for rank in members]
        return out, np.array(flat, np.int32)
