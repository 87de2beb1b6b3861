"""The best lever has the effect of a new simulation, and is left out where it is not certain."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import RING_4, algorithms, ring

import et_sim
from et_sim.timeline import write_run
from et_sim.views import open_run
from et_sim.views.critical.path import CriticalPath
from et_sim.views.critical.record import PathRecord
from et_sim.views.summary.path_in_short import Lever, best_lever

pytestmark = pytest.mark.usefixtures("warm_engine")
TEXTS = {
    "kernels": "kernels twice as fast",
    "bandwidth": "twice the bandwidth of dimension 0",
    "latency": "half the latency of ",
    "endpoint": "half of the endpoint delay",
    "memory": "remote memory twice as fast",
}


def workload(seed: int, kernels: int) -> et_sim.Workload:
    """Return ranks with like nodes in sequence, each at its own pace; kernels take `kernels` halves."""
    draw = Random(seed)
    builders, before = [et_sim.TraceBuilder() for _ in range(4)], [[] for _ in range(4)]  # type: list[Any], list[Any]
    for _ in range(draw.randint(2, 5)):
        kind, size = draw.choice(("kernel", "memory", "all_reduce", "all_gather")), draw.randint(1, 1 << 20)
        for rank, build in enumerate(builders):
            own = draw.randint(1, 30)
            if kind == "kernel":
                node = build.compute("layer", nanos=size * own * kernels // 64, after=before[rank])
            elif kind == "memory":
                node = build.load(size * own // 8 + 1, after=before[rank])
            else:
                node = build.collective(kind, size, after=before[rank])
            before[rank] = [node]
    return et_sim.Workload.of([build.build() for build in builders])


def simulated(seed: int, *, better: str = "", model: str = "analytical") -> et_sim.Result:
    """Return a random run in which one figure is twice as good."""
    draw = Random(seed + 1)
    figures: dict[str, float] = {"bandwidth": draw.randint(2, 400), "latency": draw.choice((2, 500, 20_000))}
    figures |= {"endpoint": draw.choice((0, 20, 4000)), "memory": draw.randint(2, 200)}
    for name, factor in (("bandwidth", 2), ("memory", 2), ("latency", 0.5), ("endpoint", 0.5)):
        figures[name] = figures[name] * (factor if name == better else 1)
    system: dict[str, Any] = {"endpoint-delay": int(figures["endpoint"]), "preferred-dataset-splits": 1}
    system |= {"active-chunks-per-dimension": 1, **algorithms("ring")}
    network = ring(4, figures["bandwidth"], figures["latency"])
    memory: dict[str, Any] = {"memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-bw": figures["memory"]}
    memory |= {"remote-mem-latency": 0, "num-nodes": 2, "num-npus-per-node": 2}
    return et_sim.simulate(
        workload(seed, 1 if better == "kernels" else 2),
        system=system,
        network=network,
        memory=memory,
        model=model,
        detail="path",
        fold=draw.random() < 0.5,
    )


def lever_of(result: et_sim.Result, where: Path) -> tuple[Lever | None, int]:
    """Return the best lever, and the number of durations that may have been rounded."""
    write_run(result, where)
    path = CriticalPath(PathRecord(open_run(where)))
    return best_lever(path), len(path) + 2


@pytest.mark.deep
@settings(max_examples=3)
@given(seed=st.integers(0, 2**32))
def test_the_best_lever_saves_as_much_as_a_new_simulation_and_no_other_more(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = simulated(seed)
    lever, rounded = lever_of(before, tmp_path_factory.mktemp("lever") / "run")
    saved = {name: before.makespan_ns - simulated(seed, better=name).makespan_ns for name in TEXTS}
    assert lever is not None
    name = next(name for name, text in TEXTS.items() if lever.text.startswith(text))
    assert abs(saved[name] - lever.saved_ns) <= rounded
    assert max(saved.values()) <= lever.saved_ns + rounded


def test_waiting_behind_others_for_remote_memory_is_remote_memory(tmp_path: Path) -> None:
    builders = [et_sim.TraceBuilder() for _ in range(4)]
    for build in builders:
        build.load(1 << 20)
    memory: dict[str, Any] = {"memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-bw": 1}
    memory |= {"remote-mem-latency": 0, "num-nodes": 1, "num-npus-per-node": 4}
    given = et_sim.Workload.of([build.build() for build in builders])
    result = et_sim.simulate(
        given, system=algorithms("ring"), network=RING_4, memory=memory, detail="path", fold=False
    )
    lever, _ = lever_of(result, tmp_path / "run")
    assert lever is not None
    assert (lever.text, round(lever.saved_ns / result.makespan_ns, 2)) == ("remote memory twice as fast", 0.5)


def test_where_messages_share_links_no_lever_is_named(tmp_path: Path) -> None:
    result = simulated(5, model="flow")
    assert np.any(result.exposed_comm_ns)
    assert lever_of(result, tmp_path / "run")[0] is None
