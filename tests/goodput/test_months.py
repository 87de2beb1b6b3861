"""Months of jobs: closed forms of renewal theory, a second simulator, and cases by hand."""

from __future__ import annotations

import random
from math import inf
from typing import Any

import closed_forms
import numpy as np
import pytest
from msgspec.structs import replace
from reference import kept_and_lost

from et_sim.goodput import formulas
from et_sim.goodput.arrivals import Arrivals, arrivals, failure_times
from et_sim.goodput.months import Months, follow, follow_each
from et_sim.goodput.setting import Cycle, Loss, Part, Recovery, Setting

DAY = 86400.0


def events_of(*months: list[tuple[float, int, float]]) -> Arrivals:
    """Return events by time, part and begin of a corruption (-1: none)."""
    longest = max(map(len, months)) + 1
    rows = [sorted(month) + [(inf, 0, -1.0)] * (longest - len(month)) for month in months]
    columns = zip(*(zip(*row, strict=True) for row in rows), strict=True)
    time, part, since = (np.array(list(column)) for column in columns)
    return Arrivals(time.astype(np.float64), part.astype(np.int32), since.astype(np.float64))


def losses(months: Months, row: int = 0) -> dict[Loss, float]:
    """Return the lost seconds of a month by cause, without causes that lost none."""
    return {cause: float(months.lost[row, cause]) for cause in Loss if abs(months.lost[row, cause]) > 1e-9}


def test_the_closed_forms_give_the_published_figures() -> None:
    rate = 1 / (3.09 * 3600)
    assert formulas.best_interval(rate, 30) / 60 == pytest.approx(13.6, abs=0.05)
    assert formulas.least_loss(rate, 30) == pytest.approx(0.073, abs=0.0005)
    assert closed_forms.enough_of(130, 144, 0.9347) == pytest.approx(0.95, abs=0.0005)
    assert formulas.spares_for(130, 0.9347, 0.949, 100) == 14
    assert formulas.spares_for(130, 0.9347, 0.96, 100) == 15


@pytest.mark.parametrize("units", [1, 7, 150])
def test_the_least_spares_are_those_of_the_binomial_law(units: int) -> None:
    spares = formulas.spares_for(units, 0.9, 0.99, 1000)
    assert spares is not None
    assert closed_forms.enough_of(units, units + spares, 0.9) >= 0.99
    assert spares == 0 or closed_forms.enough_of(units, units + spares - 1, 0.9) < 0.99


def test_the_goodput_of_the_closed_form_is_best_near_the_first_order_interval() -> None:
    rate, checkpoint = 1 / (3.09 * 3600), 30.0
    best = formulas.best_interval(rate, checkpoint)
    here = closed_forms.goodput(rate, best, checkpoint, 0)
    assert here > closed_forms.goodput(rate, best / 1.3, checkpoint, 0)
    assert here > closed_forms.goodput(rate, best * 1.3, checkpoint, 0)
    assert 1 - here == pytest.approx(formulas.least_loss(rate, checkpoint), rel=0.05)


def test_a_job_without_failures_and_checkpoints_makes_steps_at_the_rate_of_the_step() -> None:
    setting = Setting(6.5, (), Cycle(100))
    months = follow(setting, arrivals(setting, np.arange(3), 54 * DAY, 0), 54 * DAY)
    assert months.steps.tolist() == [54 * DAY / 6.5] * 3
    assert (months.kept == months.clock).all()
    assert not months.lost.any()


def test_a_job_with_a_checkpoint_of_no_failure_loses_its_stalls_alone() -> None:
    setting = Setting(1.0, (), Cycle(90, storage_stall=10.0))
    months = follow(setting, arrivals(setting, np.arange(1), 1000.0, 0), 1000.0)
    assert months.steps.tolist() == [900.0]
    assert losses(months) == {Loss.CHECKPOINT: 100.0}


