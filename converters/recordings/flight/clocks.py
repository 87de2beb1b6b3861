"""Bounds of the clocks of ranks, as far as the watchdog's times show them.

A dump has the time at which a rank issued an operation, and the one at which its watchdog found it complete,
which may be a second later. An operation with an input from every rank completes nowhere before it is issued
everywhere: the clock of one rank is ahead of another's by no more than the time from the issue there to the
discovery here. The bounds of all pairs follow from each other; offsets within them are all possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from converters.pytorch.calls import rules
from converters.pytorch.meetings import JOINT
from converters.recordings.flight.dumps import Dump
from converters.recordings.flight.groups import Operations
from et_sim.basics.units import format_ns, ranks_text

MOST_RANKS = 500  # the bounds are a square
UNKNOWN = 1 << 61  # nanoseconds; a pair without a bound
CAUSE = "no operation of several ranks has the time at which a watchdog found it complete"


class ClockBounds(Struct, frozen=True, eq=False):
    """By how much each rank's clock is ahead of the first one's: from `low_ns` to `high_ns`."""

    ranks: tuple[int, ...]
    low_ns: Any
    high_ns: Any
    is_consistent: bool = True  # whether some constant offsets explain all times

    def ahead_ns(self, rank: int) -> int:
        """Return by how much a clock is ahead, in the middle of its bounds; 0 if one of them is unknown, or
        they do not exclude 0.
        """
        at = self.ranks.index(rank)
        low, high = int(self.low_ns[at]), int(self.high_ns[at])
        is_known = self.is_consistent and max(abs(low), abs(high)) < UNKNOWN // 2
        return (low + high) // 2 if is_known and (low > 0 or high < 0) else 0

    def notes(self) -> Iterator[str]:
        """Yield what is known about the clocks."""
        if not self.is_consistent:
            yield "the times contradict each other: a clock was set, or drifts, in the recorded time"
            return
        known = np.maximum(np.abs(self.low_ns), np.abs(self.high_ns))
        if unknown := [rank for rank, size in zip(self.ranks, known, strict=True) if size >= UNKNOWN // 2]:
            which = f"clocks of {ranks_text(unknown)} cannot be compared with that of rank {self.ranks[0]}"
            yield f"{which}: {CAUSE}"
        for rank, low, high in zip(self.ranks, self.low_ns.tolist(), self.high_ns.tolist(), strict=True):
            if self.ahead_ns(rank):
                where = "ahead of" if low > 0 else "behind"
                nearest, furthest = sorted((abs(low), abs(high)))
                span = f"{format_ns(nearest)} to {format_ns(furthest)} {where} that of rank {self.ranks[0]}"
                yield f"the clock of rank {rank} is {span}: times are corrected"
        agreeing = [
            int(size)
            for rank, size in zip(self.ranks, known, strict=True)
            if size < UNKNOWN // 2 and not self.ahead_ns(rank)
        ]
        if len(agreeing) > 1:
            yield (
                f"clocks of {'the other ' if len(agreeing) < len(known) else ''}ranks differ by at most"
                f" {format_ns(max(agreeing))} from that of rank {self.ranks[0]}, as far as the watchdog's"
                " times show"
            )


def clock_bounds(dumps: Sequence[Dump], groups: Sequence[Operations]) -> ClockBounds | None:
    """Return the bounds of the clocks; None if there are too few or too many ranks."""
    ranks = tuple(dump.rank for dump in dumps)
    if not 2 <= len(ranks) <= MOST_RANKS:
        return None
    most = np.full((len(ranks), len(ranks)), UNKNOWN, np.int64)  # of a row's clock, ahead of a column's
    np.fill_diagonal(most, 0)
    for group in groups:
        _add(most, ranks, group)
    for middle in range(len(ranks)):
        first, second = most[:, middle, None], most[None, middle, :]
        through = np.where(np.maximum(first, second) < UNKNOWN, first + second, UNKNOWN)
        most = np.minimum(most, through)
    is_consistent = bool((np.diag(most) >= 0).all())
    return ClockBounds(ranks, -most[0], most[:, 0], is_consistent)


def _add(most: Any, ranks: tuple[int, ...], group: Operations) -> None:
    """Lower the bounds by the operations of a group."""
    origin = min((entry.time_created_ns for of in group.of_rank.values() for entry in of.values()), default=0)
    for number in sorted({number for of in group.of_rank.values() for number in of}):
        present = group.present(number)
        known = {rules().operation(entry.operation) for entry in present.values()}
        if not all(rule is not None and rule.collective in JOINT for rule in known):
            continue
        found, issued = np.full(len(ranks), UNKNOWN, np.int64), np.full(len(ranks), -UNKNOWN, np.int64)
        for at, rank in enumerate(ranks):
            entry = present.get(rank)
            if entry is not None and _is_time(entry.time_created_ns - origin):
                issued[at] = entry.time_created_ns - origin
            done = entry.time_discovered_completed_ns if entry is not None else None
            if done is not None and _is_time(done - origin):
                found[at] = done - origin
        rows, columns = np.flatnonzero(found < UNKNOWN), np.flatnonzero(issued > -UNKNOWN)
        apart = found[rows, None] - issued[None, columns]
        own = rows[:, None] == columns[None, :]
        place = np.ix_(rows, columns)
        most[place] = np.minimum(most[place], np.where(own, UNKNOWN, apart))


def _is_time(since_ns: int) -> bool:
    return 0 <= since_ns < UNKNOWN // 2
