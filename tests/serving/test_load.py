"""The load of replicas, and the cost of tokens, against queues with known results."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.machine.presets import preset
from et_sim.machine.system_parts import Costs
from et_sim.run.options import RunOptions
from et_sim.serving.requests import Request
from et_sim.serving.results import ServedLoad, costs_of, load_of
from et_sim.serving.serve import serve
from et_sim.serving.setups import Setup
from et_sim.workloads import Plan, read_model

SECOND = 10**9


def served(arrival_ns: np.ndarray, service_ns: int, tokens: int = 10) -> ServedLoad:
    """Return the load of requests served one after the other with equal times."""
    finish, free = [], 0
    for arrival in arrival_ns.tolist():
        free = max(free, arrival) + service_ns
        finish.append(free)
    return load_of(arrival_ns, np.array(finish), np.full(len(finish), tokens))


def test_a_service_faster_than_requests_keeps_up() -> None:
    outcome = served(np.arange(100) * SECOND, SECOND // 2)
    assert outcome == ServedLoad(1.0, 10.0, 1.0, 10.0, keeps_up=True)


def test_a_service_that_takes_twice_as_long_leaves_half_of_the_requests() -> None:
    outcome = served(np.arange(101) * SECOND, 2 * SECOND)
    assert outcome == ServedLoad(1.0, 10.0, 0.5, 5.0, keeps_up=False, growth_requests_per_s=0.5)


def test_the_drain_is_not_counted() -> None:
    """Serve a last request that takes very long."""
    arrival = np.arange(100) * SECOND
    finish = arrival + SECOND // 2
    finish[-1] += 10**6 * SECOND
    assert load_of(arrival, finish, np.full(100, 10)).steady_requests_per_s == 1.0


@pytest.mark.parametrize(
    ("arrival", "service"),
    [(np.arange(20) * SECOND, 1), (np.arange(100) * 10, SECOND), (np.zeros(50, np.int64), 1)],
)
def test_few_requests_or_all_at_once_give_no_load(arrival: np.ndarray, service: int) -> None:
    outcome = served(arrival, service)
    assert (outcome.keeps_up, outcome.steady_requests_per_s, outcome.growth_requests_per_s) == (
        None,
        None,
        None,
    )


@given(st.integers(0, 10**6), st.sampled_from([0.3, 0.5, 0.8, 1.6, 3.0]))
def test_random_arrivals_are_kept_up_with_where_there_is_room(seed: int, use: float) -> None:
    arrival = np.cumsum(np.random.default_rng(seed).exponential(SECOND, 400)).astype(np.int64)
    outcome = served(arrival, int(use * SECOND))
    assert outcome.keeps_up is (use < 1)
    if not outcome.keeps_up:
        assert outcome.steady_requests_per_s == pytest.approx(1 / use, rel=0.02)


def test_tokens_cost_as_much_as_their_npus() -> None:
    rates = Costs(busy_watts=700, idle_watts=100, network_watts=50, price_per_hour=3.6, currency="USD")
    result = costs_of(rates, 8, 0.5, 1000.0)  # 1,000 s of 8 NPUs
    assert result == {
        "price_per_million_output_tokens": 8.0,
        "most_joules_per_million_output_tokens": 8000.0 * 450,
        "currency": "USD",
    }
    assert costs_of(None, 8, 0.5, 1000.0) is None
    assert costs_of(rates, 8, 0.5, 0.0) is None


def test_a_service_reports_its_load_and_the_cost_of_tokens() -> None:
    requests = [Request(number, number * SECOND, 64, 4) for number in range(50)]
    summary = serve(requests, read_model("gpt2"), Setup(Plan()), RunOptions(machine="h100-dgx:1")).summary()
    assert summary["load"]["offered_requests_per_s"] == summary["load"]["steady_requests_per_s"] == 1.0
    assert summary["load"]["keeps_up"]
    hourly = preset("h100-dgx:1").system["costs"]["price-per-hour"]
    price = hourly / 3600 / summary["output_tokens_per_s"] * 1e6
    assert summary["costs"]["price_per_million_output_tokens"] == pytest.approx(price, rel=1e-6)


def test_the_load_is_stated_from_twenty_requests_of_the_later_half_on() -> None:
    arrival = np.arange(41) * SECOND
    assert served(arrival[:40], SECOND // 2).keeps_up is None
    assert served(arrival, SECOND // 2) == ServedLoad(1.0, 10.0, 1.0, 10.0, keeps_up=True)
