"""Prompts first, as vLLM before 0.8 and SGLang: new prompts delay the further tokens of others."""

from __future__ import annotations

from et_sim.serving.batcher import Batcher, Batching, Share


class PrefillFirst(Batching):
    """The policy by which prompts that may begin are a batch of their own."""

    def next_batch(self, batcher: Batcher) -> list[Share]:
        """Return whole prompts that may begin, or a token of all running sequences."""
        return batcher.prompts(batcher.policy.token_budget) or batcher.single_tokens()
