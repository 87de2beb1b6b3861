"""Exact durations and concurrent nodes: the effects of `duration_ns` and `concurrent` in a trace.

With many collectives under way, each message finds its chunk in constant time.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from machines import RING_2, network, simulate, system

import et_sim
from et_sim.engine.collectives.matching import chunk_home
from et_sim.engine.pools import empty_index
from et_sim.trace.builder import TraceBuilder
from et_sim.trace.encode import encode_trace
from et_sim.trace.wire import decode
from et_sim.trace.workload import Workload


def finish(build: TraceBuilder, **keys: object) -> int:
    trace = decode(encode_trace(build.build()), "built")
    workload = Workload((trace,), np.zeros(2, np.int32), source="built")
    both = [
        et_sim.simulate(workload, system=system() | keys, network=RING_2, fold=fold) for fold in (True, False)
    ]
    assert both[0].finish_ns.tolist() == both[1].finish_ns.tolist()
    return int(both[0].makespan_ns)


def test_the_exact_duration_wins_over_microseconds() -> None:
    build = TraceBuilder()
    build.compute("kernel", micros=7, nanos=1234)
    assert finish(build) == 1234


def test_an_exact_duration_of_zero_takes_no_time_where_zero_microseconds_take_one_nanosecond() -> None:
    exact, coarse = TraceBuilder(), TraceBuilder()
    for build, nanos in ((exact, 0), (coarse, None)):
        first = build.compute("nothing", nanos=nanos)
        build.compute("kernel", nanos=5, after=[first])
    assert (finish(exact), finish(coarse)) == (5, 6)


@pytest.mark.parametrize("cpu", [False, True])
def test_concurrent_nodes_run_beside_those_that_take_turns(cpu: bool) -> None:
    build = TraceBuilder()
    for _ in range(3):
        build.compute("taking turns", nanos=100, cpu=cpu)
    for nanos in (250, 320, 40):
        build.compute("beside", nanos=nanos, cpu=cpu, concurrent=True)
    assert finish(build) == 320


def test_concurrent_collectives_run_beside_others_when_they_are_replayed() -> None:
    build = TraceBuilder()
    for _ in range(2):
        build.collective("all_reduce", 1 << 20, nanos=100)
    build.collective("all_reduce", 1 << 20, nanos=150, concurrent=True)
    assert finish(build, **{"replay-only": 1}) == 200


def test_concurrent_nodes_wait_for_their_parents() -> None:
    build = TraceBuilder()
    before = build.compute("before", nanos=30)
    beside = build.compute("beside", nanos=10, concurrent=True, after=[before])
    build.compute("after", nanos=2, after=[beside])
    assert finish(build) == 42


def test_exact_durations_are_rounded_to_microseconds_for_other_readers() -> None:
    build = TraceBuilder()
    for nanos in (499, 500, 1499, 1500):
        build.compute("kernel", nanos=nanos)
    assert build.build().duration_us.tolist() == [0, 1, 1, 2]


def outstanding(count: int, kind: str) -> TraceBuilder:
    build = TraceBuilder()
    for _ in range(count):
        build.collective(kind, 4096, concurrent=True)
    return build


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all"])
def test_all_concurrent_collectives_complete(kind: str) -> None:
    """Run more collectives than the first pools hold, so that their index is rebuilt during the run."""
    splits: dict[str, Any] = {"preferred-dataset-splits": 3, "active-chunks-per-dimension": 3}
    result = simulate([outstanding(40, kind)] * 3, network(["Ring"], [3]), system(**splits), fold=False)
    assert (result.finish_ns == result.finish_ns[0]).all()
    assert result.finish_ns[0] > 0


@pytest.mark.parametrize(("members", "chunks"), [(1, 4096), (16, 2000), (32, 800), (1000, 7), (4096, 1)])
def test_few_chunks_share_a_place_in_the_index(members: int, chunks: int) -> None:
    run = SimpleNamespace(chunk_index=empty_index(members * chunks))
    homes = chunk_home(run, np.arange(members)[:, None], np.arange(5, 5 + chunks)[None, :])  # type: ignore[arg-type]
    lengths = np.unique(homes, return_counts=True)[1]
    assert lengths.max() <= 8
    assert (lengths * lengths).sum() <= 3 * members * chunks