def test_a_failure_loses_the_steps_since_the_last_checkpoint_and_the_restart() -> None:
    part = Part("gpu", 1.0, nodes=1, detection=5.0, repair=60.0)
    recovery = Recovery(drain=10.0, schedule=15.0, start=2.0, load=3.0, warm_up=4.0)
    setting = Setting(1.0, (part,), Cycle(90, storage_stall=10.0), recovery)
    months = follow(setting, events_of([(250.0, 0, -1.0)]), 1000.0)
    expected = {
        Loss.STEPS: 50.0,
        Loss.DETECTION: 5.0,
        Loss.DRAIN: 10.0,
        Loss.SCHEDULE: 15.0,
        Loss.REPAIR: 30.0,
        Loss.START: 2.0,
        Loss.LOAD: 3.0,
        Loss.WARM_UP: 4.0,
        Loss.CHECKPOINT: 20.0 + 60.0,
    }
    assert losses(months) == expected
    assert months.steps.tolist() == [1000.0 - sum(expected.values())]
    assert months.lost_by_part.tolist() == [[119.0, 0.0]]


def test_a_failure_within_a_restart_begins_it_anew() -> None:
    setting = Setting(1.0, (Part("gpu", 1.0, detection=100.0),), Cycle(50))
    months = follow(setting, events_of([(200.0, 0, -1.0), (240.0, 0, -1.0)]), 1000.0)
    assert losses(months) == {Loss.DETECTION: 140.0}
    assert months.steps.tolist() == [860.0]


def test_a_failure_within_a_longer_search_does_not_end_it() -> None:
    parts = (Part("by hand", 1.0, detection=500.0), Part("software", 1.0, detection=10.0))
    setting = Setting(1.0, parts, Cycle(50), Recovery(drain=100.0, start=20.0))
    months = follow(setting, events_of([(200.0, 0, -1.0), (240.0, 1, -1.0), (750.0, 1, -1.0)]), 2000.0)
    assert losses(months) == {Loss.DETECTION: 510.0, Loss.DRAIN: 50.0 + 100.0, Loss.START: 20.0}
    assert months.lost_by_part.tolist() == [[550.0, 130.0, 0.0]]
    assert months.events.tolist() == [[1, 2, 0]]


def test_maintenance_within_a_search_does_not_end_it() -> None:
    setting = Setting(1.0, (Part("gpu", 1.0, detection=500.0),), Cycle(50), every=DAY, maintenance=30.0)
    months = follow(setting, events_of([(200.0, 0, -1.0), (300.0, 1, -1.0)]), 2000.0)
    assert losses(months) == {Loss.DETECTION: 500.0, Loss.MAINTENANCE: 30.0}


def test_an_asynchronous_checkpoint_counts_when_it_is_written() -> None:
    setting = Setting(1.0, (Part("gpu", 1.0),), Cycle(100, lag=30.0))
    months = follow(setting, events_of([(229.0, 0, -1.0)], [(230.0, 0, -1.0)]), 1000.0)
    assert losses(months, 0) == {Loss.STEPS: 129.0}
    assert losses(months, 1) == {Loss.STEPS: 30.0}


def test_copies_in_memory_survive_a_node_and_not_a_rack() -> None:
    parts = (Part("gpu", 1.0, nodes=1), Part("rack", 1.0, nodes=4))
    cycle = Cycle(10, copies=10, survives=1)
    setting = Setting(1.0, parts, cycle, Recovery(load=7.0, memory_load=2.0))
    months = follow(setting, events_of([(159.0, 0, -1.0)], [(159.0, 1, -1.0)]), 1000.0)
    assert losses(months, 0) == {Loss.STEPS: 9.0, Loss.LOAD: 2.0}
    assert losses(months, 1) == {Loss.STEPS: 59.0, Loss.LOAD: 7.0}


def test_a_rack_after_a_node_goes_back_to_the_checkpoint_in_storage() -> None:
    parts = (Part("gpu", 1.0, nodes=1), Part("rack", 1.0, nodes=4))
    setting = Setting(1.0, parts, Cycle(10, copies=10, survives=1))
    months = follow(setting, events_of([(159.0, 0, -1.0), (164.0, 1, -1.0)]), 1000.0)
    assert losses(months) == {Loss.STEPS: 9.0 + 55.0}
    assert months.steps.tolist() == [936.0]


def test_a_spare_saves_the_repair_and_a_second_failure_waits_for_the_first_node() -> None:
    part = Part("gpu", 1.0, nodes=1, repair=500.0)
    events = events_of([(100.0, 0, -1.0), (300.0, 0, -1.0)])
    bare = Setting(1.0, (part,), Cycle(100))
    assert losses(follow(bare, events, 2000.0)) == {Loss.REPAIR: 200.0 + 500.0}
    assert losses(follow(replace(bare, hot=2), events, 2000.0)) == {}
    assert losses(follow(replace(bare, hot=1), events, 2000.0)) == {Loss.REPAIR: 300.0}
    cold = replace(bare, cold=2, recovery=Recovery(cold=40.0))
    assert losses(follow(cold, events, 2000.0)) == {Loss.REPAIR: 80.0, Loss.STEPS: 60.0}


