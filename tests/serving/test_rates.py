"""The largest rate of arrivals at which enough requests are good."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training_jobs import decoder

from et_sim.basics.errors import UsageError
from et_sim.run.options import RunOptions
from et_sim.serving.batcher import Policy
from et_sim.serving.caching import Caching
from et_sim.serving.clients import Client
from et_sim.serving.prefixes import ENDLESS
from et_sim.serving.rates import RateGoal, largest, serve_at_largest_rate
from et_sim.serving.requests import Request
from et_sim.serving.results import Objectives
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.serving.stretching import at_rate, rate_of
from et_sim.workloads import Plan

MODEL, MACHINE = decoder(sequence=4096), RunOptions(machine="h100-dgx:2")
ONE_AT_A_TIME = Policy("prefill-first", max_batch=1)


def evenly(count: int, between_ns: int) -> list[Request]:
    return [Request(number, number * between_ns, 100, 1) for number in range(count)]


def setup(**more: Any) -> Setup:
    return Setup(**{"plan": Plan(tensor=2), "policy": ONE_AT_A_TIME, **more})


def alone_ns() -> int:
    """Return the time of one request when nothing else runs."""
    times: list[int] = serve(evenly(1, 1), MODEL, setup(), MACHINE).requests()["ttft_ns"].tolist()
    return times[0]


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.sampled_from([0.001, 0.02, 0.5]))
def test_the_largest_good_rate_is_found_within_the_tolerance(
    begin: float, limit: float, tolerance: float
) -> None:
    tried = []

    def is_good(rate: float) -> bool:
        tried.append(rate)
        return rate <= limit

    found = largest(begin, is_good, tolerance)
    assert found <= limit < found * (1 + tolerance)
    assert found in tried


def test_without_a_good_rate_or_a_bad_one_the_search_ends() -> None:
    with pytest.raises(UsageError, match="no rate is served well enough"):
        largest(1.0, lambda _: False, 0.1)
    with pytest.raises(UsageError, match="these are few requests"):
        largest(1.0, lambda _: True, 0.1)


@pytest.mark.parametrize(("between_ns", "limit", "cause"), [(10**16, 1, "no rate"), (100, 10**18, "even ")])
def test_the_search_tries_no_rate_that_a_load_cannot_have(between_ns: int, limit: int, cause: str) -> None:
    of = setup(objectives=Objectives(ttft_ns=limit))
    with pytest.raises(UsageError, match=cause):
        serve_at_largest_rate(evenly(4, between_ns), MODEL, of, MACHINE, RateGoal())


def test_a_rate_at_which_requests_take_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--rate is 1e-12, at which .* \(give 3e-09 or more"):
        at_rate(evenly(4, 1000), 1e-12)


def test_requests_that_must_not_wait_arrive_at_most_as_often_as_one_takes() -> None:
    alone = alone_ns()
    of = setup(objectives=Objectives(ttft_ns=alone))
    found = serve_at_largest_rate(evenly(30, 10**9), MODEL, of, MACHINE, RateGoal(1.0, 0.01)).summary()
    rate = found["largest_rate"]["requests_per_s"]
    assert rate <= 1e9 / alone < rate * 1.011
    rates = found["largest_rate"]["rates"]
    assert [point["is_good"] for point in rates] == [point["requests_per_s"] <= rate for point in rates]
    assert found["ttft_ns"]["max"] == alone


def test_a_share_of_the_requests_may_wait() -> None:
    """Send two requests at a time, the second of which waits for the first."""
    alone = alone_ns()
    pairs = [Request(number, number // 2 * 10**9, 100, 1) for number in range(40)]
    of = setup(objectives=Objectives(ttft_ns=alone))
    found = serve_at_largest_rate(pairs, MODEL, of, MACHINE, RateGoal(0.5, 0.01)).summary()
    assert found["goodput"]["share"] == 0.5
    assert found["largest_rate"]["requests_per_s"] == pytest.approx(39 / 38 * 1e9 / alone, rel=0.011)


def test_the_found_rate_serves_again_with_the_same_result() -> None:
    of = setup(objectives=Objectives(ttft_ns=2 * alone_ns()))
    found = serve_at_largest_rate(evenly(30, 10**8), MODEL, of, MACHINE, RateGoal())
    rate = found.facts["largest_rate"]["requests_per_s"]
    again = serve(
        evenly(30, 10**8), MODEL, setup(objectives=of.objectives, client=Client(rate=rate)), MACHINE
    )
    assert {**again.summary(), "largest_rate": found.facts["largest_rate"]} == found.summary()
    assert again.iterations == found.iterations


def test_sessions_are_served_at_their_own_rate_only() -> None:
    with pytest.raises(UsageError, match=r"follow the answers.*leave out --rate"):
        serve("sessions:1,3,2,10,10,1", MODEL, setup(client=Client(rate=2.0)), MACHINE)


def test_prompts_that_are_cached_arrive_as_often_as_their_last_block_takes() -> None:
    equal = [Request(number, number * 10**8, 2000, 1, hashes=(1, 2, 3, 4)) for number in range(30)]
    of = setup(caching=Caching(ENDLESS))
    first, second, *_ = serve(equal, MODEL, of, MACHINE).requests()["ttft_ns"].tolist()
    assert second < first
    for caching, each in ((Caching(), first), (Caching(ENDLESS), second)):
        of = setup(objectives=Objectives(ttft_ns=first), caching=caching)
        found = serve_at_largest_rate(equal, MODEL, of, MACHINE, RateGoal(1.0, 0.01))
        rate = found.facts["largest_rate"]["requests_per_s"]
        assert rate <= 1e9 / each < rate * 1.011


@given(st.lists(st.integers(0, 10**12), min_size=2, max_size=50, unique=True), st.floats(0.01, 1e6))
def test_a_stretched_load_has_its_rate_and_its_pattern(arrivals: list[int], rate: float) -> None:
    requests = [Request(number, at, 1, 1) for number, at in enumerate(arrivals)]
    stretched = at_rate(requests, rate)
    span = round((len(arrivals) - 1) * 1e9 / rate)
    assert span == 0 or rate_of(stretched) == (len(arrivals) - 1) * 1e9 / span
    factor = span / (max(arrivals) - min(arrivals))
    for before, after in zip(requests, stretched, strict=True):
        assert after.arrival_ns == pytest.approx(
            min(arrivals) + (before.arrival_ns - min(arrivals)) * factor, abs=1 + 1e-6 * span
        )


def test_a_load_at_its_own_rate_is_unchanged() -> None:
    requests = tuple(evenly(9, 123_457))
    assert at_rate(requests, rate_of(requests)) == requests


@pytest.mark.parametrize(
    ("requests", "client", "objectives", "refused"),
    [
        (evenly(3, 10), Client(), Objectives(), "--ttft"),
        (evenly(3, 0), Client(), Objectives(1), "one time"),
        (evenly(3, 10), Client(concurrency=2), Objectives(1), "closed loop"),
        ("closed:10,10", Client(concurrency=2), Objectives(1), "closed loop"),
        ("sessions:1,3,2,10,10,1", Client(), Objectives(1), r"follow the answers.*at which sessions begin"),
    ],
)
def test_loads_without_a_rate_or_a_limit_are_refused(
    requests: Any, client: Client, objectives: Objectives, refused: str
) -> None:
    with pytest.raises(UsageError, match=refused):
        serve_at_largest_rate(
            requests, MODEL, setup(client=client, objectives=objectives), MACHINE, RateGoal()
        )


@pytest.mark.parametrize(("share", "tolerance"), [(0.0, 0.02), (1.1, 0.02), (0.5, 0.0), (0.5, 2.0)])
def test_goals_beyond_their_limits_are_refused(share: float, tolerance: float) -> None:
    with pytest.raises(UsageError):
        RateGoal(share, tolerance)
