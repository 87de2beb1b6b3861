"""Requests: their arrivals, the lengths of their prompts, and the numbers of tokens to be produced.

A request of a session follows the answer of the
one before by a think time, and its prompt begins with that request's prompt and answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from et_sim.basics.errors import UsageError

POISSON = "poisson:"
GAMMA = "gamma:"
CONSTANT = "constant:"
SESSIONS = "sessions:"
CLOSED = "closed:"
ROLLOUT = "rollout:"
POISSON_FORM = "poisson:RATE,COUNT,PROMPT,OUTPUT"
GAMMA_FORM = "gamma:RATE,CV,COUNT,PROMPT,OUTPUT"
CONSTANT_FORM = "constant:RATE,COUNT,PROMPT,OUTPUT"
SESSIONS_FORM = "sessions:RATE,COUNT,TURNS,PROMPT,OUTPUT,THINK_S"
CLOSED_FORM = "closed:PROMPT,OUTPUT[,COUNT]"
ROLLOUT_FORM = "rollout:PROMPT,OUTPUT,COUNT,BATCHES"
RULES = (POISSON, GAMMA, CONSTANT, SESSIONS, CLOSED, ROLLOUT)
LATEST_NS = 10**18
MOST_TOKENS = 10**9
MOST_REQUESTS = 10_000_000
NONE = -1
HASHED_TOKENS = 512  # of a block of a prompt that has a hash


class Request(Struct, frozen=True):
    """A request; its number is its position in the file."""

    number: int
    arrival_ns: int  # of a request that follows another one: 0 until that one's answer is there
    prompt: int  # tokens
    output: int  # tokens
    after: int = NONE  # the request before it in its session
    think_ns: int = 0  # from the answer of that one
    session: int = NONE  # the number of the session's first request
    hashes: tuple[int, ...] = ()  # of blocks of the prompt; equal ones stand for equal tokens up to there
    model: int = NONE  # its place among those that are served; NONE: not named, the first one

    @property
    def stream(self) -> int:
        """Return the first request of its session, whose tokens its prompt continues; else its own number."""
        return self.number if self.session == NONE else self.session


def checked_seed(seed: int | None) -> int:
    """Return a seed, 0 without one; refuse negative ones."""
    if seed is not None and seed < 0:
        raise UsageError(f"--seed is {seed}", remedy="give a number from 0 up")
    return seed or 0


def counts_of_rule(given: str, numbers: Sequence[tuple[str, int, int]]) -> None:
    """Refuse numbers of a rule that are not from 1 to a limit; each has a name."""
    for name, number, most in numbers:
        if not 1 <= number <= most:
            remedy = f"give a whole number from 1 to {most:,}"
            raise UsageError(f"{name} is {number}", place=given, remedy=remedy)
