"""Placement of jobs: as they state, else packed, spread or at random among the free NPUs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from et_sim.basics.units import parse_ranks
from et_sim.jobs import read_jobs
from et_sim.jobs.job_file import npus_text
from et_sim.trace import TraceBuilder, Workload


def of(ranks: int) -> Workload:
    """Return a workload of one short computation."""
    build = TraceBuilder()
    build.compute(micros=1)
    return Workload.of([build.build()] * ranks)


def placed(npus: int, *jobs: dict[str, Any]) -> list[list[int]]:
    """Return the NPUs of each job."""
    entries = [
        {"name": f"j{place}", **job, "workload": of(job["workload"])} for place, job in enumerate(jobs)
    ]
    workload = read_jobs({"jobs": entries}, npus, profile_is_open=False)
    return [job.npus.tolist() for job in workload.jobs]


def test_ranks_are_on_the_npus_in_the_order_in_which_these_are_named() -> None:
    assert placed(8, {"workload": 4, "npus": "6-7,0-2/2"}) == [[6, 7, 0, 2]]
    assert placed(8, {"workload": 3, "npus": [5, 1, 3]}) == [[5, 1, 3]]
    assert placed(8, {"workload": 1, "npus": 5}) == [[5]]


def test_packed_jobs_take_the_first_free_npus_in_the_order_of_the_file() -> None:
    jobs = ({"workload": 2}, {"workload": 3, "npus": "packed"}, {"workload": 2, "npus": "1-2"})
    assert placed(8, *jobs) == [[0, 3], [4, 5, 6], [1, 2]]


def test_spread_jobs_take_every_so_manyth_free_npu() -> None:
    assert placed(8, {"workload": 4, "npus": "spread"}) == [[0, 2, 4, 6]]
    assert placed(8, {"workload": 3, "npus": "spread"}) == [[0, 2, 5]]
    jobs = ({"workload": 4, "npus": "spread"}, {"workload": 2, "npus": "spread"}, {"workload": 2})
    assert placed(8, *jobs) == [[0, 2, 4, 6], [1, 5], [3, 7]]


def test_random_placements_follow_from_the_seed() -> None:
    def drawn(seed: int) -> list[int]:
        return placed(64, {"workload": 8, "npus": "random", "seed": seed})[0]

    assert drawn(1) == drawn(1) == [28, 19, 49, 1, 53, 38, 58, 11]  # and so for ever
    assert len({tuple(drawn(seed)) for seed in range(50)}) == 50
    counts = [0] * 64
    for seed in range(100):
        for npu in drawn(seed):
            counts[npu] += 1
    assert min(counts) > 3  # 12.5 each on average
    assert max(counts) < 25


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["packed", "spread", "random"]))),
)
def test_placements_never_overlap_and_never_run_out_too_early(
    npus: int, wanted: list[tuple[int, str]]
) -> None:
    jobs = [
        {"workload": ranks, "npus": how, **({"seed": ranks} if how == "random" else {})}
        for ranks, how in wanted
    ]
    while sum(job["workload"] for job in jobs) > npus:
        jobs.pop()
    if jobs:
        result = placed(npus, *jobs)
        assert [len(npus) for npus in result] == [job["workload"] for job in jobs]
        every = [npu for npus in result for npu in npus]
        assert len(set(every)) == len(every)
        assert set(every) <= set(range(npus))


@pytest.mark.parametrize(
    ("npus", "text"),
    [
        ([0, 1, 2, 3], "0-3"),
        ([0, 2, 4, 6], "0-6/2"),
        ([3, 2, 1, 0], "3,2,1,0"),
        ([5], "5"),
        ([0, 4], "0,4"),
        ([7, 0, 1, 4, 9, 14], "7,0-1,4-14/5"),
    ],
)
def test_npus_are_shown_in_the_order_of_the_ranks(npus: list[int], text: str) -> None:
    assert npus_text(npus) == text


@given(st.lists(st.integers(0, 30), unique=True, min_size=1))
def test_the_text_of_npus_can_be_read(npus: list[int]) -> None:
    assert [npu for piece in parse_ranks(npus_text(npus)) for npu in piece] == npus
