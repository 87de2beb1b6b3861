"""Studies: percentiles with intervals, blame that adds up, and steps that do not depend on their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from machines import ring
from sampled_cases import VARIED, pipeline

from et_sim.basics.estimates import mean_in_range, mean_of, percentile_of, ranks_around, student_t
from et_sim.execution import execute
from et_sim.run.options import RunOptions
from et_sim.run.simulation import prepare
from et_sim.samples.study import Study, causes_of, sampler

NANOS = [40_000, 50_000, 45_000, 42_000]
SLOW = {
    "kind": "kernel",
    "level": "step",
    "family": "mixture",
    "parts": [{"weight": 0.9}, {"weight": 0.1, "factor": 3.0}],
}


def options(*entries: dict[str, Any], samples: int | None = None, seed: int | None = None) -> RunOptions:
    system = {"variation": [*entries]}
    return RunOptions(system=system, network=ring(len(NANOS)), samples=samples, seed=seed)


def made(*entries: dict[str, Any], samples: int = 40, seed: int = 7) -> Study:
    found = execute(pipeline(NANOS, 6), options(*entries, samples=samples, seed=seed)).samples
    assert isinstance(found, Study)
    return found


def test_every_view_of_blame_adds_up_to_the_difference() -> None:
    blame = made(SLOW, VARIED).summary()["blame"]
    assert (blame["slowest"], blame["rest"]) == (4, 36)
    assert blame["difference_ns"] > 0
    for view in ("by_kind", "by_rank", "by_stage", "by_link"):
        total = sum(part["ns"] for part in blame[view])
        assert total == pytest.approx(blame["difference_ns"], abs=0.01), view


def test_the_slowest_samples_are_blamed_on_the_rank_that_was_slow() -> None:
    found = made(SLOW, samples=60)
    blame = found.summary()["blame"]
    assert blame["by_kind"][0]["name"] == "kernel"
    assert blame["by_kind"][0]["ns"] > 0.5 * blame["difference_ns"]
    ranks = [part["name"] for part in blame["by_rank"] if part["name"].startswith("rank ")]
    slow = [max(s.path.varied_ns, key=s.path.varied_ns.__getitem__)[0] for s in found.samples]
    times = [sample.path.step_ns for sample in found.samples]
    assert ranks[0] == f"rank {slow[int(np.argmax(times))]}"


def test_the_times_on_a_path_add_up_to_the_step() -> None:
    for sample in made(VARIED, samples=5).samples:
        path = sample.path
        parts = (
            sum(path.varied_ns.values()) + sum(path.exchanges_ns.values()) + path.nominal_ns + path.other_ns
        )
        assert parts == path.step_ns
        assert path.other_ns == 0


def test_a_step_does_not_depend_on_the_steps_before_it() -> None:
    inputs = (pipeline(NANOS, 6), options(VARIED, SLOW, seed=7))
    in_order = [sampler(inputs)(number) for number in range(4)]
    steps = sampler(inputs)
    assert [steps(number) for number in (3, 2, 1, 0)] == in_order[::-1]


def test_the_same_seed_gives_the_same_samples_on_any_number_of_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from et_sim.run import workers

    alone = made(VARIED, samples=6)
    monkeypatch.setattr(workers, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(workers, "processors", lambda: 3)
    several = made(VARIED, samples=6)
    assert several.samples == alone.samples
    assert made(VARIED, samples=6, seed=8).samples != alone.samples


def test_more_samples_begin_with_the_same_ones() -> None:
    assert made(VARIED, samples=6).samples[:3] == made(VARIED, samples=3).samples


def test_a_step_without_a_cause_is_that_of_the_other_causes() -> None:
    both, one = made(VARIED, SLOW, samples=5), made(VARIED, samples=5)
    assert [sample.without_ns[1] for sample in both.samples] == [s.path.step_ns for s in one.samples]
    summary = one.summary()
    assert (summary["without"][0]["mean"], summary["without"][0]["p99"]) == (one.nominal_ns, one.nominal_ns)


def test_causes_of_one_kind_and_level_are_numbered() -> None:
    entries = prepare(pipeline(NANOS, 2), options(VARIED, SLOW, VARIED)).machine.system.variation
    assert causes_of(entries) == {
        "kernel, by event (1)": (0,),
        "kernel, by step": (1,),
        "kernel, by event (2)": (2,),
    }


def test_entries_of_one_cause_are_left_out_together() -> None:
    passes = [
        {**VARIED, "spread": 0.4, "cause": "lengths", "operations": [f"pass {number}"]} for number in range(6)
    ]
    found = made(*passes, {**VARIED, "level": "step"}, samples=4)
    assert found.causes == ("lengths", "kernel, by step")
    without = made({**VARIED, "level": "step"}, samples=4)
    assert [sample.without_ns[0] for sample in found.samples] == without.step_ns.tolist()


def test_intervals_of_percentiles_are_those_of_textbooks() -> None:
    assert ranks_around(100, 0.5) == (40, 61)
    assert ranks_around(100, 0.9) == (84, 96)
    assert ranks_around(100, 0.99) == (97, None)
    assert ranks_around(10, 0.5) == (2, 9)
    assert ranks_around(2, 0.5) == (None, None)
    assert percentile_of(range(101), 90).value_ns == 90


def test_the_interval_of_the_mean_is_students() -> None:
    assert student_t(1) == pytest.approx(12.7062, rel=1e-5)
    assert student_t(2) == pytest.approx(4.30265, rel=1e-5)
    assert student_t(10) == pytest.approx(2.228139, rel=1e-5)
    found = mean_of([1.0, 2.0, 3.0])
    assert (found.value_ns, found.low_ns) == (2.0, pytest.approx(2 - 4.30265 / 3**0.5, rel=1e-5))


def interval_of_share(values: Any) -> tuple[float, float, float]:
    """Return the mean of shares and its interval, which exists."""
    mean, low, high = mean_in_range(values, 1.0)
    assert low is not None
    assert high is not None
    return mean, low, high


def test_the_interval_of_a_share_stays_between_nothing_and_all() -> None:
    for values in ([0.0, 0.5], [0.0, 0.0, 0.0, 0.9], [1.0, 0.2], [0.999, 1.0]):
        mean, low, high = interval_of_share(values)
        assert 0 < low < mean < high < 1
        other, lowest, highest = interval_of_share([1 - value for value in values])
        assert (1 - other, 1 - highest, 1 - lowest) == pytest.approx((mean, low, high))
    assert mean_in_range([0.25, 0.25], 1.0) == (0.25, 0.25, 0.25)
    assert mean_in_range([0.25], 1.0) == (0.25, None, None)
    near = mean_of([0.5, 0.501, 0.502])
    expected = (0.501, near.low_ns, near.high_ns)
    assert interval_of_share([0.5, 0.501, 0.502]) == pytest.approx(expected, rel=1e-4)


def test_the_interval_of_a_time_stays_above_nothing() -> None:
    mean, low, high = mean_in_range([0.0, 0.0, 8.0])
    assert low is not None
    assert high is not None
    assert 0 < low < mean < high
    assert mean**2 == pytest.approx(low * high)


@pytest.mark.deep
def test_intervals_of_shares_near_the_end_of_their_range_hold_the_truth() -> None:
    draw = np.random.default_rng(6)
    held = 0
    for values in draw.beta(0.4, 7.6, (2000, 20)):  # a mean of 0.05
        _, low, high = interval_of_share(values)
        held += low <= 0.05 <= high
    assert held > 0.92 * 2000


@pytest.mark.deep
def test_intervals_hold_the_truth_in_95_of_100_studies() -> None:
    draw = np.random.default_rng(5)
    held = {"mean": 0, "p50": 0, "p90": 0}
    for _ in range(1000):
        samples = draw.exponential(1.0, 100)
        for name, truth, found in (
            ("mean", 1.0, mean_of(samples)),
            ("p50", np.log(2), percentile_of(samples, 50)),
            ("p90", np.log(10), percentile_of(samples, 90)),
        ):
            assert found.low_ns is not None
            assert found.high_ns is not None
            held[name] += found.low_ns <= truth <= found.high_ns
    assert held["mean"] > 920
    assert min(held["p50"], held["p90"]) > 940
