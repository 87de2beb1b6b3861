"""Requests that are made by a rule: equal ones, at times that are drawn or evenly spaced.

`gamma` has times between arrivals of a gamma distribution, whose standard deviation is CV times their mean:
1 is `poisson`, 0 is `constant`, and more is bursts. `sessions` begin at times of `poisson`; each turn adds
PROMPT tokens to all tokens before it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from et_sim.basics.errors import UsageError
from et_sim.serving.requests import (
    CONSTANT,
    CONSTANT_FORM,
    GAMMA,
    GAMMA_FORM,
    LATEST_NS,
    MOST_REQUESTS,
    MOST_TOKENS,
    POISSON,
    POISSON_FORM,
    SESSIONS,
    SESSIONS_FORM,
    Request,
    counts_of_rule,
)

HIGHEST_RATE = 1e9  # requests in a second
NO_COUNTS = {"CV": (0.001, 1000.0), "THINK_S": (1e-9, LATEST_NS / 1e9)}  # with their limits, besides 0
MOST = {"COUNT": MOST_REQUESTS, "TURNS": MOST_REQUESTS, "PROMPT": MOST_TOKENS, "OUTPUT": MOST_TOKENS}
EXAMPLES = {
    POISSON: (POISSON_FORM, "poisson:10,1000,512,200"),
    GAMMA: (GAMMA_FORM, "gamma:10,2.5,1000,512,200"),
    CONSTANT: (CONSTANT_FORM, "constant:10,1000,512,200"),
    SESSIONS: (SESSIONS_FORM, "sessions:2,100,5,512,200,10"),
}


def is_drawn(given: str) -> bool:
    """Return whether times of arrival come by chance, if they are those of a rule."""
    kind = given[: given.index(":") + 1] if ":" in given else ""
    return kind in EXAMPLES and kind != CONSTANT and not (kind == GAMMA and _numbers(kind, given)[2] == 0)


def requests_of_rule(given: str, seed: int) -> list[Request]:
    """Return the requests of a rule other than a closed loop."""
    kind = given[: given.index(":") + 1]
    if kind not in EXAMPLES:
        raise UsageError(
            f"{given} has no times of arrival", remedy="give --concurrency, the number of requests under way"
        )
    rate, counts, other = _numbers(kind, given)
    if kind == SESSIONS:
        return _sessions(given, rate, counts, other or 0.0, seed)
    count, prompt, output = (counts[name] for name in ("COUNT", "PROMPT", "OUTPUT"))
    if kind == CONSTANT or other == 0:
        arrivals = _even_ns(given, rate, count)
    else:
        arrivals = _drawn_ns(given, rate, count, other or 1.0, seed)
    return [Request(number, at, prompt, output) for number, at in enumerate(arrivals)]


def _names(kind: str, *, are_counts: bool) -> list[str]:
    """Return the names of the numbers of a rule, those that are counts or those that are not."""
    names = EXAMPLES[kind][0].removeprefix(kind).split(",")[1:]
    return [name for name in names if (name not in NO_COUNTS) == are_counts]


def _numbers(kind: str, given: str) -> tuple[str, dict[str, int], float | None]:
    """Return the rate as it is written, the counts, and the other number of a rule, checked."""
    form, example = EXAMPLES[kind]
    names, words = form.removeprefix(kind).split(","), given.removeprefix(kind).split(",")
    try:
        rate = float(words[0])
        of_name = dict(zip(names, words, strict=True))
        counts = {name: int(of_name[name]) for name in _names(kind, are_counts=True)}
        others = {name: float(of_name[name]) for name in _names(kind, are_counts=False)}
    except ValueError:
        raise UsageError(f"{given!r} is not {form}", remedy=f"as in {example}") from None
    if not 0 < rate <= HIGHEST_RATE:
        remedy = f"give more than 0, and at most {HIGHEST_RATE:,.0f} requests in a second"
        raise UsageError(f"RATE is {words[0]}", place=given, remedy=remedy)
    counts_of_rule(given, [(name, count, MOST[name]) for name, count in counts.items()])
    for name, number in others.items():
        least, most = NO_COUNTS[name]
        if number and not least <= number <= most:
            remedy = f"give 0, or a number from {least:g} to {most:,.0f}"
            raise UsageError(f"{name} is {of_name[name]}", place=given, remedy=remedy)
    return words[0], counts, next(iter(others.values()), None)


def _even_ns(given: str, rate: str, count: int) -> list[int]:
    """Return times of arrival at equal distances, the first one at 0."""
    each = 10**9 / Fraction(rate)
    if each * count > LATEST_NS:
        raise _too_long(given)
    return [int(number * each) for number in range(count)]


def _drawn_ns(given: str, rate: str, count: int, cv: float, seed: int) -> list[int]:
    """Return times of arrival whose distances are drawn."""
    import numpy as np

    chance = np.random.default_rng(seed)
    between: Any = chance.gamma(1 / cv**2, cv**2 / float(rate), count)
    arrivals = np.cumsum(between)
    if arrivals[-1] > LATEST_NS / 1e9:
        raise _too_long(given)
    return [int(at * 1e9) for at in arrivals.tolist()]


def _too_long(given: str) -> UsageError:
    return UsageError(f"{given!r} takes too long", remedy="give a higher rate or fewer requests")


def _sessions(given: str, rate: str, counts: dict[str, int], think: float, seed: int) -> list[Request]:
    """Return sessions, whose turns follow each other in the list."""
    turns, prompt, output = (counts[name] for name in ("TURNS", "PROMPT", "OUTPUT"))
    if counts["COUNT"] * turns > MOST_REQUESTS:
        raise UsageError("too many turns", place=given, remedy=f"give at most {MOST_REQUESTS:,} in all")
    requests = []
    for first, arrival in enumerate(_drawn_ns(given, rate, counts["COUNT"], 1.0, seed)):
        for turn in range(turns):
            number = first * turns + turn
            all_tokens = (turn + 1) * prompt + turn * output
            if not turn:
                requests.append(Request(number, arrival, prompt, output, session=number))
                continue
            requests.append(
                Request(number, 0, all_tokens, output, number - 1, round(think * 1e9), session=number - turn)
            )
    return requests
