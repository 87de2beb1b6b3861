"""Bands: closed forms, cancellation between two times, and the share of true values that a band holds."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.uncertainty import BASES, LEVEL, MOST_PARTS, QUANTILE, Composition, ErrorTerm, Trait

WHOLE = ErrorTerm("assumed", 0.02, 0.05)
EXACT = ErrorTerm("assumed", 0.0, 0.0)
ERRORS = st.floats(0, 1)
AMOUNTS = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.sampled_from("12345678")), st.integers(1, 1000), min_size=1
)


def composition(
    amounts: dict[tuple[str, str], float], term: ErrorTerm, whole: ErrorTerm = EXACT, device: str = "here"
) -> Composition:
    result = Composition.of(device, whole, {name: term for name, _ in amounts}, amounts)
    assert result is not None
    return result


def test_the_error_of_one_part_is_its_own_the_common_one_and_that_of_the_whole() -> None:
    whole = composition({("gemm", "x"): 5}, ErrorTerm("calibrated", 0.1, 0.04), WHOLE)
    assert whole.sigma == pytest.approx(math.hypot(0.1, 0.04, 0.02, 0.05))
    low, high = whole.band(1_000_000)
    assert (low, high) == (
        round(1e6 * math.exp(-QUANTILE * whole.sigma)),
        round(1e6 * math.exp(QUANTILE * whole.sigma)),
    )


@pytest.mark.parametrize("count", [1, 2, 16])
def test_errors_of_unlike_parts_average_out_and_common_ones_do_not(count: int) -> None:
    parts = {("gemm", str(number)): 1.0 for number in range(count)}
    result = composition(parts, ErrorTerm("calibrated", 0.3, 0.2))
    assert result.sigma == pytest.approx(math.sqrt(0.3**2 / count + 0.2**2), rel=1e-4)
    of_two = composition({("gemm", "x"): 1, ("norm", "y"): 1}, ErrorTerm("modelled", 0.0, 0.2))
    assert of_two.sigma == pytest.approx(0.2 / math.sqrt(2))


def test_small_parts_of_a_class_are_one() -> None:
    many = {("gemm", f"{number:03}"): 1.0 for number in range(10 * MOST_PARTS)}
    result = composition(many, ErrorTerm("modelled", 0.1, 0.0))
    assert len(result.parts) == MOST_PARTS + 1
    assert result.shares["gemm"] == pytest.approx(1, abs=1e-4)
    assert Composition.of("", WHOLE, {}, {("gemm", "x"): 0}) is None


def test_a_known_bias_moves_the_band() -> None:
    result = composition({("all_reduce", "x"): 1}, ErrorTerm("modelled", 0.1, 0.0, bias=0.3))
    low, high = result.band(1_000_000)
    assert math.sqrt(low * high) == pytest.approx(1e6 * math.exp(0.3), rel=1e-5)


def test_a_trait_adds_its_error_and_moves_the_band() -> None:
    amounts = {("gemm", "x"): 1}
    terms = {"gemm": ErrorTerm("calibrated", 0.1, 0.0)}
    trait = Trait("software", "fsdp2", ErrorTerm("assumed", 0.2, 0.3, 0.25, 40))
    result = Composition.of("here", EXACT, terms, amounts, [trait])
    assert result is not None
    assert result.sigma == pytest.approx(math.hypot(0.1, 0.2, 0.3))
    assert result.bias == 0.25
    assert Composition.read(json.loads(json.dumps(result.as_dict()))) == result
    low, high = result.band(1_000_000)
    assert 1e6 - low < high - 1e6  # longer by more than shorter


def test_errors_of_one_software_cancel_and_errors_of_two_do_not() -> None:
    def run_of(software: str) -> Composition:
        trait = Trait("software", software, ErrorTerm("assumed", 0.0, 0.3))
        result = Composition.of("here", EXACT, {"gemm": EXACT}, {("gemm", "x"): 1}, [trait])
        assert result is not None
        return result

    assert run_of("a").ratio(run_of("a"), 1.5) == pytest.approx((1.5, 1.5))
    low, high = run_of("a").ratio(run_of("b"), 1.5)
    assert math.log(high / low) == pytest.approx(2 * QUANTILE * math.hypot(0.3, 0.3))


def test_runs_of_one_job_share_the_random_error_of_a_trait_and_other_runs_do_not() -> None:
    def run_of(job: str) -> Composition:
        trait = Trait("software", "a", ErrorTerm("assumed", 0.2, 0.0), job)
        result = Composition.of("here", EXACT, {"gemm": EXACT}, {("gemm", "x"): 1}, [trait])
        assert result is not None
        return result

    assert run_of("step").ratio(run_of("step"), 1.5) == pytest.approx((1.5, 1.5))
    for one, other in (("step", "another"), ("", "")):
        low, high = run_of(one).ratio(run_of(other), 1.5)
        assert math.log(high / low) == pytest.approx(2 * QUANTILE * math.hypot(0.2, 0.2))


@given(AMOUNTS, ERRORS, ERRORS)
def test_common_errors_of_two_times_cancel_in_their_ratio(
    amounts: dict[tuple[str, str], float], random: float, common: float
) -> None:
    term = ErrorTerm("calibrated", random, common)
    here, elsewhere = composition(amounts, term, WHOLE), composition(amounts, term, WHOLE, "there")
    low, high = here.ratio(here, 1.5)
    assert math.log(high / 1.5) == pytest.approx(QUANTILE * math.sqrt(2) * WHOLE.random)
    assert low * high == pytest.approx(1.5**2)
    apart = math.log(here.ratio(elsewhere, 1.0)[1]) / QUANTILE
    assert apart == pytest.approx(math.hypot(here.sigma, elsewhere.sigma))


@given(AMOUNTS, AMOUNTS, ERRORS, ERRORS)
def test_a_ratio_is_never_less_sure_than_of_two_devices_and_the_same_both_ways(
    a: dict[tuple[str, str], float], b: dict[tuple[str, str], float], random: float, common: float
) -> None:
    term = ErrorTerm("modelled", random, common)
    first, other = composition(a, term, WHOLE), composition(b, term, WHOLE)
    low, high = first.ratio(other, 2.0)
    assert math.log(high / low) / 2 / QUANTILE <= math.hypot(first.sigma, other.sigma) + 1e-9
    assert other.ratio(first, 0.5) == pytest.approx((1 / high, 1 / low))
    read = Composition.read(json.loads(json.dumps(first.as_dict())))
    assert read.band(10**9) == first.band(10**9)
    assert read.ratio(other, 2.0) == (low, high)
    assert sum(first.bases.values()) == pytest.approx(1, abs=1e-4)
    assert set(first.bases) <= set(BASES)


def test_bands_hold_the_stated_share_of_true_values() -> None:
    """Draw errors from the terms; both the shares of the parts and the errors are large."""
    amounts = {("gemm", "x"): 3, ("gemm", "y"): 2, ("all_reduce", "z"): 5}
    terms = {"gemm": ErrorTerm("calibrated", 0.1, 0.05), "all_reduce": ErrorTerm("modelled", 0.25, 0.25)}
    result = Composition.of("", WHOLE, terms, amounts)
    assert result is not None
    draw = np.random.default_rng(1).standard_normal
    count = 20_000
    common = {name: term.common * draw(count) for name, term in terms.items()}
    true = np.zeros(count)
    for (name, _), amount in amounts.items():
        true += amount / 10 * np.exp(terms[name].random * draw(count) + common[name])
    true *= 1e9 * np.exp(WHOLE.random * draw(count) + WHOLE.common * draw(count))
    low, high = result.band(10**9)
    assert np.mean((true >= low) & (true <= high)) == pytest.approx(LEVEL, abs=0.02)
