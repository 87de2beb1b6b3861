"""Passes of the same sequences, each with one more token, that follow each other while nothing else happens.

The batches of such passes follow from sums, so sequences stay as they are until one of them ends, a block is
missing, or another event is due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from et_sim.serving.batcher import Batcher, Share


def is_steady(shares: Sequence[Share], sight: int = 0) -> bool:
    """Return whether a pass has one token of each sequence, after others that fill the longest sight."""
    least = max(sight - 1, 1)
    return all(tokens == 1 and sequence.cached >= least and sequence.produced for sequence, tokens in shares)


class SteadyPasses:
    """The passes after one with single tokens, until a sequence ends."""

    def __init__(self, batcher: Batcher, shares: Sequence[Share]) -> None:
        self._batcher, self._shares, self._block = batcher, shares, batcher.policy.block
        self.passes = 0
        self._last = min(sequence.request.output - sequence.produced for sequence, _ in shares) - 1
        # The pass in which a sequence needs its next block, modulo the tokens of a block.
        self._growing = Counter((1 - sequence.all_tokens) % self._block for sequence, _ in shares)

    def begin(self) -> bool:
        """Allocate the blocks of another pass; return False if the next pass may differ."""
        grown = self._growing[(self.passes + 1) % self._block] * self._batcher.block_units
        if self.passes == self._last or grown > self._batcher.free:
            return False
        self._batcher.free -= grown
        self.passes += 1
        return True

    def end(self) -> None:
        """Add the tokens of all passes but the last, which is under way, to the sequences."""
        self._batcher.advance(self._shares, self.passes)
