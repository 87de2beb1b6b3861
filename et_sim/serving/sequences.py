"""Requests that are being served: their tokens, their blocks of cache, and the times of their events."""

from __future__ import annotations

from msgspec import Struct

from et_sim.serving.prefixes import Holding
from et_sim.serving.requests import Request

NEVER = -1


class ServedSequence(Struct, eq=False):
    """A request that is being served."""

    request: Request
    produced: int = 0  # tokens
    cached: int = 0  # tokens
    blocks: int = 0
    is_elsewhere: bool = False  # its cache is on another replica
    replica: int = NEVER
    decode_replica: int = NEVER
    scheduled_ns: int = NEVER
    first_token_ns: int = NEVER
    finish_ns: int = NEVER
    transfer_ns: int = NEVER
    preemptions: int = 0
    verified: int = 0  # passes that verified drafts
    hit_tokens: int = 0  # of the prompt, which were there when it began
    loaded_tokens: int = 0  # of all begins, which came from remote memory
    held: Holding | None = None  # blocks by content

    @property
    def all_tokens(self) -> int:
        """Return the number of tokens of the prompt, and of those that followed."""
        return self.request.prompt + self.produced

    @property
    def pending(self) -> int:
        """Return the number of tokens that are not cached."""
        return self.request.prompt + self.produced - self.cached

    @property
    def is_done(self) -> bool:
        """Return whether all requested tokens are produced."""
        return self.produced == self.request.output

    @property
    def left(self) -> int:
        """Return the number of tokens still to be processed, if the cache is never lost."""
        return self.request.prompt + self.request.output - 1 - self.cached
