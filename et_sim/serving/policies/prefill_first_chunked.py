"""Prompts first, in parts, as SGLang: a pass has prompts up to the budget, or single tokens."""

from __future__ import annotations

from et_sim.serving.batcher import Batcher, Batching, Share


class PrefillFirstChunked(Batching):
    """The policy by which prompts, or parts of them, are batches of their own."""

    def next_batch(self, batcher: Batcher) -> list[Share]:
        """Return prompts that have begun, then new ones, up to the budget; else a token of all sequences."""
        parts = batcher.begun_prompts(batcher.policy.token_budget)
        budget = batcher.policy.token_budget - sum(share.tokens for share in parts)
        return parts + batcher.prompts(budget, in_parts=True) or batcher.single_tokens()
