"""Chunked prefill, as Sarathi-Serve and vLLM from 0.8 on: parts of prompts fill every batch."""

from __future__ import annotations

from et_sim.basics.errors import UsageError
from et_sim.serving.batcher import Batcher, Batching, Policy, Share


def check_budget(policy: Policy) -> None:
    """Refuse a budget that is too small for a token of each sequence."""
    if policy.token_budget < policy.max_batch:
        raise UsageError(
            f"a budget of {policy.token_budget} tokens is below --max-batch {policy.max_batch}",
            remedy="give --token-budget at least --max-batch, since every sequence may need a token",
        )


class Chunked(Batching):
    """The policy by which every batch has a token of all running sequences, and parts of prompts."""

    check = staticmethod(check_budget)

    def next_batch(self, batcher: Batcher) -> list[Share]:
        """Return a token of all running sequences, and as much of prompts as the budget leaves."""
        batch, budget = batcher.single_tokens(), batcher.policy.token_budget
        batch += batcher.begun_prompts(budget - len(batch) * (1 + batcher.drafts))
        budget -= sum(share.tokens for share in batch)
        return batch + batcher.prompts(budget, in_parts=True)
