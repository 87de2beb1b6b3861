"""Uneven numbers of tokens for experts, from a skew of the plan.

A skew is `zipf:S`, with which the k-th busiest expert has a load of k^-S, or the path of a JSON list with a
load for each expert. With `zipf`, the seed chooses the k-th expert. The tokens of a rank are divided in
proportion to the loads, in whole tokens. A token takes an expert at most once, so an expert gets at most all
tokens of a rank; the rest goes to the others. All ranks divide their tokens in the same way.
"""

from __future__ import annotations

import json
from fractions import Fraction
from functools import lru_cache
from hashlib import sha256
from math import inf
from pathlib import Path

from et_sim.basics.errors import FieldError, unreadable

ZIPF = "zipf:"
MOST_SKEW = 20.0


def tokens_of_experts(skew: str, seed: int, experts: int, chosen: int, tokens: int) -> tuple[int, ...]:
    """Return the tokens that each expert gets from a rank; each token takes `chosen` experts."""
    return _shared_out(loads_of(skew, seed, experts, chosen), tokens * chosen, tokens)


def loads_of(skew: str, seed: int, experts: int, chosen: int) -> tuple[Fraction, ...]:
    """Return the load of each expert; refuse fewer experts with a load than a token takes."""
    loads = _zipf(skew, seed, experts) if is_zipf(skew) else _listed(skew, experts)
    if sum(load > 0 for load in loads) < chosen:
        raise FieldError(
            f"{skew} gives a load to {sum(load > 0 for load in loads)} experts, but a token takes {chosen}",
            place="`expert_skew`",
            remedy="give more experts a load above 0",
        )
    return loads


def is_zipf(skew: str) -> bool:
    """Return whether a skew is a Zipf exponent, which a seed applies to, and not a file."""
    return skew.startswith(ZIPF)


@lru_cache(maxsize=64)
def _zipf(skew: str, seed: int, experts: int) -> tuple[Fraction, ...]:
    try:
        exponent = float(skew.removeprefix(ZIPF))
    except ValueError:
        exponent = -1.0
    if not 0 <= exponent <= MOST_SKEW:
        raise FieldError(
            f"`expert_skew` is {skew!r}",
            remedy=f"give zipf and a number from 0 to {MOST_SKEW:g}, as in zipf:1.2, or a JSON file of loads",
        )
    order = sorted(range(experts), key=lambda expert: sha256(f"{seed} {expert}".encode()).digest())
    loads = [Fraction(0)] * experts
    for place, expert in enumerate(order, start=1):
        loads[expert] = Fraction(place**-exponent)
    return tuple(loads)


def _listed(path: str, experts: int) -> tuple[Fraction, ...]:
    form = f"write a JSON list of {experts} numbers from 0 up, or give zipf:S, as in zipf:1.2"
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FieldError(
            f"{path!r} cannot be read as loads of experts: {unreadable(error)}", remedy=form
        ) from None
    numbers = content if isinstance(content, list) else []
    if len(numbers) != experts or not all(_is_load(load) for load in numbers):
        raise FieldError(
            f"{path} does not list loads of {experts} experts", place="`expert_skew`", remedy=form
        )
    return tuple(Fraction(load) for load in numbers)


def _is_load(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf


@lru_cache(maxsize=64)
def _shared_out(loads: tuple[Fraction, ...], total: int, most: int) -> tuple[int, ...]:
    """Return whole numbers in proportion to loads, each at most `most`, by largest remainders."""
    shares = [Fraction(0)] * len(loads)
    open_ones = [at for at, load in enumerate(loads) if load > 0]
    left = Fraction(total)
    while open_ones:
        whole = sum(loads[at] for at in open_ones)
        full = [at for at in open_ones if left * loads[at] / whole >= most]
        if not full:
            for at in open_ones:
                shares[at] = left * loads[at] / whole
            break
        for at in full:
            shares[at] = Fraction(most)
        left -= most * len(full)
        open_ones = [at for at in open_ones if at not in full]
    counts = [int(share) for share in shares]
    by_rest = sorted(range(len(counts)), key=lambda at: (counts[at] - shares[at], at))
    for at in by_rest[: total - sum(counts)]:
        counts[at] += 1
    return tuple(counts)
