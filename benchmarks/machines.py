"""Machines of the benchmark suite, by the name of the workload that runs on them, and `star` for packets.

Not here: the workloads, which are made in processes of their own (`workloads`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

GROUPS_OF = 8


def torus(shape: tuple[int, ...], chunks: int) -> dict[str, Any]:
    """Return rings of 50 GB/s and 500 ns."""
    return {"system.json": _system(len(shape), chunks), "network.yml": _network("Ring", shape, 50, 500)}


def cluster(shape: tuple[int, ...], chunks: int) -> dict[str, Any]:
    """Return fully connected nodes behind switches."""
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
        "profile": "reference",
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
    """Return a torus with groups of eight neighbouring ranks."""
    ranks = prod(shape)
    groups = {
        str(first // GROUPS_OF + 1): list(range(first, first + GROUPS_OF))
        for first in range(0, ranks, GROUPS_OF)
    }
    return {**torus(shape, chunks), "groups.json": groups}


def star(shape: tuple[int, ...], chunks: int) -> dict[str, Any]:
    """Return NPUs at one switch, with a packet-level network."""
    graph = {"generator": "star", "npus": prod(shape), "bandwidth": "100Gbps", "latency": "1us"}
    network = {"graph": graph, "protocol": {"preset": "ns3-parity", "skip-repeats": False}}
    system = {
        "profile": "corrected",
        "all-reduce-implementation": ["ring"],
        "preferred-dataset-splits": chunks,
    }
    return {"system.json": system, "network.yml": network}


MACHINES: dict[str, Callable[[tuple[int, ...], int], dict[str, Any]]] = {
    "all_reduce": torus,
    "chain": torus,
    "layers": torus,
    "job": cluster,
    "distinct": grouped,
    "unlike": grouped,
    "star": star,
}
