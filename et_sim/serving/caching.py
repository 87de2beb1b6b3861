"""The choice of the caching of prefixes: how many tokens stay, where, and which replica a request goes to."""

from __future__ import annotations

from msgspec import Struct

from et_sim.basics.errors import UsageError, did_you_mean
from et_sim.serving.prefixes import ENDLESS, PrefixCache

BY_LOAD, BY_PREFIX = "load", "prefix"
ROUTERS = (BY_LOAD, BY_PREFIX)
ALL = "all"


class Caching(Struct, frozen=True):
    """The tokens that stay in a replica's cache after their requests, and the router."""

    tokens: int = 0  # that no running sequence has; 0: none stay, and no sequences share blocks
    router: str = BY_LOAD
    remote_tokens: int = 0  # that stay in remote memory, from which they are loaded

    def __post_init__(self) -> None:
        for option, tokens in (("prefix-cache", self.tokens), ("offload", self.remote_tokens)):
            if not 0 <= tokens <= ENDLESS:
                remedy = f"give a number of tokens, or {ALL}; 0: none"
                raise UsageError(f"--{option} is {tokens}", remedy=remedy)
        if self.router not in ROUTERS:
            remedy = did_you_mean(self.router, ROUTERS) or f"known: {', '.join(ROUTERS)}"
            raise UsageError(f"there is no router {self.router!r}", remedy=remedy)
        if self.router == BY_PREFIX and not self.shares_blocks:
            raise UsageError(
                "--router prefix requires a cache of prefixes", remedy=f"give --prefix-cache {ALL}, too"
            )

    @staticmethod
    def of(given: str | None, router: str | None, offload: str | None = None) -> Caching:
        """Return the choice that options state; with remote memory, all tokens that fit stay, too."""
        remote = _tokens("offload", offload or "0")
        return Caching(_tokens("prefix-cache", given or (ALL if remote else "0")), router or BY_LOAD, remote)

    @property
    def shares_blocks(self) -> bool:
        """Return whether there are blocks by content."""
        return self.tokens > 0 or self.remote_tokens > 0

    def new(self, block: int) -> PrefixCache | None:
        """Return the empty cache of a replica, or None without caching."""
        return PrefixCache(self.tokens // block) if self.shares_blocks else None

    def new_remote(self, block: int) -> PrefixCache | None:
        """Return an empty cache in remote memory, or None without one."""
        return PrefixCache(self.remote_tokens // block) if self.remote_tokens else None


def _tokens(option: str, text: str) -> int:
    if text != ALL and not (text.isascii() and text.isdigit()):
        raise UsageError(
            f"--{option} is {text!r}", remedy=f"give a number of tokens, such as 100000, or {ALL}"
        )
    return ENDLESS if text == ALL else min(int(text[:20]), ENDLESS)
