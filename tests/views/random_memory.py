"""Random small runs whose tensors are moved to remote memory, or whose pools share their units fairly."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from machines import ring, system
from random_runs import DETAILS, Drawn

from et_sim.trace import TraceBuilder, Workload

EXPANSION = {"memory-type": "PER_NPU_MEMORY_EXPANSION", "remote-mem-latency": 100, "remote-mem-bw": 10}
UNITS = {"chunk": "16KiB", "memory-type": "HIERARCHICAL_POOL"}


def spilled(seed: int) -> Drawn:
    """Return kernels whose tensors do not all fit, in a memory that moves them away and back."""
    draw = Random(seed)
    size_of = {name: draw.choice((1024, 4096, 10_000, 20_001)) for name in "abcdefgh"}
    builders = [TraceBuilder() for _ in range(draw.choice((1, 2)))]
    for build in builders:
        made: list[int] = []
        for number in range(draw.randint(4, 14)):
            reads, writes = (draw.sample("abcdefgh", draw.choice((0, 1, 1, 2))) for _ in range(2))
            tensors = {
                "inputs": {name: size_of[name] for name in reads},
                "outputs": {name: size_of[name] for name in writes},
            }
            after = draw.sample(made[-3:], min(len(made), draw.choice((1, 1, 2, 0))))
            nanos = draw.choice((0, 700, 90_000))
            made.append(build.compute(f"k{number}", nanos=nanos, after=after, **tensors))
        if len(builders) > 1 and draw.random() < 0.9:
            build.collective("all_reduce", 4096, after=made[-1:])
    local = {"local-mem-capacity": draw.choice((42_000, 50_000, 64_000)), "when-full": "spill"}
    local |= {"local-mem-reserved": 3000} if draw.random() < 0.2 else {}
    local |= {"profile": "corrected"} if draw.random() < 0.3 else {}
    pool = UNITS | {"stages": [{"name": "far", "count": 1, "bandwidth": 20, "latency": 300}]}
    memory = draw.choice((EXPANSION, EXPANSION, pool, pool | {"sharing": "fair"}))
    options = {"system": system("ring", 1, **local), "network": ring(len(builders)), "memory": memory}
    options["detail"] = draw.choice(DETAILS)
    return Drawn(Workload.of([build.build() for build in builders]), options)


def shared(seed: int) -> Drawn:
    """Return loads and stores that begin at many times and share the units of a pool."""
    draw = Random(seed)
    ranks = draw.choice((2, 3, 4))
    builders = [TraceBuilder() for _ in range(ranks)]
    has_joint = draw.random() < 0.3
    for _ in range(draw.randint(2, 6)):
        size, is_joint = draw.choice((1, 4096, 65_536, 300_001)), has_joint and draw.random() < 0.5
        for build in builders:
            after = [build.compute(nanos=draw.choice((1, 900, 4000)), concurrent=True)]
            if is_joint:
                build.load(size, gather="", after=after)
            elif draw.random() < 0.85:
                method = build.load if draw.random() < 0.6 else build.store
                method(draw.choice((size, 20_000)), after=after)
    if draw.random() < 0.3:
        builders[0].send(1, 40_000)
        builders[1].receive(0, 40_000)
    stages = [_stage(draw, name, ranks) for name in draw.sample(("nic", "switch", "memory"), 3)]
    memory = UNITS | {"stages": stages[: draw.randint(1, 3)]}
    memory |= {"sharing": "fair"} if draw.random() < 0.9 else {}
    own = system("ring", 1, profile=draw.choice(("reference", "corrected")))
    options: dict[str, Any] = {"system": own, "network": ring(ranks), "memory": memory}
    options |= {"detail": draw.choice(DETAILS), "model": draw.choice(("analytical", "link", "flow"))}
    return Drawn(Workload.of([build.build() for build in builders]), options)


def _stage(draw: Random, name: str, ranks: int) -> dict[str, Any]:
    """Return a stage of as many units as ranks, or fewer."""
    units = draw.choice((1, ranks, 2 if ranks % 2 == 0 else ranks))
    stage = {"name": name, "count": units, "latency": draw.choice((0, 20, 300))}
    if draw.random() < 0.25:
        return stage | {"load": draw.choice((30, 100)), "store": 50, "duplex": draw.random() < 0.5}
    return stage | {"bandwidth": draw.choice((20, 50, 100, 150))}


MEMORIES: dict[str, Callable[[int], Drawn]] = {"spilled": spilled, "shared": shared}
