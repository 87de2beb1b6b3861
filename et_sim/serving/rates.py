"""The largest rate of arrivals at which requests are served as well as they should be.

The load keeps its requests and its pattern. From its own rate, rates are doubled or halved until one is good
enough and its double is not; then the pair is halved in ratio until it is as narrow as the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.run.options import RunOptions
from et_sim.serving.clients import read_traffic
from et_sim.serving.replicas import MachineTimes
from et_sim.serving.requests import Request
from et_sim.serving.results import Serving, load_of
from et_sim.serving.rules import HIGHEST_RATE
from et_sim.serving.serve import Reached, serve
from et_sim.serving.setups import Setup
from et_sim.serving.stretching import lowest_rate, rate_of
from et_sim.tables.serving_summary import RatePoint, ServingSummary
from et_sim.workloads.models.model import Model

DOUBLINGS = 20


class RateGoal(Struct, frozen=True):
    """The share of good requests that a rate must reach, and the precision of the largest such rate."""

    share: float = 0.99
    tolerance: float = 0.02

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            remedy = "give a share above 0 and up to 1, such as 0.99"
            raise UsageError(f"--good-share is {self.share:g}", remedy=remedy)
        if not 0.0001 <= self.tolerance <= 1:
            remedy = "give a ratio from 0.0001 to 1, such as 0.02"
            raise UsageError(f"--tolerance is {self.tolerance:g}", remedy=remedy)


def serve_at_largest_rate(
    given: str | Sequence[Request],
    model: Model,
    setup: Setup,
    options: RunOptions,
    goal: RateGoal,
    report: Callable[[Reached], None] = lambda _: None,
    shared: MachineTimes | None = None,
) -> Serving:
    """Serve a load at the largest rate at which enough requests meet the objectives.

    Its summary has all rates that were tried. Times of passes are `shared` by all of them.
    """
    if not (setup.objectives.ttft_ns or setup.objectives.tpot_ns):
        raise UsageError(
            "--find-rate needs the limits of a good request", remedy="give --ttft, --tpot or both"
        )
    traffic = read_traffic(given, setup.client)
    if traffic.concurrency:
        raise UsageError(
            "--find-rate is for requests that arrive at times of their own; a closed loop waits for answers",
            remedy="leave out --concurrency, and give a file or poisson:RATE,COUNT,PROMPT,OUTPUT",
        )
    times, found = shared or MachineTimes(), dict[float, tuple[RatePoint, Serving]]()

    def is_good(rate: float) -> bool:
        at = replace(setup, client=replace(setup.client, rate=rate))
        serving = serve(given, model, at, options, report, shared=times)
        found[rate] = point_of(rate, serving, goal), serving
        return found[rate][0]["is_good"]

    lowest = lowest_rate(traffic.requests)
    rate = largest(rate_of(traffic.requests), is_good, goal.tolerance, lowest)
    facts: dict[str, Any] = {
        "good_share": goal.share,
        "tolerance": goal.tolerance,
        "rates": [found[each][0] for each in sorted(found)],
    }
    serving = found[rate][1]
    return replace(serving, facts={**serving.facts, "largest_rate": {"requests_per_s": rate, **facts}})


def largest(begin: float, is_good: Callable[[float], bool], tolerance: float, lowest: float = 0.0) -> float:
    """Return a rate that is good, while one larger by the tolerance is not; none is below `lowest`."""
    low, high = _bracket(begin, is_good, lowest)
    while high > low * (1 + tolerance):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if is_good(middle) else (low, middle)
    return low


def _bracket(begin: float, is_good: Callable[[float], bool], lowest: float) -> tuple[float, float]:
    """Return a good rate, and its double, which is not good."""
    rate, goes_up = begin, is_good(begin)
    for _ in range(DOUBLINGS):
        before, following = rate, rate * 2 if goes_up else rate / 2
        if not lowest <= following <= HIGHEST_RATE:
            break
        rate = following
        if is_good(rate) != goes_up:
            return (before, rate) if goes_up else (rate, before)
    if goes_up:
        cause = f"even {rate:,.4g} requests/s are served well enough, since these are few requests"
        raise UsageError(cause, remedy="give more requests, or lower limits with --ttft and --tpot")
    raise UsageError(
        f"no rate is served well enough: too few requests are good even at {rate:,.4g} requests/s",
        remedy="give higher limits with --ttft and --tpot, a lower --good-share, or more ranks to a replica",
    )


def point_of(rate: float, serving: Serving, goal: RateGoal) -> RatePoint:
    """Return the figures at a rate: it is good if enough requests are, and if the replicas keep up."""
    summary = serving.summary()
    good, holds = summary["goodput"], keeps_up(serving, summary)
    assert good is not None
    return {
        "requests_per_s": rate,
        "output_tokens_per_s": summary["output_tokens_per_s"],
        "good_share": good["share"],
        "ttft_ns": summary["ttft_ns"],
        "tpot_ns": summary["tpot_ns"],
        "keeps_up": holds,
        "is_good": good["share"] >= goal.share and holds is not False,
    }


def keeps_up(serving: Serving, summary: ServingSummary) -> bool | None:
    """Return whether requests do not pile up; None: they are too few to decide.

    With both limits, requests pile up before their first tokens: afterwards, a limit of theirs would break.
    """
    if not (serving.objectives.ttft_ns and serving.objectives.tpot_ns):
        return summary["load"]["keeps_up"]
    of = serving.requests()
    return load_of(of["arrival_ns"], of["arrival_ns"] + of["ttft_ns"], of["output_tokens"]).keeps_up
