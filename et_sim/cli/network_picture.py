"""A network as an SVG picture: its devices, and its links, wider with more bandwidth."""

from __future__ import annotations

import numpy as np

from et_sim.basics.units import format_bandwidth, plural
from et_sim.machine.graph import NIC, NPU, Graph
from et_sim.machine.model import GraphFabric, GridFabric, Network
from et_sim.network.graph_of_grid import as_graph
from et_sim.views.drawing.devices import Devices, Line, draw_network, joined_lines, placed
from et_sim.views.drawing.scene import Scene

WIDEST, THINNEST = 3.0, 0.6
COLOUR = "#98a1ab"


def topology_picture(network: Network) -> str:
    """The SVG text."""
    given, fabric = network.fabric, as_graph(network).fabric
    assert isinstance(fabric, GraphFabric)
    graph = fabric.graph
    order, number = _npus_first(graph)
    wired = given.dimensions if isinstance(given, GridFabric) else ()
    sizes = tuple(dimension.npus for dimension in wired) or tuple(npus for npus, _ in fabric.grid)
    rows = np.asarray(graph.tiers)[order]
    nics = frozenset(np.flatnonzero(np.asarray(graph.kinds)[order] == NIC).tolist())
    devices = Devices([graph.names[at] for at in order.tolist()], rows, sizes, nics)
    source, target = number[graph.sources], number[graph.targets]
    places = placed(devices, source, target)
    pairs, of_link = joined_lines(places, source, target)
    there = of_link >= 0
    widest, count = np.zeros(len(pairs)), np.bincount(of_link[there], minlength=len(pairs))
    np.maximum.at(widest, of_link[there], graph.bytes_per_ns[there])
    first = np.zeros(len(pairs), np.int64)
    first[of_link[there][::-1]] = np.flatnonzero(there)[::-1]
    lines = []
    for at, (near, far) in enumerate(pairs.tolist()):
        link = int(first[at])
        label = f"{graph.names[graph.sources[link]]} to {graph.names[graph.targets[link]]}: "
        label += format_bandwidth(float(widest[at]))
        label += f", one of {plural(int(count[at]), 'link')}" if count[at] > 1 else ""
        wide = max(THINNEST, WIDEST * float(widest[at] / graph.bytes_per_ns.max()))
        lines.append(Line(near, far, COLOUR, wide, label))
    scene = Scene()
    draw_network(scene, devices, places, lines)
    return scene.svg(round(places.bottom) + 12)


def _npus_first(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """(devices, NPUs first and in rank order; where each of them stands then)."""
    others = np.flatnonzero(np.asarray(graph.kinds) != NPU)
    order = np.concatenate((np.asarray(graph.npus, np.int64), others))
    number = np.zeros(len(graph.names), np.int64)
    number[order] = np.arange(len(order))
    return order, number
