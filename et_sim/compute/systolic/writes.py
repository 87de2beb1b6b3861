"""SCALE-Sim's double buffer for writes: a memory that is drained in lines as wide as the bandwidth.

When less than half of the memory is free and nothing is being drained, lines of half a memory leave, one a
cycle, and their space is free at once. The word that begins a drain closes the line it is in, so that lines
may be partly empty; only the last line of a drain is counted by what it holds.

Not here: the corrected buffer (`corrected`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from et_sim.compute.systolic.streams import Written
from et_sim.compute.systolic.traffic import NEVER, Traffic


@dataclass(slots=True)
class WriteBuffer:
    """The memory: of so many words, with so many words per line."""

    memory_words: int
    line_words: int
    free: int = 0
    drained: int = 0  # words, as SCALE-Sim counts them
    _open: int = 0  # words of the line that is being filled
    _closed: deque[tuple[int, int]] = field(default_factory=deque)  # how many lines, with how many words

    def __post_init__(self) -> None:
        self.free = self.memory_words

    @property
    def before_drain(self) -> int:
        """How many words must be written until one begins a drain."""
        return max(1, self.free - self._most_free + 1)

    @property
    def before_full(self) -> int:
        """How many until one finds no space."""
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
        """Close the line that is being filled, and drain; how many lines leave."""
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
        """What decides about everything after a drain."""
        return self.free, self._open, *self._closed


def unlimited_writes(written: Written, memory_words: int, line_words: int, end: int) -> Traffic:
    """What leaves where lines are as wide as the array, so that no write ever waits.

    Drains then begin every so many words, whatever the cycle, in a pattern that soon repeats.
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


def _emptied(buffer: WriteBuffer, start: int, stop: int, cycle: int) -> Traffic:
    """The traffic, after all that is left has gone from this cycle on."""
    while lines := buffer.drain():
        stop = cycle + lines - 1
        cycle = stop + 1
    return Traffic(start, stop, buffer.drained)


class LimitedWrites:
    """The writes of a layer where they may have to wait."""

    def __init__(self, written: Written, memory_words: int, bandwidth: int) -> None:
        self._written = written
        self._buffer = WriteBuffer(memory_words, bandwidth)
        self._stored = 0
        self._start: int | None = None
        self._stop = 0
        self._busy_until = 0
        self._full_line: int | None = None  # looked for where it matters
        self._drain_line = self._line_of(self._buffer.before_drain - 1)

    def next_line(self, shift: int, first: int) -> int:
        """No later than the next line in which anything but storing can happen."""
        free = self._busy_until - shift
        if self._drain_line < free:
            if self._full_line is None:
                self._full_line = self._line_of(self._stored + self._buffer.before_full - 1)
            if self._full_line < free:
                return self._full_line
        return max(self._drain_line, free, first)

    def serve(self, line: int, cycle: int) -> int:
        """Write what there is before a line, and in it as far as it matters; for how long the line waits."""
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
        """Up to so many of all."""
        if entries > self._stored:
            self._buffer.store(entries - self._stored)
            self._stored = entries

    def _line_of(self, entry: int) -> int:
        return self._written.line_of(entry) if entry < self._written.entries else NEVER

    def finish(self, cycle: int) -> Traffic:
        """Drain all that is left, from this cycle on."""
        self._buffer.store(self._written.entries - self._stored)
        start = cycle if self._start is None else self._start
        return _emptied(self._buffer, start, self._stop, cycle)
