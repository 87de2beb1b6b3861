"""Parsing of GOAL files in their plainest form to columns, rank by rank, and the search for unmatched
messages.

The plainest form, which programs write, has one statement per line, blanks between words, no comments and no
`irequires`. `lines` reads them in one pass. For text in another form, or with a mistake, `columns_of`
returns None; the text is then read statement by statement, which also reports mistakes.

A send matches a receive of the same ranks, tag and size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.basics.unique import are_paired, sorted_groups
from et_sim.trace.columns import IntColumn
from et_sim.trace.goal.lines import CALC_CODE, NONE, SEND_CODE, lines_of, read_lines
from et_sim.trace.goal.statements import at


class OperationColumns(Struct, frozen=True, eq=False):
    """Operations of some ranks, one rank after the other; dependencies are rows of the same rank."""

    declared: int  # num_ranks; 0: missing
    rank: IntColumn
    first: IntColumn  # operation of each rank, and the end of the last
    line: IntColumn  # counted from 1, as all lines here
    code: Any
    size: IntColumn  # bytes; for a calculation, ns
    peer: IntColumn
    tag: IntColumn
    after_start: IntColumn
    after: Any

    @property
    def owner(self) -> IntColumn:
        """Return the rank of each operation."""
        return np.repeat(self.rank, np.diff(self.first))


def columns_of(content: bytes, line: int) -> OperationColumns | None:
    """Return the whole ranks in `content`, which begins with this line, or None if the form is not the
    plainest.
    """
    lines = lines_of(content if content.endswith(b"\n") else content + b"\n")
    if read_lines(lines, line) == NONE:
        return None
    found = lines.state[0]
    count, ranks = int(found.operations), int(found.ranks)
    later, earlier = lines.later[: found.orders], lines.earlier[: found.orders]
    listed = np.bincount(later, minlength=count)
    return OperationColumns(
        int(found.declared),
        lines.rank[:ranks].copy(),
        np.append(lines.bound[:ranks], count),
        lines.line[:count].copy(),
        lines.code[:count].copy(),
        lines.size[:count].copy(),
        lines.peer[:count].copy(),
        lines.tag[:count].copy(),
        np.concatenate((np.zeros(1, np.int64), np.cumsum(listed))),
        earlier[np.argsort(later, kind="stable")],
    )


MOST_UNMATCHED = 1 << 20  # operations that are kept before matches are removed
Channel = tuple[int, int, int, int]  # source, target, tag, bytes


class Messages:
    """Unmatched sends and receives, in the order of the file."""

    def __init__(self) -> None:
        self._left_over: Any = np.zeros((6, 0), np.int64)  # as of `_messages_of`
        self._new: list[OperationColumns] = []
        self._count, self._most = 0, MOST_UNMATCHED

    def add(self, columns: OperationColumns) -> None:
        """Add the messages of some ranks."""
        self._new.append(columns)
        self._count += len(columns.code)
        if self._count > self._most:
            self._left_over, self._new = self._unmatched(), []
            self._count = self._left_over.shape[1]
            self._most = max(MOST_UNMATCHED, 2 * self._count)

    def refuse_unmatched(self, source: str) -> None:
        """Raise for the first message of the file without a match."""
        left, first = self._left()
        if not left:
            return
        channel = min(first, key=first.__getitem__)
        origin, target, tag, size = channel
        unmatched, other = ("send", "recv") if left[channel] > 0 else ("recv", "send")
        here, there = (origin, target) if left[channel] > 0 else (target, origin)
        message = f"{unmatched} of {size} bytes with tag {tag}"
        remedy = "write the other half, with the same size and tag"
        for near, surplus in left.items():  # a likely intended match
            if surplus * left[channel] < 0 and near[:2] == channel[:2]:
                remedy = f"line {first[near]} has {near[3]} bytes and tag {near[2]}"
                break
        raise TraceError(
            f"rank {here} has a {message} that no {other} of rank {there} matches",
            place=at(source, first[channel]),
            remedy=remedy,
        )

    def _left(self) -> tuple[dict[Channel, int], dict[Channel, int]]:
        """Return the surplus of sends over receives of unbalanced channels, and the line of the first message
        of each.
        """
        surplus: dict[Channel, int] = {}
        first: dict[Channel, int] = {}
        for source, target, tag, size, sign, line in self._unmatched().T.tolist():
            channel = (source, target, tag, size)
            surplus[channel] = surplus.get(channel, 0) + sign
            first.setdefault(channel, line)
        return surplus, first

    def _unmatched(self) -> Any:
        """Return the messages after the last line at which their channel was balanced."""
        if not self._count:
            return np.zeros((6, 0), np.int64)
        every = np.concatenate((self._left_over, *map(_messages_of, self._new)), axis=1)
        if are_paired(every[4] > 0, *every[:4]):
            return every[:, :0]
        order, begin = sorted_groups(*every[:4])
        counts = np.diff(np.append(begin, len(order)))
        surplus = np.cumsum(every[4, order])
        surplus -= np.repeat(surplus[begin] - every[4, order][begin], counts)
        even = np.where(surplus == 0, np.arange(len(order)), -1)
        is_left = np.arange(len(order)) > np.repeat(np.maximum.reduceat(even, begin), counts)
        return every[:, np.sort(order[is_left])]


def _messages_of(columns: OperationColumns) -> Any:
    """Return rows of the messages of some ranks: their channels (four), 1 for a send and -1 for a receive,
    and their lines.
    """
    rows = np.flatnonzero(columns.code != CALC_CODE)
    owner, peer, is_send = columns.owner[rows], columns.peer[rows], columns.code[rows] == SEND_CODE
    channel = np.where(is_send, owner, peer), np.where(is_send, peer, owner)
    sign = np.where(is_send, 1, -1)
    return np.stack((*channel, columns.tag[rows], columns.size[rows], sign, columns.line[rows]))
