"""Small machines and workloads that tests share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from et_sim.api import run
from et_sim.network import registry
from et_sim.run.result import Result
from et_sim.trace import TraceBuilder, Workload

# Network models that run on any network; the other one has a network file of its own.
MODELS = tuple(name for name in registry.MODELS if name != "loggops")
# Collectives with a list of algorithms in the system file: as it calls them, and as traces do.
LISTS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
KINDS = tuple(name.replace("-", "_") for name in LISTS)
ROOTED = ("broadcast", "reduce", "gather", "scatter", "barrier")  # collectives without one
SHAPES = ("Ring", "FullyConnected", "Switch")
FIFO_RING: dict[str, Any] = {
    "scheduling-policy": "FIFO",
    "all-reduce-implementation": ["ring"],
    "local-mem-bw": 50,
}


Figure = float | str  # a bandwidth without a unit is in multiples of 2^30 bytes


def network(
    shapes: list[str],
    npus: list[int],
    bandwidth: Figure | list[Figure] = 50.0,
    latency: Figure | list[Figure] = 500.0,
) -> dict[str, Any]:
    """Return dimensions of equal speed, or with a figure for each."""
    each = [figure if isinstance(figure, list) else [figure] * len(npus) for figure in (bandwidth, latency)]
    return {"topology": shapes, "npus_count": npus, "bandwidth": each[0], "latency": each[1]}


def ring(npus: int, bandwidth: Figure = 50.0, latency: Figure = 500.0) -> dict[str, Any]:
    """Return one dimension."""
    return network(["Ring"], [npus], bandwidth, latency)


RING_2, RING_4, RING_8 = ring(2), ring(4), ring(8)


def sends(ranks: int, messages: Iterable[tuple[int, int, int]]) -> list[TraceBuilder]:
    """Return messages (source, target, bytes), all at once."""
    builders = [TraceBuilder(source=f"rank {rank}") for rank in range(ranks)]
    for tag, (source, target, size) in enumerate(messages):
        builders[source].send(target, size, tag=tag)
        builders[target].receive(source, size, tag=tag)
    return builders


def sent(ranks: int, messages: Iterable[tuple[int, int, int]]) -> Workload:
    """Return the messages of `sends` as a workload."""
    return Workload.of([builder.build() for builder in sends(ranks, messages)])


def algorithms(name: str, dimensions: int = 1) -> dict[str, Any]:
    """Return one algorithm for all collectives, in all dimensions."""
    return {f"{kind}-implementation": [name] * dimensions for kind in LISTS}


def system(algorithm: str = "ring", dimensions: int = 1, **keys: Any) -> dict[str, Any]:
    """Return a system with one chunk and one algorithm for all collectives."""
    return {
        "scheduling-policy": "LIFO",
        "collective-optimization": "localBWAware",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "local-mem-bw": 50,
        **algorithms(algorithm, dimensions),
        **keys,
    }


def system_1(splits: int) -> str:
    """Return a system file of ASTRA-sim 1.0 with two dimensions."""
    lists = "".join(f"{name}-implementation: ring_direct\n" for name in LISTS[:3])
    return f"scheduling-policy: LIFO\npreferred-dataset-splits: {splits}\n{lists}"


def network_1(npus: list[int]) -> dict[str, Any]:
    """Return a network file for `system_1`."""
    return {
        "dimensions-count": 2,
        "topologies-per-dim": ["Ring", "Switch"],
        "units-count": npus,
        "links-count": [2, 1],
        "link-latency": [37, 503],
        "link-bandwidth": [50, 25],
    }


def of_all_ranks(ranks: int, kind: str, size: int = 1 << 16, **more: Any) -> list[TraceBuilder]:
    """Return one collective of all ranks."""
    build = TraceBuilder()
    build.collective(kind, size, **more)
    return [build] * ranks


def collective(ranks: int, kind: str, size: int = 1 << 20, **more: Any) -> Workload:
    """Return one collective as a workload whose ranks share one trace."""
    return Workload.of([of_all_ranks(1, kind, size, **more)[0].build()] * ranks)


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
