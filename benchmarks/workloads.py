"""Inputs of the benchmark suite: workloads (made once per folder) and machines, by name.

Not here: what is measured on them (`suite`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from et_sim.trace import TraceBuilder, Workload, write_workload
from et_sim.trace.manifest import write_manifest
from et_sim.trace.transformer import Transformer, make_transformer

GROUPS_OF = 8


def _shared(trace: Any, prefix: Path, ranks: int) -> Path:
    path = prefix.with_suffix(".workload.json")
    if not path.exists():
        write_manifest(Workload((trace,), np.zeros(ranks, np.int32)), path)
    return path


def all_reduce(prefix: Path, ranks: int) -> Path:
    """One all-reduce of 1 GiB."""
    build = TraceBuilder()
    build.collective("all_reduce", 1 << 30)
    return _shared(build.build(), prefix, ranks)


def chain(prefix: Path, ranks: int) -> Path:
    """20,000 computations one after the other."""
    build = TraceBuilder()
    last: list[int] = []
    for number in range(20_000):
        last = [build.compute("kernel", micros=1 + number % 7, after=last)]
    return _shared(build.build(), prefix, ranks)


def layers(prefix: Path, ranks: int) -> Path:
    """500 times a computation and an all-reduce of 1 MiB."""
    build = TraceBuilder()
    last: list[int] = []
    for _ in range(500):
        work = build.compute("kernel", micros=10, after=last)
        last = [build.collective("all_reduce", 1 << 20, after=[work])]
    return _shared(build.build(), prefix, ranks)


def job(prefix: Path, ranks: int) -> Path:
    """A transformer with tensor, pipeline and data parallelism: about 4,900 nodes a rank."""
    path = prefix.with_suffix(".workload.json")
    if not path.exists():
        model = Transformer(tp=8, pp=16, dp=ranks // 128, micro_batches=64, layers=144)
        write_manifest(make_transformer(model), path)
    return path


def distinct(prefix: Path, ranks: int) -> Path:
    """5,000 nodes a rank with durations of its own, and all-reduces in groups of eight."""
    if not Path(f"{prefix}.0.et").exists():
        random = np.random.default_rng(1)
        traces = [_own_program(random.integers(1, 50, 5_000), rank // GROUPS_OF + 1) for rank in range(ranks)]
        write_workload(Workload.of(traces), prefix)
    return prefix


def _own_program(micros: Any, group: int) -> Any:
    build = TraceBuilder()
    last: list[int] = []
    for number, duration in enumerate(micros.tolist()):
        if number % 100 == 99:
            last = [build.collective("all_reduce", 1 << 20, group=str(group), after=last)]
        else:
            last = [build.compute("kernel", micros=duration, after=last)]
    return build.build()


WORKLOADS: dict[str, Callable[[Path, int], Path]] = {
    "all_reduce": all_reduce,
    "chain": chain,
    "layers": layers,
    "job": job,
    "distinct": distinct,
}


def torus(shape: tuple[int, ...], chunks: int) -> dict[str, Any]:
    """Rings of 50 GB/s and 500 ns."""
    return {"system.json": _system(len(shape), chunks), "network.yml": _network("Ring", shape, 50, 500)}


def cluster(shape: tuple[int, ...], chunks: int) -> dict[str, Any]:
    """Fully connected nodes behind switches."""
    network = {
        "topology": ["FullyConnected"] + ["Switch"] * (len(shape) - 1),
        "npus_count": list(shape),
        "bandwidth": [400] + [50] * (len(shape) - 1),
        "latency": [300] + [1000] * (len(shape) - 1),
    }
    return {"system.json": _system(len(shape), chunks), "network.yml": network}


def _system(dimensions: int, chunks: int) -> dict[str, Any]:
    names = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
    return {
        "scheduling-policy": "LIFO",
        "collective-optimization": "localBWAware",
        "endpoint-delay": 10,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": chunks,
        "local-mem-bw": 1600,
        **{f"{name}-implementation": ["ring"] * dimensions for name in names},
    }


def _network(shape_name: str, shape: tuple[int, ...], bandwidth: float, latency: float) -> dict[str, Any]:
    count = len(shape)
    return {
        "topology": [shape_name] * count,
        "npus_count": list(shape),
        "bandwidth": [bandwidth] * count,
        "latency": [latency] * count,
    }


def grouped(shape: tuple[int, ...], chunks: int) -> dict[str, Any]:
    """A torus with groups of eight neighbouring ranks."""
    ranks = prod(shape)
    groups = {
        str(first // GROUPS_OF + 1): list(range(first, first + GROUPS_OF))
        for first in range(0, ranks, GROUPS_OF)
    }
    return {**torus(shape, chunks), "groups.json": groups}


MACHINES: dict[str, Callable[[tuple[int, ...], int], dict[str, Any]]] = {
    "all_reduce": torus,
    "chain": torus,
    "layers": torus,
    "job": cluster,
    "distinct": grouped,
}
