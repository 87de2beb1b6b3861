"""`et-sim network`: describe or draw a network; links with more bandwidth are drawn wider."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from et_sim.basics.declared_options import Command
from et_sim.basics.errors import UsageError
from et_sim.basics.units import format_bandwidth, plural
from et_sim.cli.options import Json
from et_sim.cli.progress import Progress

if TYPE_CHECKING:
    import numpy as np

    from et_sim.machine.graph import Graph
    from et_sim.machine.model import Network


class Options(Command):
    """Read a network file of any form and print its description: devices, links by tier, diameter, bisection,
    the device of each rank, and the paths of some messages.
    """

    file: Annotated[str, "network file: dimensions, a graph, or one of another tool", "FILE"]
    path: Annotated[
        Sequence[str] | None, "show the path from one rank to another; repeatable", "RANK:RANK"
    ] = None
    svg: Annotated[Path | None, "draw the network into this file", "FILE"] = None
    json: Json = False


def run(options: Options) -> int:
    """Describe the network, and draw it if requested."""
    from et_sim.machine import read_network_alone
    from et_sim.network.description import as_text, describe

    with Progress() as progress:
        progress.stage("reading the network")
        network = read_network_alone(options.file)
        description = describe(network, [_pair(text, network.ranks) for text in options.path or ()])
    if options.svg is not None:
        from et_sim.views.drawing.scene import write_picture

        write_picture(topology_picture(network), options.svg, None)
    print(
        json.dumps(description, indent=2) if options.json else "\n".join(as_text(description, options.file))
    )
    return 0


def _pair(text: str, ranks: int) -> tuple[int, int]:
    source, _, other = text.partition(":")
    if not (source.isdecimal() and other.isdecimal() and int(source) < ranks and int(other) < ranks):
        raise UsageError(
            f"--path is {text!r}", remedy=f'give two ranks below {ranks}, such as "0:{ranks - 1}"'
        )
    if int(source) == int(other):
        raise UsageError(f"--path is {text!r}", remedy="give two different ranks")
    return int(source), int(other)


WIDEST, THINNEST, COLOUR = 3.0, 0.6, "#98a1ab"  # of links


def topology_picture(network: Network) -> str:
    """Return the SVG text."""
    import numpy as np

    from et_sim.machine.graph import NIC
    from et_sim.machine.model import GraphFabric, GridFabric
    from et_sim.network.graph_of_grid import as_graph
    from et_sim.views.drawing.devices import Devices, Line, draw_network, joined_lines, placed
    from et_sim.views.drawing.scene import Scene

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
    """Return the devices, NPUs first and in rank order, and the new place of each."""
    import numpy as np

    from et_sim.machine.graph import NPU

    others = np.flatnonzero(np.asarray(graph.kinds) != NPU)
    order = np.concatenate((np.asarray(graph.npus, np.int64), others))
    number = np.zeros(len(graph.names), np.int64)
    number[order] = np.arange(len(order))
    return order, number
