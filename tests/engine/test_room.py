"""What a record would need more memory for than there is, is said before the run."""

from __future__ import annotations

import pytest
from machines import RING_2

import et_sim
from et_sim.basics.errors import UsageError
from et_sim.engine import guards
from et_sim.trace import TraceBuilder, Workload


def test_there_is_some_memory() -> None:
    assert guards.available_bytes() > 1 << 20


def test_a_record_that_does_not_fit_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "available_bytes", lambda: 1000)
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    build = TraceBuilder()
    build.collective("all_reduce", 1024)
    workload, system = Workload.of([build.build()] * 2), {"all-reduce-implementation": ["ring"]}
    assert et_sim.simulate(workload, system=system, network=RING_2).makespan_ns > 0
    with pytest.raises(UsageError, match=r"--detail path: a record of causes needs .* are free \(leave"):
        et_sim.simulate(workload, system=system, network=RING_2, detail="path")
