"""Sorts of switches that reduce: those in the same row, or of the same dimension, with the same figures.

Not here: which switches serve which ranks (`switch_trees`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from et_sim.machine.link_classes import row_name
from et_sim.machine.model import GraphFabric, Network, Reducer
from et_sim.units import format_bandwidth, format_ns


@dataclass(frozen=True, slots=True)
class SwitchSort:
    """Switches that nothing but their place tells apart."""

    name: str
    reducer: Reducer


def switch_sorts(network: Network) -> tuple[list[int], list[SwitchSort]]:
    """(the sort of each entry of `network.reducers`, the sorts in the order in which they come first)."""
    fabric = network.fabric
    of_entry = [
        (f"dimension {at}" if not isinstance(fabric, GraphFabric) else _row(fabric, at), reducer)
        for at, reducer in network.reducers
    ]
    sorts = list(dict.fromkeys(of_entry))
    rows = [row for row, _ in sorts]
    made = [
        SwitchSort(f"reduction in {row}{_figures(reducer) if rows.count(row) > 1 else ''}", reducer)
        for row, reducer in sorts
    ]
    return [sorts.index(entry) for entry in of_entry], made


def _row(fabric: GraphFabric, device: int) -> str:
    return row_name(fabric.graph, int(fabric.graph.tiers[device]))


def _figures(reducer: Reducer) -> str:
    rate = "" if math.isinf(reducer.bytes_per_ns) else f", {format_bandwidth(reducer.bytes_per_ns)}"
    return f"{rate}, {format_ns(reducer.latency_ns)}"
