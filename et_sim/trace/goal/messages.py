"""Messages of a GOAL text: which of them have no other half.

A send matches a receive of the same ranks, tag and size. Not here: what they become (`schedule`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.basics.errors import TraceError
from et_sim.trace.goal.columns import CALC_CODE, SEND_CODE, Columns
from et_sim.trace.goal.statements import at

MOST_UNMATCHED = 1 << 20  # messages kept until those that match are left out
Channel = tuple[int, int, int, int]  # source, target, tag, bytes


class Messages:
    """Sends and receives that are not matched yet, in the order of the file."""

    def __init__(self) -> None:
        self._parts: list[Any] = []  # rows: channel (four), 1 of a send and -1 of a receive, line
        self._count, self._most = 0, MOST_UNMATCHED

    def add(self, columns: Columns) -> None:
        """Those of some ranks."""
        rows = np.flatnonzero(columns.code != CALC_CODE)
        owner, peer, is_send = columns.owner[rows], columns.peer[rows], columns.code[rows] == SEND_CODE
        channel = np.where(is_send, owner, peer), np.where(is_send, peer, owner)
        sign = np.where(is_send, 1, -1)
        self._parts.append(
            np.stack((*channel, columns.tag[rows], columns.size[rows], sign, columns.line[rows]))
        )
        self._count += len(rows)
        if self._count > self._most:
            self._parts = [self._unmatched()]
            self._count = self._parts[0].shape[1]
            self._most = max(MOST_UNMATCHED, 2 * self._count)

    def refuse_unmatched(self, source: str) -> None:
        """Raise for the first message of the file that has no other half."""
        left, first = self._left()
        if not left:
            return
        channel = min(first, key=first.__getitem__)
        origin, target, tag, size = channel
        unmatched, other = ("send", "recv") if left[channel] > 0 else ("recv", "send")
        here, there = (origin, target) if left[channel] > 0 else (target, origin)
        message = f"{unmatched} of {size} bytes with tag {tag}"
        remedy = "write the other half, with the same size and tag"
        for near, surplus in left.items():  # what may have been meant to match
            if surplus * left[channel] < 0 and near[:2] == channel[:2]:
                remedy = f"line {first[near]} has {near[3]} bytes and tag {near[2]}"
                break
        raise TraceError(
            f"rank {here} has a {message} that no {other} of rank {there} matches",
            place=at(source, first[channel]),
            remedy=remedy,
        )

    def _left(self) -> tuple[dict[Channel, int], dict[Channel, int]]:
        """How many more sends than receives channels have, where not as many; and the line of the first."""
        surplus: dict[Channel, int] = {}
        first: dict[Channel, int] = {}
        for source, target, tag, size, sign, line in self._unmatched().T.tolist():
            channel = (source, target, tag, size)
            surplus[channel] = surplus.get(channel, 0) + sign
            first.setdefault(channel, line)
        return surplus, first

    def _unmatched(self) -> Any:
        """Those behind the last place of the file where their channel had as many sends as receives."""
        if not self._count:
            return np.zeros((6, 0), np.int64)
        every = np.concatenate(self._parts, axis=1)
        order = np.lexsort(every[3::-1])
        channel = every[:4, order]
        begin = np.flatnonzero(np.append(True, (channel[:, 1:] != channel[:, :-1]).any(axis=0)))
        counts = np.diff(np.append(begin, len(order)))
        surplus = np.cumsum(every[4, order])
        surplus -= np.repeat(surplus[begin] - every[4, order][begin], counts)
        even = np.where(surplus == 0, np.arange(len(order)), -1)
        is_left = np.arange(len(order)) > np.repeat(np.maximum.reduceat(even, begin), counts)
        return every[:, np.sort(order[is_left])]