def test_an_elastic_job_goes_on_with_fewer_replicas_until_the_node_returns() -> None:
    part = Part("gpu", 1.0, nodes=1, repair=500.0)
    recovery = Recovery(start=10.0, write=5.0)
    setting = Setting(1.0, (part,), Cycle(10), recovery, fewer=((1.0, 0.75),))
    months = follow(setting, events_of([(100.0, 0, -1.0)]), 1000.0)
    assert months.steps.tolist() == [100 + 0.75 * 490 + 385]
    expected = {Loss.START: 20.0, Loss.CHECKPOINT: 5.0, Loss.SLOWER: 0.25 * 490}
    assert losses(months) == expected
    assert months.events.tolist() == [[1, 0]]


def test_the_course_of_a_month_has_every_restart_and_no_gap_where_steps_become_slower() -> None:
    part = Part("thermal", 1.0, nodes=1, detection=200.0, slow_step=2.0)
    recovery = Recovery(start=7.0, write=3.0)
    setting = Setting(1.0, (part,), Cycle(100, storage_stall=10.0), recovery, hot=1)
    course = follow(setting, events_of([(160.0, 0, -1.0)]), 1000.0, record=True).course
    assert [begin for begin, _, _ in course] == [0.0, *(end for _, end, _ in course[:-1])]
    assert course[-1][1:] == (1000.0, -1)
    restarts = [(begin, end) for begin, end, cause in course if cause == Loss.START]
    assert restarts == [(363.0, 370.0)]  # after a checkpoint of 3 s when the slow node is found


def test_a_second_node_stops_a_job_that_can_do_without_one() -> None:
    part = Part("gpu", 1.0, nodes=1, repair=500.0)
    setting = Setting(1.0, (part,), Cycle(10), fewer=((1.0, 0.5),))
    months = follow(setting, events_of([(100.0, 0, -1.0), (200.0, 0, -1.0)]), 2000.0)
    assert losses(months) == {Loss.REPAIR: 400.0, Loss.SLOWER: 0.5 * 100 + 0.5 * 100}


def test_a_corruption_undoes_all_steps_since_the_checkpoint_before_it() -> None:
    part = Part("sdc", 1.0, detection=300.0, corrupts=True)
    setting = Setting(1.0, (part,), Cycle(100), Recovery(drain=20.0))
    events = events_of([(250.0, 0, -1.0), (555.0, 0, 250.0)])
    assert losses(follow(setting, events, 1000.0)) == {Loss.CORRUPTION: 355.0, Loss.DRAIN: 20.0}


def test_a_failure_that_goes_back_before_a_corruption_undoes_it() -> None:
    parts = (Part("sdc", 1.0, corrupts=True), Part("gpu", 1.0))
    setting = Setting(1.0, parts, Cycle(100))
    events = events_of([(250.0, 0, -1.0), (260.0, 1, -1.0), (555.0, 0, 250.0)])
    assert losses(follow(setting, events, 1000.0)) == {Loss.STEPS: 60.0}


def test_a_slow_node_slows_steps_within_a_cycle_until_it_is_replaced() -> None:
    part = Part("thermal", 1.0, nodes=1, detection=200.0, slow_step=2.0)
    setting = Setting(1.0, (part,), Cycle(100, storage_stall=10.0), Recovery(start=7.0, write=3.0), hot=1)
    months = follow(setting, events_of([(160.0, 0, -1.0)]), 1000.0)
    # 150 steps by 160 s; 50 more by 260 s, a checkpoint, 45 steps by 360 s; then a checkpoint of 3 s.
    assert months.lost[0, Loss.START] == 7.0
    assert months.lost[0, Loss.SLOWER] == pytest.approx(50 + 45)
    assert months.steps[0] == pytest.approx(150 + 50 + 45 + (630 - 50))
    assert months.lost[0, Loss.CHECKPOINT] == pytest.approx(10 + 10 + 3 + 50)


