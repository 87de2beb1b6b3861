"""Whole prompts beside single tokens, as TensorRT-LLM without chunks: no prompt is processed in parts."""

from __future__ import annotations

from et_sim.serving.batcher import Batcher, Batching, Share
from et_sim.serving.policies.chunked import check_budget


class WholePrompts(Batching):
    """The policy by which every batch has a token of all running sequences, and whole prompts."""

    check = staticmethod(check_budget)

    def next_batch(self, batcher: Batcher) -> list[Share]:
        """Return a token of all running sequences, and as many prompts as the budget leaves room for."""
        batch = batcher.single_tokens()
        return batch + batcher.prompts(batcher.policy.token_budget - len(batch) * (1 + batcher.drafts))
