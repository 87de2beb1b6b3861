"""Numbers of a rank's tokens that use at least one expert of a part of the experts.

A token takes a number of different experts. If experts are even, all sets of experts are equally likely; else
the likelihood of a set is the product of the odds of its experts, which follow from their loads (the
distribution of largest entropy with a fixed number of choices). If a router limits a token to some groups of
experts, such as those of four nodes, sets of groups are chosen likewise, and the experts are within these.

So the weight of sets is a coefficient of a polynomial: each expert is a factor 1 + odds x, each group a
factor 1 + y (its experts), and sets of M groups and K experts are the coefficient of y^M x^K. The polynomial
without the experts of a part gives the sets that use none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from et_sim.basics.errors import FieldError

Polynomial = tuple[float, ...]  # coefficients of x^0, x^1, …


@lru_cache(maxsize=1024)
def _sets(odds: Polynomial, most: int) -> Polynomial:
    """Return the weight of all sets of 0, 1, … experts with these odds."""
    weights = [1.0] + [0.0] * most
    for odd in odds:
        for size in range(most, 0, -1):
            weights[size] += odd * weights[size - 1]
    return tuple(weights)


def _weight(groups: Sequence[Polynomial], limit: int, chosen: int) -> float:
    """Return the weight of all sets of `limit` groups and `chosen` experts within these."""
    table = [[1.0] + [0.0] * chosen] + [[0.0] * (chosen + 1) for _ in range(limit)]
    for group in groups:
        for taken in range(limit, 0, -1):
            for size in range(chosen, -1, -1):
                table[taken][size] += sum(
                    group[here] * table[taken - 1][size - here] for here in range(size + 1)
                )
    return table[limit][chosen]


@lru_cache(maxsize=64)
def shares_met(odds: Polynomial, parts: int, groups: int, limit: int, chosen: int) -> tuple[float, ...]:
    """Return the share of tokens that use each of several equal parts of the experts.

    Tokens take their experts from `limit` of several equal groups of experts, or from all groups.
    """
    if limit >= groups:
        groups = limit = 1
    each, of_part = len(odds) // groups, len(odds) // parts
    whole = _of_groups(odds, each, limit, chosen)
    if not whole:
        raise FieldError(
            f"no {limit} of {groups} groups have {chosen} experts with a load, as every token needs",
            place="`expert_skew`",
            remedy="give more experts a load above 0, or let tokens go to more groups",
        )
    known: dict[tuple[Polynomial, ...], float] = {}
    shares: list[float] = []
    for part in range(parts):
        first = part * of_part
        left = (*odds[:first], *(0.0,) * of_part, *odds[first + of_part :])
        key = tuple(sorted(_sorted(left[at : at + each]) for at in range(0, len(odds), each)))
        if key not in known:
            known[key] = 1 - _of_groups(left, each, limit, chosen) / whole
        shares.append(known[key])
    return tuple(shares)


def _of_groups(odds: Polynomial, each: int, limit: int, chosen: int) -> float:
    groups = [_sets(_sorted(odds[at : at + each]), chosen) for at in range(0, len(odds), each)]
    return _weight(groups, limit, chosen)


def _sorted(odds: Polynomial) -> Polynomial:
    """Return sorted odds, so that equal ones give equal sums."""
    return tuple(sorted(odds))


def odds_of(loads: Sequence[int], experts: int, tokens: int) -> Polynomial:
    """Return the odds that a token takes each expert, from the tokens of each; (): all are equal.

    An expert that all tokens take has the odds of one that half a token does not take.
    """
    if not loads:
        return (1.0,) * experts
    return tuple(load / max(tokens - load, 0.5) for load in loads)


def tokens_met(shares: Sequence[float], tokens: int, loads: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return whole tokens of shares, from the largest load of a part's experts to the sum of its loads."""
    return tuple(
        max(min(round(tokens * share), tokens, sum(of_part)), max(of_part))
        for share, of_part in zip(shares, loads, strict=True)
    )
