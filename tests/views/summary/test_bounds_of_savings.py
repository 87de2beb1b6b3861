"""No run of a job on an infinitely fast network, or with infinitely fast kernels, saves more than a bound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from machines import algorithms, ring

import et_sim
from et_sim.api import run
from et_sim.run.result import Result
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.summary.in_short import in_short
from et_sim.views.summary.path_in_short import KERNELS, NETWORK, saved_at_most_ns

pytestmark = pytest.mark.usefixtures("warm_engine")
RANKS = 4
ALGORITHMS = ("ring", "direct", "halvingDoubling", "doubleBinaryTree")
POLICIES = ("FIFO", "LIFO")


def job(seed: int, kernel_scale: int = 1) -> et_sim.Workload:
    """Return kernels and collectives of 4 ranks, each after some earlier ones, so that many overlap."""
    draw = Random(seed)
    builders = [et_sim.TraceBuilder() for _ in range(RANKS)]
    nodes: list[list[Any]] = [[] for _ in range(RANKS)]
    slow = draw.randrange(RANKS)
    for _ in range(draw.randint(3, 10)):
        kind = draw.choice(("kernel", "kernel", "all_reduce", "all_gather", "message"))
        size, count = draw.randint(1, 1 << 20), draw.randint(0, 2)
        chosen = draw.sample(range(len(nodes[0])), min(count, len(nodes[0])))
        for rank, build in enumerate(builders):
            after = [nodes[rank][at] for at in chosen]
            if kind == "kernel":
                nanos = draw.randint(1, 40_000) * (3 if rank == slow else 1)
                node = build.compute("layer", nanos=nanos * kernel_scale, after=after)
            elif kind == "message":
                other, tag = rank ^ 1, len(nodes[rank])
                place = build.send if rank % 2 else build.receive
                node = place(other, size, tag=tag, after=after)
            else:
                node = build.collective(kind, size, after=after)
            nodes[rank].append(node)
    return et_sim.Workload.of([build.build() for build in builders])


def simulated(seed: int, part: Sequence[str] = (), detail: Sequence[str] = ("path",)) -> Result:
    """Run a random job on a random machine, of which a part takes no time."""
    draw = Random(seed + 1)
    bandwidth, latency = draw.randint(2, 400), draw.choice((0, 500, 20_000))
    if part is NETWORK:
        bandwidth, latency = 10**9, 0
    system: dict[str, Any] = {
        "scheduling-policy": draw.choice(POLICIES),
        "endpoint-delay": draw.choice((0, 20)),
        "preferred-dataset-splits": draw.randint(1, 4),
        "active-chunks-per-dimension": draw.randint(1, 2),
        **algorithms(draw.choice(ALGORITHMS)),
        "stragglers": [{"ranks": "1", "compute": draw.choice((1, 1.7)), "delay": draw.choice((0, 9000))}],
    }
    given: dict[str, Any] = {"system": system, "network": ring(RANKS, bandwidth, latency)}
    return run(
        job(seed, 0 if part is KERNELS else 1),
        **given,
        model=draw.choice(("analytical", "link")),
        detail=detail,
        profile=draw.choice(("reference", "corrected")),
    )


def bounds(result: Result, where: Path) -> dict[Sequence[str], int | None]:
    """Return the bounds of both parts."""
    write_run(result, where)
    path = CriticalPath(PathRecord(open_run(where)))
    return {part: saved_at_most_ns(path, part) for part in (NETWORK, KERNELS)}


@given(seed=st.integers(0, 2**32))
def test_no_part_that_takes_no_time_saves_more_than_its_bound(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = simulated(seed)
    assume(before.is_complete)
    for part, bound in bounds(before, tmp_path_factory.mktemp("bound") / "run").items():
        assert bound is not None
        after = simulated(seed, part, ())
        assert not after.is_complete or before.makespan_ns - after.makespan_ns <= bound


SLOWED = {"system": {**algorithms("ring"), "overlap": {"kernels": 1.5}}, "network": ring(RANKS)}
GREEDY = {
    "system": {**algorithms("ring"), "inter-dimension-scheduling": "offlineGreedy", "profile": "corrected"},
    "network": ring(RANKS),
}


@pytest.mark.parametrize(
    "machine",
    [
        {"machine": "h100-dgx:4", "model": "analytical"},
        {"machine": "h100-dgx:4", "model": "flow"},
        SLOWED,
        GREEDY,
    ],
    ids=["library", "shared links", "slowed kernels", "greedy order"],
)
def test_where_more_than_an_order_may_change_there_is_neither_a_bound_nor_a_lever(
    machine: dict[str, Any], tmp_path: Path
) -> None:
    result = et_sim.simulate(job(1), **machine, detail="path")
    assert set(bounds(result, tmp_path / "run").values()) == {None}
    run_of_job = open_run(tmp_path / "run")
    sentence = in_short(run_of_job, CriticalPath(PathRecord(run_of_job)))
    assert "at most" not in sentence
    assert "lever" not in sentence
    assert " of it is " in sentence


def test_the_bound_of_a_path_of_dependencies_is_the_share_of_the_path(tmp_path: Path) -> None:
    build = et_sim.TraceBuilder()
    first = build.compute("first", nanos=600_000)
    together = build.collective("all_reduce", 1 << 20, after=[first])
    build.compute("second", nanos=300_000, after=[together])
    workload = et_sim.Workload.of([build.build()] * RANKS)
    system = algorithms("ring") | {"preferred-dataset-splits": 1}
    result = et_sim.simulate(workload, system=system, network=ring(RANKS), detail="path")
    write_run(result, tmp_path / "run")
    path = CriticalPath(PathRecord(open_run(tmp_path / "run")))
    causes = path.by_cause()
    assert saved_at_most_ns(path, NETWORK) == sum(causes.get(name, 0) for name in NETWORK)
    assert saved_at_most_ns(path, KERNELS) == 900_000
