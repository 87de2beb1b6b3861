"""What was asked of the replicas beside what they did: whether they keep up, and what tokens cost then.

Requests begin with empty replicas and end with a drain, and neither is what a service does all day. So what
is done is counted while the later half of the requests arrives: from the arrival of the middle one to that of
the last. More arrivals than completions then, beyond what chance does, are requests that pile up.

Not here: single requests, and the whole of them (`results`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from et_sim.machine.costs import Costs

FEWEST_ARRIVALS = 20  # that say anything
LEAST_GROWTH = 0.05  # as a share of the arrivals
CHANCE = 2  # standard deviations of as many arrivals by chance
MILLION = 1_000_000
NS_PER_SECOND = 1_000_000_000
SECONDS_PER_HOUR = 3600


@dataclass(frozen=True, slots=True)
class Load:
    """Per second; None: too few requests came, or in too short a time, to say."""

    offered_requests_per_s: float | None
    offered_output_tokens_per_s: float | None
    steady_requests_per_s: float | None = None
    steady_output_tokens_per_s: float | None = None
    keeps_up: bool | None = None
    growth_requests_per_s: float | None = None  # of requests that are not done, where it does not keep up


def load_of(arrival_ns: Any, finish_ns: Any, output_tokens: Any) -> Load:
    """Of all requests."""
    order = np.argsort(arrival_ns, kind="stable")
    arrival, finish, tokens = arrival_ns[order], finish_ns[order], output_tokens[order]
    first, last = int(arrival[0]), int(arrival[-1])
    if first == last:
        return Load(None, None)
    offered = _per_second(len(arrival) - 1, last - first), _per_second(int(tokens[1:].sum()), last - first)
    middle = int(arrival[len(arrival) // 2])
    came = int(((arrival > middle) & (arrival <= last)).sum())
    span, shortest = last - middle, int((finish - arrival).min())
    if came < FEWEST_ARRIVALS or shortest >= min(span, middle - first):
        return Load(*offered)
    is_done = (finish > middle) & (finish <= last)
    done = int(is_done.sum())
    keeps_up = came - done <= max(CHANCE * sqrt(came), LEAST_GROWTH * came)
    return Load(
        *offered,
        _per_second(done, span),
        _per_second(int(tokens[is_done].sum()), span),
        keeps_up,
        None if keeps_up else _per_second(came - done, span),
    )


def costs_of(rates: Costs | None, npus: int, busy_share: float, tokens_per_s: float) -> dict[str, Any] | None:
    """Of a million output tokens; None where the machine does not say what NPUs draw, or none come out.

    All NPUs of a replica count as computing while it works on a pass: no more energy is taken than that.
    """
    if rates is None or not tokens_per_s:
        return None
    seconds = MILLION / tokens_per_s * npus  # of NPUs
    joules = price = None
    if rates.busy_watts is not None and rates.idle_watts is not None:
        busy = min(busy_share, 1.0)
        watts = rates.busy_watts * busy + rates.idle_watts * (1 - busy) + rates.network_watts
        joules = _rounded(seconds * watts)
    if rates.price_per_hour is not None:
        price = _rounded(seconds * rates.price_per_hour / SECONDS_PER_HOUR)
    return {
        "price_per_million_output_tokens": price,
        "most_joules_per_million_output_tokens": joules,
        "currency": rates.currency,
    }


def _per_second(count: int, span_ns: int) -> float:
    return round(count * NS_PER_SECOND / span_ns, 3)


def _rounded(value: float) -> float:
    return float(f"{value:.9g}")
