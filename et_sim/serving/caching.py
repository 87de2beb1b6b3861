"""The choice of the caching of prefixes: how many tokens stay, and which replica a request goes to."""

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

    def __post_init__(self) -> None:
        if not 0 <= self.tokens <= ENDLESS:
            raise UsageError(
                f"--prefix-cache is {self.tokens}", remedy=f"give a number of tokens, or {ALL}; 0: none"
            )
        if self.router not in ROUTERS:
            remedy = did_you_mean(self.router, ROUTERS) or f"known: {', '.join(ROUTERS)}"
            raise UsageError(f"there is no router {self.router!r}", remedy=remedy)
        if self.router == BY_PREFIX and not self.tokens:
            raise UsageError(
                "--router prefix requires a cache of prefixes", remedy=f"give --prefix-cache {ALL}, too"
            )

    @staticmethod
    def of(given: str | None, router: str | None) -> Caching:
        """Return the choice that options state."""
        text = given or "0"
        if text != ALL and not (text.isascii() and text.isdigit()):
            raise UsageError(
                f"--prefix-cache is {text!r}", remedy=f"give a number of tokens, such as 100000, or {ALL}"
            )
        tokens = ENDLESS if text == ALL else min(int(text[:20]), ENDLESS)
        return Caching(tokens, router or BY_LOAD)

    def new(self, block: int) -> PrefixCache | None:
        """Return the empty cache of a replica, or None without caching."""
        return PrefixCache(self.tokens // block) if self.tokens else None
