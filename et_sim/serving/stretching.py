"""The same load at another rate: all times between arrivals are multiplied by one factor."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.serving.requests import LATEST_NS, NONE, Request
from et_sim.serving.rules import HIGHEST_RATE

NS_PER_SECOND = 1_000_000_000


def rate_of(requests: Sequence[Request]) -> float:
    """Return the requests per second from the first arrival to the last one."""
    _, span = _first_and_span(requests)
    return (len(requests) - 1) * NS_PER_SECOND / span


def lowest_rate(requests: Sequence[Request]) -> float:
    """Return the requests per second at which the last one arrives as late as any may."""
    first, _ = _first_and_span(requests)
    return (len(requests) - 1) * NS_PER_SECOND / (LATEST_NS - first)


def at_rate(requests: Sequence[Request], rate: float) -> tuple[Request, ...]:
    """Return the requests with times of arrival that are stretched to a mean rate."""
    if not 0 < rate <= HIGHEST_RATE:
        remedy = f"give more than 0, and at most {HIGHEST_RATE:,.0f} requests in a second"
        raise UsageError(f"--rate is {rate:g}", remedy=remedy)
    first, span = _first_and_span(requests)
    if rate < (lowest := lowest_rate(requests)):
        cause = f"--rate is {rate:g}, at which these requests take too long"
        raise UsageError(cause, remedy=f"give {lowest:.3g} or more, or fewer requests")
    wanted = round((len(requests) - 1) * NS_PER_SECOND / rate)
    return tuple(
        replace(request, arrival_ns=first + (request.arrival_ns - first) * wanted // span)
        for request in requests
    )


def _first_and_span(requests: Sequence[Request]) -> tuple[int, int]:
    if any(request.session != NONE for request in requests):
        raise UsageError(
            "turns of sessions follow the answers before them, so these requests have no rate of their own",
            remedy="leave out --rate and --find-rate, and give the rate at which sessions begin, as in"
            " sessions:2,100,5,512,200,10",
        )
    arrivals = [request.arrival_ns for request in requests]
    first, span = min(arrivals), max(arrivals) - min(arrivals)
    if not span:
        raise UsageError(
            "all requests arrive at one time, which is no rate",
            remedy="give requests that arrive at different times, such as poisson:10,1000,512,200",
        )
    return first, span
