"""What a run takes, it gives back."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from machines import network, system

import et_sim
from et_sim.trace import TraceBuilder

STATM = Path("/proc/self/statm")


@pytest.mark.deep
@pytest.mark.skipif(not STATM.exists(), reason="only Linux says how much memory is in use")
def test_a_hundred_runs_take_no_more_memory_than_a_few() -> None:
    build = TraceBuilder()
    build.collective("all_reduce", 1 << 20)
    workload = et_sim.Workload.of([build.build()] * 8)

    def memory_after(runs: int) -> float:
        for _ in range(runs):
            et_sim.simulate(workload, network=network(["Ring"], [8]), system=system("ring"), fold=False)
        return int(STATM.read_text().split()[1]) * resource.getpagesize() / 2**20

    few = memory_after(runs=20)
    assert memory_after(runs=100) < few + 20  # MiB
