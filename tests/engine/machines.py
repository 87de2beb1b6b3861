"""Small machines and workloads for engine tests."""

from __future__ import annotations

from typing import Any

from et_sim.api import run
from et_sim.network import registry
from et_sim.result import Result
from et_sim.trace import TraceBuilder, Workload

# Network models that run on any network; the other one has a network file of its own.
MODELS = tuple(name for name in registry.MODELS if name != "loggops")


def network(
    shapes: list[str], npus: list[int], bandwidth: float = 50.0, latency: float = 500.0
) -> dict[str, Any]:
    """Dimensions of equal speed."""
    count = len(npus)
    return {
        "topology": shapes,
        "npus_count": npus,
        "bandwidth": [bandwidth] * count,
        "latency": [latency] * count,
    }


def system(algorithm: str = "ring", dimensions: int = 1, **keys: Any) -> dict[str, Any]:
    """One chunk, one algorithm everywhere."""
    names = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    return {
        "scheduling-policy": "LIFO",
        "collective-optimization": "localBWAware",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "local-mem-bw": 50,
        **{f"{name}-implementation": [algorithm] * dimensions for name in names},
        **keys,
    }


def simulate(
    builders: list[TraceBuilder], net: dict[str, Any], sys: dict[str, Any] | None = None, **more: Any
) -> Result:
    """Run one builder per rank; unfinished ranks are allowed."""
    workload = Workload.of([builder.build() for builder in builders])
    return run(workload, system=sys or system(dimensions=len(net["npus_count"])), network=net, **more)


def finish_times(
    builders: list[TraceBuilder], net: dict[str, Any], sys: dict[str, Any] | None = None, **more: Any
) -> list[int]:
    """Finish time of every rank; -1 if it never finished."""
    times: list[int] = simulate(builders, net, sys, **more).finish_ns.tolist()
    return times
