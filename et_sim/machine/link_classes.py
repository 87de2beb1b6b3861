"""Classes of the links of a graph: those between the same rows of devices, with the same figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from et_sim.machine.graph import NPU, Graph
from et_sim.units import format_bandwidth, format_ns


@dataclass(frozen=True, slots=True)
class LinkClass:
    """Links that nothing but their ends tells apart."""

    name: str
    bytes_per_ns: float
    latency_ns: float


def link_classes(graph: Graph) -> tuple[Any, list[LinkClass]]:
    """(the class of each link, the classes from the lowest row up)."""
    low, high = graph.tiers[graph.sources], graph.tiers[graph.targets]
    figures = np.stack([low, high, graph.bytes_per_ns, graph.latency_ns])
    found, of_link = np.unique(figures, axis=1, return_inverse=True)
    rows = [tuple(column) for column in found.T.tolist()]
    names = {tier: row_name(graph, tier) for tier in np.unique(graph.tiers).tolist()}
    ends = [(int(one), int(other)) for one, other, _, _ in rows]
    classes = []
    for (one, other), (_, _, bandwidth, latency) in zip(ends, rows, strict=True):
        name = f"{names[one]} to {names[other]}"
        if ends.count((one, other)) > 1:
            name += f", {format_bandwidth(bandwidth)}, {format_ns(latency)}"
        classes.append(LinkClass(name, bandwidth, latency))
    return of_link.reshape(-1).astype(np.int32), classes


def link_tiers(graph: Graph) -> tuple[Any, tuple[str, ...]]:
    """(the tier of each link, the names of the tiers): links between the same rows, one way."""
    rows = np.stack([graph.tiers[graph.sources], graph.tiers[graph.targets]])
    found, of_link = np.unique(rows, axis=1, return_inverse=True)
    names = tuple(f"{row_name(graph, one)} to {row_name(graph, other)}" for one, other in found.T.tolist())
    return of_link.reshape(-1).astype(np.int32), names


def row_name(graph: Graph, tier: int) -> str:
    """What stands in a row: the names of its devices without their numbers."""
    if tier == 0:
        return "NPUs"
    names = dict.fromkeys(
        graph.names[at].rsplit(".", 1)[-1].rstrip("0123456789").rstrip("-")
        for at in np.flatnonzero((graph.tiers == tier) & (graph.kinds != NPU)).tolist()
    )
    return ", ".join([*names][:3]) or f"tier {tier}"
