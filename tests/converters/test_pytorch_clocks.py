"""Clocks that are shifted and drift by known amounts are found again within the stated error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from converters.pytorch.clocks import Clocks, fit_clocks
from converters.pytorch.meetings import Meetings, Series, settle
from et_sim.trace import CollectiveKind

SECOND = 1_000_000_000
EPOCH = 1_700_000_000 * SECOND
ALL_REDUCE = int(CollectiveKind.ALL_REDUCE)


def recorded(
    seed: int, ranks: int, drift: float, blur_ns: float, moments: int = 60
) -> tuple[list[tuple[list[int], Any]], Any, Any]:
    """Return ends of a job of 10 s by clocks with random offsets and drifts, and these."""
    chance = np.random.default_rng(seed)
    offset = chance.uniform(-5, 5, ranks) * SECOND
    drifts = chance.uniform(-drift, drift, ranks)
    groups = [list(range(ranks)), *([at, at + 1] for at in range(0, ranks - 1, 2))]
    ends = []
    for members in groups:
        true = np.sort(chance.uniform(0, 10, moments)) * SECOND
        late = chance.normal(0, blur_ns, (len(members), moments))
        local = true + late + offset[members][:, None] + drifts[members][:, None] * true
        ends.append((members, EPOCH + np.rint(local).astype(np.int64)))
    return ends, offset, drifts


def errors_of(clocks: Clocks, offset: Any, drifts: Any, true: float) -> Any:
    """Return the error of each clock against the mean clock at a true time, by the stated error."""
    local = EPOCH + np.rint(true + offset + drifts * true).astype(np.int64)
    ahead = offset + drifts * true
    found = clocks.ahead_ns(local)
    # both are known up to a common clock
    off = (found - found.mean()) - (ahead - ahead.mean())
    return np.abs(off) / clocks.error_ns(local)


def fitted(ends: list[tuple[list[int], Any]], offset: Any) -> Clocks:
    """Return the clocks, from corrections that are 1 ms off."""
    rough = -(offset - offset.mean()) + 1_000_000 * np.cos(np.arange(len(offset)))
    clocks = fit_clocks(ends, np.rint(rough).astype(np.int64))
    assert clocks is not None
    return clocks


def test_known_offsets_and_drifts_lie_within_the_stated_error() -> None:
    ratios = []
    for seed in range(40):
        ends, offset, drifts = recorded(seed, ranks=4, drift=100e-6, blur_ns=2000)
        clocks = fitted(ends, offset)
        assert clocks.drifts
        ratios += [errors_of(clocks, offset, drifts, at * SECOND) for at in (0, 5, 10)]
    inside = np.concatenate(ratios) <= 1
    assert 0.9 <= inside.mean() <= 0.995  # of 480 comparisons, that belong to 95 %
    assert np.concatenate(ratios).max() < 2.5


@given(
    seed=st.integers(0, 10**6),
    ranks=st.integers(2, 9),
    drift=st.sampled_from([0.0, 1e-6, 500e-6]),
    blur=st.sampled_from([10.0, 1000.0, 100_000.0]),
)
def test_no_clock_is_far_outside_its_error(seed: int, ranks: int, drift: float, blur: float) -> None:
    ends, offset, drifts = recorded(seed, ranks, drift, blur)
    clocks = fitted(ends, offset)
    assert max(errors_of(clocks, offset, drifts, at * SECOND).max() for at in (0, 10)) < 3.5


def test_moments_that_lie_far_off_do_not_count() -> None:
    ends, offset, drifts = recorded(3, ranks=4, drift=50e-6, blur_ns=1000)
    ends[0][1][2, ::10] += 3 * SECOND
    clocks = fitted(ends, offset)
    assert errors_of(clocks, offset, drifts, 5 * SECOND).max() < 3
    assert clocks.error_ns(np.full(4, EPOCH)).max() < 2000


@pytest.mark.parametrize("moments", [1, 2])
def test_few_moments_show_no_drift(moments: int) -> None:
    ends, offset, _ = recorded(1, ranks=2, drift=0, blur_ns=10, moments=moments)
    assert fit_clocks(ends, np.rint(-offset).astype(np.int64)) is None


@pytest.mark.parametrize("shift", [0.0, 1.0], ids=["drift alone", "offset and drift"])
def test_starts_are_set_by_clocks_that_drift(shift: float) -> None:
    ends, offset, drifts = recorded(5, ranks=4, drift=100e-6, blur_ns=1000)
    unshifted = np.rint((1 - shift) * offset).astype(np.int64)
    ends = [(members, values - unshifted[members][:, None]) for members, values in ends]
    offset = offset - unshifted
    begins = np.array([0, 30, 12, 7]) * 1_000_000
    meetings = []
    for rank in range(4):
        own = {}
        for members, values in ends:
            if rank in members:
                of = values[members.index(rank)]
                columns = (np.full(len(of), ALL_REDUCE), np.arange(len(of)), of - 1000, of, np.ones(len(of)))
                own[tuple(members)] = Series(*(np.asarray(column, np.int64) for column in columns))
        local = EPOCH + round(begins[rank] + offset[rank] + drifts[rank] * begins[rank])
        meetings.append(Meetings(local, local + 11 * SECOND, own))
    settled = settle(meetings)
    assert np.allclose(settled.start_ns, begins - begins.min(), atol=2000)
    assert "ppm; their error is" in settled.starts_text
    assert "(95 %)" in settled.starts_text
