"""Programs that several ranks of a GOAL text share: they differ in the ranks of their peers, but not in their
distances from the rank itself.

Ranks that are read together share a program if all of them do; a single one may run a program that others
share. Their traces are then one template, whose peers are distances, however many ranks there are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.unique import are_paired
from et_sim.trace.goal.columns import OperationColumns
from et_sim.trace.goal.lines import CALC_CODE, SEND_CODE

_CONTENT = ("code", "size", "peer", "tag", "after_start", "after")


class Programs:
    """Shared programs, and the ranks that run each."""

    def __init__(self) -> None:
        self._number: dict[tuple[bytes, ...], int] = {}  # by content
        self.columns: list[OperationColumns] = []  # of each for its first rank, with distances as peers
        self.ranks: list[Any] = []

    def add(self, columns: OperationColumns, ranks: int) -> bool:
        """Return whether some of all `ranks` share a program, which is then stored."""
        if len(columns.rank) == 1 and not self.columns:
            return False
        program = _shared(columns, ranks)
        if program is None:
            return False
        content = tuple(getattr(program, name).tobytes() for name in _CONTENT)
        number = self._number.get(content, len(self.columns))
        if number == len(self.columns):
            if len(columns.rank) == 1:
                return False
            self._number[content] = number
            self.columns.append(program)
            self.ranks.append(columns.rank)
        else:
            self.ranks[number] = np.append(self.ranks[number], columns.rank)
        return True

    def are_matched(self, ranks: int) -> bool:
        """Return whether all `ranks` share one program, and each of its sends has its receive."""
        if len(self.columns) != 1 or len(self.ranks[0]) != ranks:
            return False
        (program,) = self.columns
        rows = np.flatnonzero(program.code != CALC_CODE)
        is_send, distance = program.code[rows] == SEND_CODE, program.peer[rows]
        ahead = np.where(is_send, distance, -distance % ranks)  # of the target
        return are_paired(is_send, ahead, program.tag[rows], program.size[rows])


def _shared(columns: OperationColumns, ranks: int) -> OperationColumns | None:
    """Return the program that the ranks of these columns share, with distances as peers, or None."""
    size = int(columns.first[1]) if len(columns.rank) else 0
    if size == 0 or (np.diff(columns.first) != size).any():
        return None
    is_calc = columns.code == CALC_CODE
    peer = np.where(is_calc, columns.peer, (columns.peer - columns.owner) % ranks)
    listed, orders = np.diff(columns.after_start), int(columns.after_start[size])
    for column in (columns.code, columns.size, peer, columns.tag, listed):
        if not np.array_equal(column[size:], column[:-size]):
            return None
    if not np.array_equal(columns.after[orders:], columns.after[: len(columns.after) - orders]):
        return None
    return OperationColumns(
        declared=columns.declared,
        rank=columns.rank[:1],
        first=columns.first[:2],
        line=columns.line[:size],
        code=columns.code[:size],
        size=columns.size[:size],
        peer=peer[:size],
        tag=columns.tag[:size],
        after_start=columns.after_start[: size + 1],
        after=columns.after[:orders],
    )