@pytest.mark.parametrize("way", [-inf, inf])
def test_the_last_digits_of_logarithms_and_exponentials_change_no_event(
    monkeypatch: pytest.MonkeyPatch, way: float
) -> None:
    parts = Part("node", 1e-4), Part("wrong", 1e-5, corrupts=True, detection=500.0)
    setting = Setting(10.0, parts, Cycle(1), every=3e4, early_factor=3.0, early_decay=1e4)
    exact = arrivals(setting, np.arange(20), 1e5, 7)
    for name in ("log1p", "exp"):
        of = getattr(np, name)
        monkeypatch.setattr(np, name, lambda value, of=of: np.nextafter(of(value), way))
    found = arrivals(setting, np.arange(20), 1e5, 7)
    for name in ("time", "part", "since"):
        np.testing.assert_array_equal(getattr(found, name), getattr(exact, name))


def test_planned_maintenance_loses_no_steps() -> None:
    setting = Setting(1.0, (), Cycle(100), Recovery(write=4.0, start=6.0), every=300.0, maintenance=50.0)
    months = follow(setting, arrivals(setting, np.arange(1), 1000.0, 0), 1000.0)
    expected = {Loss.CHECKPOINT: 12.0, Loss.START: 18.0, Loss.MAINTENANCE: 150.0}
    assert losses(months) == expected


def _random_setting(draw: random.Random) -> Setting:
    parts = tuple(
        Part(
            f"part {number}",
            draw.uniform(0.2, 3) / DAY,
            nodes=draw.choice((0, 1, 1, 4)),
            detection=draw.uniform(1, 2000),
            repair=draw.uniform(1, 30000),
            slow_step=30.0 * (kind == "slows"),
            corrupts=kind == "corrupts",
        )
        for number, kind in enumerate(draw.sample(("", "", "slows", "corrupts"), 3))
    )
    cycle = Cycle(
        draw.randint(1, 200),
        draw.randint(1, 8),
        draw.choice((0.0, 0.7)),
        draw.uniform(0, 60),
        draw.choice((0.0, draw.uniform(0, 100))),
        draw.choice((-1, 1)),
    )
    recovery = Recovery(*(draw.uniform(0, 500) for _ in range(8)))
    return Setting(
        draw.uniform(0.5, 20),
        parts,
        cycle,
        recovery,
        fewer=draw.choice(((), ((7.0, 0.9), (8.0, 0.8)))),
        early_factor=draw.choice((1.0, 4.0)),
        early_decay=2 * DAY,
        hot=draw.choice((0, 2)),
        cold=draw.choice((0, 3)),
        every=draw.choice((0.0, DAY)),
        maintenance=draw.uniform(0, 4000),
    )


def _check_sums(seed: int, months: int) -> None:
    setting = _random_setting(random.Random(seed))
    numbers = np.arange(months)
    result = follow(setting, arrivals(setting, numbers, 20 * DAY, seed), 20 * DAY)
    whole = result.steps * setting.step + result.lost.sum(axis=1)
    assert np.abs(whole - result.clock).max() < 1e-6
    positive = np.delete(result.lost, Loss.SLOWER, axis=1)
    assert positive.min() > -1e-6
    assert (result.steps >= 0).all()


@pytest.mark.parametrize("seed", range(12))
def test_each_second_of_a_month_has_one_cause(seed: int) -> None:
    _check_sums(seed, 5)


@pytest.mark.deep
@pytest.mark.parametrize("block", range(2))
def test_each_second_of_many_months_has_one_cause(block: int) -> None:
    for seed in range(100 * (block + 1), 100 * (block + 1) + 7):
        _check_sums(seed, 10)


def _check_follow_each(seed: int) -> None:
    draw = random.Random(seed)
    first = _random_setting(draw)
    others = [_random_setting(draw) for _ in range(3)]
    settings = [
        first,
        *(replace(first, cycle=o.cycle, recovery=o.recovery, hot=o.hot, cold=o.cold) for o in others),
    ]
    events = arrivals(first, np.arange(3), 8 * DAY, seed)
    together = follow_each(settings, events, 8 * DAY)
    for number, setting in enumerate(settings):
        alone, rows = follow(setting, events, 8 * DAY), slice(3 * number, 3 * number + 3)
        assert (together.steps[rows] == alone.steps).all()
        assert (together.lost[rows] == alone.lost).all()
        assert (together.events[rows] == alone.events).all()


