"""The end of an instant: its last events settle it, and an instant without progress is an error."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import network, simulate

from et_sim.basics.errors import StallError
from et_sim.engine import driver
from et_sim.engine.entry import PAUSED
from et_sim.engine.guards import EVENTS_FOR_NOTHING, Standstill
from et_sim.engine.state import kinds
from et_sim.engine.state.records import CLOCK, EVENT, SLOT
from et_sim.trace import TraceBuilder

NS = 1_234_567


def calendar(*due: int) -> Any:
    """Return a run in which events of these kinds are due now, and are handled after all others."""
    clock, events, slots = np.zeros(1, CLOCK), np.zeros(max(len(due), 1), EVENT), np.zeros(1, SLOT)
    clock["now"], slots["head"] = NS, -1
    clock["head"] = 0 if due else -1
    for row, kind in enumerate(due):
        events["kind"][row], events["next"][row] = kind, row + 1 if row + 1 < len(due) else -1
    return SimpleNamespace(clock=clock, events=events, slots=slots)


def test_an_instant_without_result_is_an_error_with_its_time_and_events() -> None:
    run, watch = calendar(kinds.POOL_SHARE, kinds.NETWORK), Standstill()
    watch.look(run, EVENTS_FOR_NOTHING, 0)
    watch.look(run, EVENTS_FOR_NOTHING, 0)
    with pytest.raises(StallError) as caught:
        watch.look(run, 1000, 0)
    text = str(caught.value)
    assert text.startswith("at 1,234,567 ns: simulated time stands still")
    assert "1 of rates of a memory pool's transfers" in text
    assert "the network model's own (kind 0)" in text
    assert caught.value.report == text


@pytest.mark.parametrize("column", ["now", "delivered", "completed", "to_start"])
def test_an_instant_with_results_may_have_any_length(column: str) -> None:
    run, watch = calendar(), Standstill()
    for _ in range(5):
        run.clock[column] += 1
        watch.look(run, 10 * EVENTS_FOR_NOTHING, 0)


def test_the_driver_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "simulate", SimpleNamespace(lasting=lambda _: lambda *_: PAUSED))
    build = TraceBuilder()
    build.compute("kernel", nanos=5)
    with pytest.raises(StallError, match=r"at 0 ns: simulated time stands still: .* puts nothing on"):
        simulate([build], network(["Ring"], [1]))


@given(seed=st.integers(0, 2**32))
def test_looks_follow_the_time_that_events_take(seed: int) -> None:
    """Check that, after any change of pace, a look soon takes the intended time or the fewest events."""
    chance, events = Random(seed), driver.FEWEST_EVENTS
    for pace in (10 ** chance.uniform(-8, -3) for _ in range(4)):
        for _ in range(24):
            taken = events * pace
            events = driver._events_until_next_look(events, taken)
        aim = driver.SECONDS_BETWEEN_REPORTS
        assert events == driver.FEWEST_EVENTS or aim / 2 < events * pace < 1.01 * aim
        slower = driver._events_until_next_look(events, events * pace * 100)
        assert slower <= max(driver.FEWEST_EVENTS, events // 99)
