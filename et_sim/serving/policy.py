"""Rules by which a replica chooses the next batch, and their numbers."""

from __future__ import annotations

from dataclasses import dataclass

from et_sim.basics.errors import UsageError, did_you_mean

PREFILL_FIRST, CHUNKED = "prefill-first", "chunked"
POLICIES = (PREFILL_FIRST, CHUNKED)


@dataclass(frozen=True, slots=True)
class Policy:
    """`prefill-first`: prompts that may begin are a batch of their own, before any further token of others.

    `chunked`: every batch has a token of all running sequences, and as much of prompts as the budget leaves.
    """

    name: str = CHUNKED
    max_batch: int = 256  # sequences that run at a time
    token_budget: int = 2048  # of a batch; with prefill-first, of its prompts
    block: int = 16  # tokens whose cache is allocated together

    def __post_init__(self) -> None:
        if self.name not in POLICIES:
            remedy = did_you_mean(self.name, POLICIES) or f"known: {', '.join(POLICIES)}"
            raise UsageError(f"there is no policy {self.name!r}", remedy=remedy)
        for option, value in (
            ("max-batch", self.max_batch),
            ("token-budget", self.token_budget),
            ("block", self.block),
        ):
            if not 1 <= value <= 10**9:
                raise UsageError(f"--{option} is {value}", remedy="give a number from 1 to 1,000,000,000")
        if self.is_chunked and self.token_budget < self.max_batch:
            raise UsageError(
                f"a budget of {self.token_budget} tokens is less than {self.max_batch} sequences",
                remedy="give --token-budget at least --max-batch, since every sequence may need a token",
            )

    @property
    def is_chunked(self) -> bool:
        """Whether prompts are worked on in parts."""
        return self.name == CHUNKED