@pytest.mark.parametrize("seed", range(2))
def test_months_of_several_settings_at_once_are_those_of_each(seed: int) -> None:
    _check_follow_each(seed)


@pytest.mark.deep
def test_months_of_many_settings_at_once_are_those_of_each() -> None:
    for seed in range(100, 104):
        _check_follow_each(seed)


def _check_second_simulator(seed: int) -> None:
    draw = random.Random(seed)
    setting = replace(_random_setting(draw), fewer=(), hot=0, cold=0, every=0.0)
    parts = tuple(replace(part, slow_step=0.0, corrupts=False) for part in setting.parts)
    setting = replace(setting, parts=parts)
    events = arrivals(setting, np.arange(4), 20 * DAY, seed)
    result = follow(setting, events, 20 * DAY)
    for row in range(4):
        failures = list(zip(events.time[row].tolist(), events.part[row].tolist(), strict=True))
        kept, lost = kept_and_lost(setting, failures, 20 * DAY)
        assert result.steps[row] == pytest.approx(kept, rel=1e-9)
        assert result.lost[row, Loss.STEPS] == pytest.approx(lost, rel=1e-9, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_a_second_simulator_gives_the_same_months(seed: int) -> None:
    _check_second_simulator(seed)


@pytest.mark.deep
def test_a_second_simulator_gives_the_same_months_of_many_jobs() -> None:
    for seed in range(10, 35):
        _check_second_simulator(seed)


def test_more_months_a_longer_time_and_other_parts_change_no_draw() -> None:
    part = Part("gpu", 5 / DAY)
    setting = Setting(1.0, (part,), Cycle(10))
    few = failure_times(setting, part, np.arange(3), 5 * DAY, 7)
    many = failure_times(setting, part, np.arange(50), 90 * DAY, 7)
    assert (many[:3, : few.shape[1]] == few).all()
    both = arrivals(replace(setting, parts=(part, Part("nic", 1 / DAY))), np.arange(3), 5 * DAY, 7)
    alone = arrivals(setting, np.arange(3), 5 * DAY, 7)
    for row in range(3):
        times = both.time[row][(both.part[row] == 0) & np.isfinite(both.time[row])]
        assert times.tolist() == alone.time[row][np.isfinite(alone.time[row])].tolist()


def test_infant_mortality_adds_its_excess_to_the_failures() -> None:
    part = Part("gpu", 4 / DAY)
    setting = Setting(1.0, (part,), Cycle(10), early_factor=3.0, early_decay=2 * DAY)
    times = failure_times(setting, part, np.arange(400), 20 * DAY, 3)
    counts = (times <= 20 * DAY).sum(axis=1)
    expected = 4 * (20 + 2 * 2 * (1 - np.exp(-10)))
    assert abs(counts.mean() - expected) < 3 * (expected / 400) ** 0.5


def _deviation(seed: int, months: int, segments: int) -> float:
    """Return by how many standard errors the time of some segments differs from the closed form."""
    draw = random.Random(seed)
    rate = 1 / draw.uniform(2000, 40000)
    steps, step, checkpoint = draw.randint(20, 400), draw.uniform(0.5, 10), draw.uniform(0, 200)
    restart = draw.uniform(0, 1500)
    setting = Setting(
        step, (Part("part", rate),), Cycle(steps, storage_stall=checkpoint), Recovery(schedule=restart)
    )
    expected = segments * closed_forms.segment_seconds(rate, steps * step, checkpoint, restart)
    horizon = 6 * expected + 60 / rate
    events = arrivals(setting, np.arange(months), horizon, seed)
    result = follow(setting, events, horizon, segments * steps)
    assert result.is_finished.all()
    error: Any = result.clock.std(ddof=1) / months**0.5
    return float((result.clock.mean() - expected) / error)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_job_takes_the_time_of_renewal_theory(seed: int) -> None:
    assert abs(_deviation(seed, 500, 20)) < 4


@pytest.mark.deep
def test_200_jobs_deviate_from_renewal_theory_as_chance_does() -> None:
    deviations = np.array([_deviation(seed, 400, 10) for seed in range(1000, 1200)])
    assert (np.abs(deviations) > 3).sum() <= 4
    assert np.abs(deviations).max() <= 5
    assert abs(deviations.mean()) <= 0.21
