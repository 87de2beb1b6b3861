"""The timing of the lines of a layer by corrected rules.

A memory has two halves: the array uses one while the other is filled, or drained. An operand that fits into
its memory is read from DRAM once; any other in phases, each of as many different words as a half holds.
The fetch of a phase begins when the phase before it begins, and no earlier than the fetch before it ends.
Words cost their number divided by the bandwidth, in whole cycles, and no word is fetched in vain. Words that
are fetched before the first cycle, half a memory at most, cost no cycles.
"""

from __future__ import annotations

from collections.abc import Iterator

from et_sim.compute.systolic.layer import Folds
from et_sim.compute.systolic.streams import OperandStream, Written
from et_sim.compute.systolic.timing import KB, NEVER, READ_CYCLES, Clock, Timing, TransferTimes
from et_sim.machine.systolic import Array


def corrected(
    streams: tuple[OperandStream, OperandStream], written: Written, folds: Folds, array: Array
) -> Timing:
    """Return the timing of a layer, with or without a limit of bandwidth."""
    halves = [kb * KB // 2 for kb in (array.ifmap_kb, array.filter_kb, array.ofmap_kb)]
    is_limited = array.is_limited
    ifmap, filters = (
        _Reads(stream, halves[operand], array.bandwidth(operand), is_limited)
        for operand, stream in enumerate(streams)
    )
    writes = _Writes(written, halves[2], array.bandwidth(2), is_limited)
    clock = Clock((*streams, written))
    clock.run((ifmap, filters, writes))
    total = folds.count * folds.cycles + clock.late
    dram = (ifmap.traffic(), filters.traffic(), writes.traffic(total))
    return Timing(total, clock.late, clock.spans(READ_CYCLES), dram)


class _Reads:
    """The phases of a read operand: when they begin, and when their words have arrived."""

    def __init__(self, stream: OperandStream, half: int, bandwidth: int, is_limited: bool) -> None:
        self._bandwidth, self._is_limited = bandwidth, is_limited
        self._first = self._words = min(stream.words, half)
        self._phases = _phases(stream, half)
        self._ahead = next(self._phases, None)
        self._begun, self._complete = stream.first_line, 0

    def next_line(self, shift: int, first: int) -> int:  # noqa: ARG002
        return NEVER if self._ahead is None else self._ahead[0]

    def serve(self, line: int, cycle: int) -> int:
        now = cycle
        while self._ahead is not None and self._ahead[0] == line:
            words = self._ahead[1]
            if self._is_limited:
                self._complete = max(self._complete, self._begun) - (-words // self._bandwidth)
                now = max(now, self._complete)
            else:
                self._complete = now
            self._words += words
            self._begun = now
            self._ahead = next(self._phases, None)
        return now - cycle

    def traffic(self) -> TransferTimes:
        return TransferTimes(-self._first // self._bandwidth, self._complete - 1, self._words)


def _phases(stream: OperandStream, half: int) -> Iterator[tuple[int, int]]:
    """Yield the line in which each phase but the first begins, and its words."""
    if stream.words <= half:
        return
    if stream.words <= 2 * half:
        yield stream.line_of(next(iter(stream.phases(half + 1)))), stream.words - half
        return
    phases = stream.phases(half)
    last = len(phases) - 1
    for number, end in enumerate(phases):
        words = half if number < last else phases.rest
        if words:
            yield stream.line_of(end + 1), words


class _Writes:
    """The written operand: when its halves are full, and when they have been drained."""

    def __init__(self, written: Written, half: int, bandwidth: int, is_limited: bool) -> None:
        self._written, self._half, self._bandwidth = written, half, bandwidth
        self._is_limited = is_limited
        self._full = 0  # halves
        self._start: int | None = None
        self._drained = 0
        self._next = self._line()

    def next_line(self, shift: int, first: int) -> int:  # noqa: ARG002
        return self._next

    def serve(self, line: int, cycle: int) -> int:
        now = cycle
        while self._next == line:
            if self._is_limited:
                now = max(now, self._drained)
            self._begin(now, self._half)
            self._full += 1
            self._next = self._line()
        return now - cycle

    def _line(self) -> int:
        """Return the line in which the next half is full."""
        entry = (self._full + 1) * self._half
        return self._written.line_of(entry) if entry < self._written.entries else NEVER

    def traffic(self, total: int) -> TransferTimes:
        entries = self._written.entries
        self._begin(max(total, self._drained), entries - self._full * self._half)
        return TransferTimes(self._start or 0, self._drained - 1, entries)

    def _begin(self, cycle: int, words: int) -> None:
        self._start = cycle if self._start is None else self._start
        self._drained = cycle - (-words // self._bandwidth)
