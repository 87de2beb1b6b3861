"""Memory of a run is released at its end; a record that does not fit is refused before the run."""

from __future__ import annotations

import errno
import mmap
import resource
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import RING_2, network, system

import et_sim
from et_sim import api
from et_sim.basics.errors import UsageError
from et_sim.engine import containers, driver, guards, start
from et_sim.engine.entry import simulate
from et_sim.engine.state.run import Run
from et_sim.plan.records import zeros
from et_sim.trace import TraceBuilder, Workload

STATM = Path("/proc/self/statm")


@pytest.mark.deep
@pytest.mark.skipif(not STATM.exists(), reason="needs the memory in use from /proc")
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


def test_ranks_start_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a call starts few nodes: interpreted, each of them is an object."""
    build, started = TraceBuilder(), [0]
    for _ in range(6):
        build.compute("work", micros=1)

    class Watched:
        def lasting(self, seconds: Any) -> Any:
            happen = simulate.lasting(seconds)

            def watched(run: Any, *arguments: Any) -> Any:
                status = happen(run, *arguments)
                started.append(int(run.clock[0].to_start))
                return status

            return watched

    monkeypatch.setattr(driver, "simulate", Watched())
    monkeypatch.setattr(driver, "NODES_STARTED", 13)
    workload = Workload.of([build.build()] * 5)
    result = et_sim.simulate(workload, network=network(["Ring"], [5]), system=system("ring"), fold=False)
    assert result.is_complete
    assert max(after - before for before, after in pairwise(started)) == 13 // 6
    assert started[-1] == 5


class _BeganError(Exception):
    """A run whose tables are made."""


def _bytes_of_state(nodes: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the bytes of all tables of an unfolded run but those of its plan and its network."""
    build = TraceBuilder()
    work = build.compute("work", micros=1)
    for _ in range(nodes // 2):
        reduced = build.collective("all_reduce", 1 << 10, after=[work])
        work = build.compute("work", micros=1, after=[reduced])

    def began(whole: Run, *_: Any) -> Any:
        names = [name for name in Run.__struct_fields__ if name not in ("plan", "network")]
        arrays = list[Any]()
        start._with_arrays(tuple(getattr(whole, name) for name in names), arrays.append)
        raise _BeganError(sum(array.nbytes for array in arrays))

    monkeypatch.setattr(driver, "_run_to_end", lambda begun, *_: began(begun.run))
    with pytest.raises(_BeganError) as raised:
        et_sim.simulate(
            Workload.of([build.build()] * 4),
            network=network(["Ring"], [4]),
            system=system("ring"),
            fold=False,
        )
    return int(raised.value.args[0])


def test_a_node_more_takes_40_bytes_of_the_state_of_an_unfolded_run(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (_bytes_of_state(nodes, monkeypatch) for nodes in (200, 1000))
    assert 0 < many - few <= 40 * 4 * (1000 - 200)


def test_chunks_that_cannot_be_counted_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    build = TraceBuilder()
    for _ in range(3):
        build.collective("all_reduce", 1 << 10)
    workload = Workload.of([build.build()] * 4)
    machine = {"network": network(["Ring"], [4]), "system": system("ring")}
    monkeypatch.setattr(guards, "MOST_CHUNKS", 3)
    assert et_sim.simulate(workload, **machine).is_complete
    monkeypatch.setattr(guards, "MOST_CHUNKS", 2)
    with pytest.raises(UsageError, match="into 3 chunks, and at most 2 can be counted"):
        et_sim.simulate(workload, **machine)


def test_there_is_some_memory() -> None:
    assert containers.available_bytes() > 1 << 20


def test_a_pool_that_would_not_fit_is_refused_and_a_small_one_is_not_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(containers, "available_bytes", lambda: 1 << 20)
    assert len(containers.longer(np.zeros(8), 1 << 20)) == 1 << 20
    with pytest.raises(MemoryError, match="Unable to allocate 8 GiB"):
        containers.longer(np.zeros(8), 1 << 30)


def test_a_table_too_large_for_the_system_is_an_error_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(MemoryError, match="Unable to allocate 64 MiB"):
        zeros((1 << 23,), np.dtype(np.int64))


def test_a_large_table_needs_no_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pages(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Pages)
    assert not zeros((1 << 23,), np.dtype(np.int64)).any()


def test_a_record_that_does_not_fit_is_refused_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "available_bytes", lambda: 1000)
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    build = TraceBuilder()
    build.collective("all_reduce", 1024)
    workload, system = Workload.of([build.build()] * 2), {"all-reduce-implementation": ["ring"]}
    assert et_sim.simulate(workload, system=system, network=RING_2).makespan_ns > 0
    with pytest.raises(UsageError, match=r"--detail path: a record of causes needs .* are free \(leave"):
        et_sim.simulate(workload, system=system, network=RING_2, detail="path")


def test_a_finished_run_keeps_no_pools_and_a_stalled_one_keeps_all() -> None:
    build, waiting = TraceBuilder(), TraceBuilder()
    build.collective("all_reduce", 1 << 10)
    waiting.receive(1, 8)
    for traces, is_kept in (([build.build()] * 2, False), ([waiting.build(), TraceBuilder().build()], True)):
        run = api.run(Workload.of(traces), network=RING_2, system=system("ring")).outcome.run
        assert (len(run.events) > 0) == is_kept


def test_a_plan_without_messages_has_no_channels() -> None:
    build = TraceBuilder()
    build.compute("work", micros=1)
    plan = api.run(Workload.of([build.build()] * 2), network=RING_2, system=system("ring")).outcome.plan
    assert len(plan.channels) == 0
