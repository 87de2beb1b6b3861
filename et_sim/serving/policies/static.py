"""Static batching, as FasterTransformer: no request begins before all of the last batch have ended."""

from __future__ import annotations

from et_sim.serving.batcher import Batcher, Batching, Share


class Static(Batching):
    """The policy by which requests begin together, and the next ones when all of them have ended."""

    def takes_caches(self, batcher: Batcher) -> bool:
        """Return whether no sequence runs."""
        return not batcher.running

    def next_batch(self, batcher: Batcher) -> list[Share]:
        """Return a token of all running sequences, or without one whole prompts."""
        if batcher.running:
            return batcher.single_tokens()
        return batcher.prompts(batcher.policy.token_budget)
