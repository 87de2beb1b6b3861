"""The timing of the lines of a layer by SCALE-Sim's rules.

Without a limit of bandwidth, no line waits. With one, every slide of a read window takes a fixed time after
the slide before, for any number of words; a line of the array takes as long as its slowest operand, and
delays all later lines.

Writes go to a memory that is drained in lines as wide as the bandwidth. When less than half of the memory is
free and no drain is in progress, lines of half a memory leave, one a cycle, and their space is free at once.
The word that begins a drain closes its line, so that lines may be partly empty; only the last line of a drain
is counted by its words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from et_sim.compute.systolic.layer import Folds
from et_sim.compute.systolic.streams import OperandStream, WordWindow, Written
from et_sim.machine.systolic import Array

NEVER = 1 << 62  # a line or cycle that does not occur


class TransferTimes(NamedTuple):
    """The first and the last cycle of a transfer, and its words."""

    start: int
    stop: int
    words: int

    @property
    def bandwidth(self) -> float:
        """Return the words per cycle."""
        return self.words / (self.stop - self.start + 1)


class WriteBuffer(Struct):
    """The memory of an operand that is written, and its lines."""

    memory_words: int
    line_words: int
    free: int = 0
    drained: int = 0  # words, as SCALE-Sim counts them
    _open: int = 0  # words of the current line
    _closed: deque[tuple[int, int]] = field(default_factory=deque)  # (lines, words of each)

    def __post_init__(self) -> None:
        self.free = self.memory_words

    @property
    def before_drain(self) -> int:
        """Return the number of words until a drain begins."""
        return max(1, self.free - self._most_free + 1)

    @property
    def before_full(self) -> int:
        """Return the number of words until the memory is full."""
        return max(1, self.free)

    @property
    def _drain_words(self) -> int:
        return self.memory_words // 2

    @property
    def _most_free(self) -> int:
        return self.memory_words - self._drain_words

    def store(self, words: int) -> None:
        """Write words."""
        lines, self._open = divmod(self._open + words, self.line_words)
        if lines:
            self._closed.append((lines, self.line_words))
        self.free -= words

    def drain(self) -> int:
        """Close the current line and drain; return the number of lines that leave."""
        if self._open:
            self._closed.append((1, self._open))
            self._open = 0
        wanted = left = -(-self._drain_words // self.line_words)
        last = self.line_words
        while left and self._closed:
            lines, last = self._closed.popleft()
            if lines > left:
                self._closed.appendleft((lines - left, last))
            left -= min(lines, left)
        drained = wanted - left
        words = drained * self.line_words - (self.line_words - last) if drained else 0
        self.free += words
        self.drained += words
        return drained

    @property
    def state(self) -> tuple[object, ...]:
        """Return the state that determines everything after a drain."""
        return self.free, self._open, *self._closed


def unlimited_writes(written: Written, memory_words: int, line_words: int, end: int) -> TransferTimes:
    """Return the writes with lines as wide as the array, so that no write waits.

    Drains then begin after fixed numbers of words, in a pattern that soon repeats.
    """
    buffer = WriteBuffer(memory_words, line_words)
    left, start, stop = written.entries, None, end
    seen: dict[tuple[object, ...], tuple[int, int]] = {}
    while left >= (words := buffer.before_drain):
        buffer.store(words)
        left -= words
        line = written.line_of(written.entries - left - 1)
        start = line if start is None else start
        stop = line + buffer.drain() - 1
        before = seen.get(buffer.state)
        if before is not None:
            period, drained = before[0] - left, buffer.drained - before[1]
            repeats = left // period
            left -= repeats * period
            buffer.drained += repeats * drained
            stop = written.line_of(written.entries - left - 1) + stop - line
            seen.clear()
        else:
            seen[buffer.state] = left, buffer.drained
    buffer.store(left)
    start = end if start is None else start
    return _emptied(buffer, start, stop, end)


def _emptied(buffer: WriteBuffer, start: int, stop: int, cycle: int) -> TransferTimes:
    """Return the traffic after the memory has been emptied from this cycle on."""
    while lines := buffer.drain():
        stop = cycle + lines - 1
        cycle = stop + 1
    return TransferTimes(start, stop, buffer.drained)


class LimitedWrites:
    """The writes of a layer with limited bandwidth."""

    def __init__(self, written: Written, memory_words: int, bandwidth: int) -> None:
        self._written = written
        self._buffer = WriteBuffer(memory_words, bandwidth)
        self._stored = 0
        self._start: int | None = None
        self._stop = 0
        self._busy_until = 0
        self._full_line: int | None = None  # computed only if needed
        self._drain_line = self._line_of(self._buffer.before_drain - 1)

    def next_line(self, shift: int, first: int) -> int:
        """Return a line no later than the next one with an event other than storing."""
        free = self._busy_until - shift
        if self._drain_line < free:
            if self._full_line is None:
                self._full_line = self._line_of(self._stored + self._buffer.before_full - 1)
            if self._full_line < free:
                return self._full_line
        return max(self._drain_line, free, first)

    def serve(self, line: int, cycle: int) -> int:
        """Write the words before a line, and those in it that matter; return the wait of the line."""
        buffer, now = self._buffer, cycle
        if line != self._drain_line:
            self._store(self._written.before(line))
            self._drain_line = self._line_of(self._stored + buffer.before_drain - 1)
        while self._drain_line == line:
            if now >= self._busy_until:
                self._store(self._stored + buffer.before_drain)
                self._start = now if self._start is None else self._start
                self._busy_until = self._stop = now + buffer.drain() - 1
            elif self._line_of(self._stored + buffer.before_full - 1) == line:
                self._store(self._stored + buffer.before_full)
                now = self._busy_until
            else:
                break
            self._drain_line = self._line_of(self._stored + buffer.before_drain - 1)
        self._full_line = None
        return now - cycle

    def _store(self, entries: int) -> None:
        """Store words up to a number of entries."""
        if entries > self._stored:
            self._buffer.store(entries - self._stored)
            self._stored = entries

    def _line_of(self, entry: int) -> int:
        return self._written.line_of(entry) if entry < self._written.entries else NEVER

    def finish(self, cycle: int) -> TransferTimes:
        """Drain the rest from this cycle on."""
        self._buffer.store(self._written.entries - self._stored)
        start = cycle if self._start is None else self._start
        return _emptied(self._buffer, start, self._stop, cycle)


KB = 1024
READ_CYCLES = 1  # cycles from a read to its word, and from DRAM to the memory


class Timing(Struct, frozen=True):
    """The cycles of a layer, and the first and last cycle of ifmap, filter and ofmap at the array."""

    total: int
    stalls: int
    spans: tuple[tuple[int, int], ...]
    dram: tuple[TransferTimes, ...]


def unlimited(
    streams: tuple[OperandStream, OperandStream], written: Written, folds: Folds, array: Array
) -> Timing:
    """Return the timing of a layer without waiting."""
    end = folds.count * folds.cycles - 1
    reads = tuple(
        _estimated(stream, kb * KB)
        for stream, kb in zip(streams, (array.ifmap_kb, array.filter_kb), strict=True)
    )
    spans = [(stream.first_line + 1, stream.last_line + 1) for stream in streams]
    writes = unlimited_writes(written, array.ofmap_kb * KB, array.width, end)
    return Timing(end, 0, (*spans, (written.first_line, written.last_line)), (*reads, writes))


def _estimated(stream: OperandStream, memory_words: int) -> TransferTimes:
    """Return the reads from DRAM of a memory that is emptied whenever its half is full.

    Halves have 50 sets of a hundredth of the memory; words before the first cycle arrive at ten words per
    cycle.
    """
    set_words = memory_words // 100
    most = 50 * set_words
    phases = stream.phases(most)
    if not phases:
        loaded = -(-phases.rest // set_words) * set_words
        return TransferTimes(-READ_CYCLES - -(-loaded // 10) + 1, -READ_CYCLES, phases.rest)
    begin = stream.first_line - READ_CYCLES - -(-most // 10) + 1
    return TransferTimes(begin, stream.line_of(phases.last) + READ_CYCLES, len(phases) * most + phases.rest)


def limited(
    streams: tuple[OperandStream, OperandStream], written: Written, folds: Folds, array: Array
) -> Timing:
    """Return the timing of a layer in which reads wait for slides, and writes for drains."""
    sizes = (array.ifmap_kb * KB, array.filter_kb * KB)
    ifmap, filters = (
        _Reads(stream, size, array.bandwidth(operand))
        for operand, (stream, size) in enumerate(zip(streams, sizes, strict=True))
    )
    writes = LimitedWrites(written, array.ofmap_kb * KB, array.bandwidth(2))
    last = folds.count * folds.cycles - 1
    clock = Clock((*streams, written), last)
    clock.run((ifmap, filters, writes))
    total = clock.cycle(last, 2)
    dram = (ifmap.traffic(), filters.traffic(), writes.finish(total))
    return Timing(total, clock.late, clock.spans(READ_CYCLES), dram)


class Edges(Protocol):
    """The first and last line of an operand."""

    @property
    def first_line(self) -> int:
        """Return the line of the first entry."""

    @property
    def last_line(self) -> int:
        """Return the line of the last entry."""


class Waiting(Protocol):
    """An operand that may have to wait."""

    def next_line(self, shift: int, first: int) -> int:
        """Return the next line, from `first` on, in which it may wait, given the delay `shift`; or NEVER."""

    def serve(self, line: int, cycle: int) -> int:
        """Serve a line in this cycle, and return the time for which it waits."""


class Clock:
    """The delay of each line, and the waits of the three operands at selected lines."""

    def __init__(self, operands: tuple[Edges, ...], *lines: int) -> None:
        self.late = 0
        self._ends = [(operand.first_line, operand.last_line) for operand in operands]
        self._edges = {*lines, *(line for ends in self._ends for line in ends)}
        self._lines: list[int] = []
        self._late_after: list[int] = []
        self._waits: dict[int, list[int]] = {}

    def run(self, operands: tuple[Waiting, Waiting, Waiting]) -> None:
        """Serve all lines."""
        first, second, third = operands
        line = -1
        while True:
            late, after = self.late, line + 1
            of_first, of_second = first.next_line(late, after), second.next_line(late, after)
            of_third = third.next_line(late, after)
            line = min(of_first, of_second, of_third)
            if line >= NEVER:
                return
            cycle = line + late
            waits = [
                first.serve(line, cycle) if of_first == line else 0,
                second.serve(line, cycle) if of_second == line else 0,
                third.serve(line, cycle) if of_third == line else 0,
            ]
            self._wait(line, waits)

    def _wait(self, line: int, waits: list[int]) -> None:
        """Delay a line by the wait of the slowest operand."""
        if line in self._edges:
            self._waits[line] = waits
        if (longest := max(waits)) > 0:
            self.late += longest
            self._lines.append(line)
            self._late_after.append(self.late)

    def cycle(self, line: int, operand: int) -> int:
        """Return the cycle in which an operand of a line is served; 0 is ifmap, 1 filter, 2 ofmap."""
        before = bisect_left(self._lines, line)
        late = self._late_after[before - 1] if before else 0
        return line + late + self._waits.get(line, [0, 0, 0])[operand]

    def spans(self, read_cycles: int) -> tuple[tuple[int, int], ...]:
        """Return the first and the last cycle of each operand at the array."""
        spans = []
        for operand, (first, last) in enumerate(self._ends):
            more = read_cycles if operand < 2 else 0
            spans.append((self.cycle(first, operand) + more, self.cycle(last, operand) + more))
        return tuple(spans)


class _Reads:
    """A read operand: its slides, and when the last fetch is complete."""

    def __init__(self, stream: OperandStream, memory_words: int, bandwidth: int) -> None:
        self._slides: Iterator[tuple[int, int]] = stream.slides(WordWindow(stream.listed, memory_words))
        self._ahead = next(self._slides, None)
        fetched = -(-memory_words // 2 // bandwidth)
        self._begin = min(fetched, -(-stream.padded // bandwidth))
        self._slide_words = fetched * bandwidth
        self._words = self._begin * bandwidth
        self._slide_cycles = fetched + READ_CYCLES
        self._complete = -READ_CYCLES

    def next_line(self, shift: int, first: int) -> int:  # noqa: ARG002
        return NEVER if self._ahead is None else self._ahead[0]

    def serve(self, line: int, cycle: int) -> int:
        is_late = False
        while self._ahead is not None and self._ahead[0] == line:
            self._complete += self._ahead[1] * self._slide_cycles
            self._words += self._ahead[1] * self._slide_words
            self._ahead = next(self._slides, None)
            is_late = True
        return max(0, self._complete - cycle - READ_CYCLES) if is_late else 0

    def traffic(self) -> TransferTimes:
        return TransferTimes(-self._begin, self._complete, self._words)
