"""SCALE-Sim's double buffer for reads: a window that slides over the list of words to fetch.

The list is cut into sets of a hundredth of the memory. The active half of the memory is a window of sets;
when a word is asked for that is not in it, the window moves on by what the other half holds, round and
round, until it holds the word. Not here: how long that takes (`timing`).
"""

from __future__ import annotations


class Window:
    """The window over a list of so many entries, of a memory of so many words."""

    __slots__ = ("held", "set_words", "sets", "start", "step")

    def __init__(self, listed: int, memory_words: int) -> None:
        active = -(-memory_words // 2)
        self.set_words = -(-memory_words // 100)
        self.sets = listed // self.set_words + 1  # the last may be empty
        self.held = min(-(-active // self.set_words), self.sets)
        self.step = min(-(-(memory_words - active) // self.set_words), self.sets - self.held)
        self.start = 0

    @property
    def is_whole(self) -> bool:
        """Whether it holds the whole list."""
        return self.sets == self.held

    def set_of(self, entry: int) -> int:
        """The set of an entry of the list."""
        return entry // self.set_words

    def reach(self, wanted: int) -> int:
        """Slide until it holds this set; by how many steps."""
        away = (wanted - self.start) % self.sets
        if away < self.held:
            return 0
        steps = (away - self.held) // self.step + 1
        self.slide(steps)
        return steps

    def slide(self, steps: int) -> None:
        """Move on."""
        self.start = (self.start + steps * self.step) % self.sets

    def next_missing(self, held: int) -> int:
        """The first set above one that it holds that it does not hold."""
        return held + self.held - (held - self.start) % self.sets

    def holds(self, begin: int, end: int) -> bool:
        """Whether it holds these entries."""
        first = self.set_of(begin)
        return (first - self.start) % self.sets + self.set_of(end - 1) - first < self.held

    def take(self, begin: int, end: int) -> int:
        """Slide as these entries are asked for, one after the other; by how many steps."""
        at, last, steps = self.set_of(begin), self.set_of(end - 1), 0
        while at <= last:
            steps += self.reach(at)
            at = self.next_missing(at)
        return steps
