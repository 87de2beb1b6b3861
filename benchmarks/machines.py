"""Machines of the benchmark suite, by the name of the workload that runs on them, and `star` for packets.

Not here: the workloads, which are made in processes of their own (`workloads`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from et_sim.machine.presets import preset

GROUPS_OF = 8
LIMITS = ("local-mem-capacity", "local-mem-reserved")  # a run ends where memory is full


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


def leaves(shape: tuple[int, ...], chunks: int) -> dict[str, Any]:
    """Return leaves of 64 NPUs below 32 spines, whose equal ways messages share."""
    graph = {"generator": "leaf-spine", "npus-per-leaf": 64, "spines": 32, "leaves": prod(shape) // 64}
    return _graph({**graph, "bandwidth": "400Gbps", "latency": 500}, 2, chunks)


def tree(shape: tuple[int, ...], chunks: int) -> dict[str, Any]:
    """Return three tiers of switches with many equal paths, on which collectives go by two dimensions."""
    ports = round((4 * prod(shape)) ** (1 / 3))
    graph = {"generator": "fat-tree", "k": ports, "bandwidth": "400Gbps", "latency": 500}
    return _graph(graph, len(shape), chunks, {"logical-dimensions": list(shape)})


def torus_graph(shape: tuple[int, ...], chunks: int) -> dict[str, Any]:
    """Return a torus of NPUs that forward, as a graph."""
    graph = {"generator": "torus", "sizes": list(shape), "bandwidth": "400Gbps", "latency": 500}
    return _graph(graph, len(shape), chunks)


def _graph(
    graph: dict[str, Any], dimensions: int, chunks: int, keys: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a graph whose equal ways messages share, with rings in the corrected profile."""
    system = {"profile": "corrected", "preferred-dataset-splits": chunks}
    system["all-reduce-implementation"] = ["ring"] * dimensions
    return {"system.json": system, "network.yml": {"graph": graph, "routing": "spread", **(keys or {})}}


def fat_tree(shape: tuple[int, ...], chunks: int) -> dict[str, Any]:
    """Return three tiers of switches below which are these NPUs, with a packet-level network."""
    ports = round((4 * prod(shape)) ** (1 / 3))
    graph = {"generator": "fat-tree", "k": ports, "bandwidth": "100Gbps", "latency": "1us"}
    network = {"graph": graph, "routing": "ecmp-ns3", "logical-dimensions": [prod(shape)]}
    system = {**_system(1, chunks), "profile": "corrected"}
    return {"system.json": system, "network.yml": {**network, "protocol": {"preset": "ns3-parity"}}}


def racks(shape: tuple[int, ...], _: int) -> dict[str, Any]:
    """Return racks of 72 GB200."""
    return _preset(f"gb200-nvl72:{prod(shape)}")


def slow_rank(shape: tuple[int, ...], _: int) -> dict[str, Any]:
    """Return nodes of eight H100, one of which computes slowly."""
    return _preset(f"h100-dgx:{prod(shape)}", stragglers=[{"ranks": "5", "compute": 1.2}])


def _preset(name: str, **keys: Any) -> dict[str, Any]:
    """Return a preset machine without a limit of memory."""
    machine = preset(name)
    system = {key: value for key, value in machine.system.items() if not key.startswith(LIMITS)}
    return {"system.json": {**system, **keys}, "network.yml": dict(machine.network)}


def loggops(shape: tuple[int, ...], _: int) -> dict[str, Any]:
    """Return LogGOPSim's machine with the constants of its command line."""
    constants = {"L": 2500, "o": 1500, "g": 1000, "G": 6, "S": 65535}
    return {
        "system.json": {"profile": "corrected"},
        "network.yml": {"loggops": {"npus": prod(shape), **constants}},
    }


MACHINES: dict[str, Callable[[tuple[int, ...], int], dict[str, Any]]] = {
    "all_reduce": torus,
    "chain": torus,
    "layers": torus,
    "job": cluster,
    "distinct": grouped,
    "unlike": grouped,
    "star": star,
    "leaves": leaves,
    "tree": tree,
    "torus_graph": torus_graph,
    "experts": racks,
    "slow": slow_rank,
    "permutation": fat_tree,
    "goal": loggops,
}
