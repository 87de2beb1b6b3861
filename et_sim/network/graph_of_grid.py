"""Graph of the dimensions of a network file: every link and switch of every line."""

from __future__ import annotations

from msgspec.structs import replace

from et_sim.basics.errors import MachineError, UsageError
from et_sim.machine.graph import SWITCH, GraphBuilder, LinkFigures
from et_sim.machine.model import (
    AT_SWITCH,
    Dimension,
    DimensionShape,
    GraphFabric,
    GridFabric,
    Network,
    Routing,
    UnevenLink,
)
from et_sim.machine.networks import LinkOfGrid

MOST_LINKS = 4_000_000


def as_graph(network: Network) -> Network:
    """Return the network with a graph as its fabric, on which messages take the same paths."""
    fabric = network.fabric
    if isinstance(fabric, GraphFabric):
        return network
    if not isinstance(fabric, GridFabric):
        raise MachineError(
            "a network file of ASTRA-sim 1.0 describes bundles of links, not single links",
            place="network configuration",
            remedy="describe the network in the form of 2.x, or as a graph",
        )
    links = sum(fabric.ranks * min(_peers(dimension), dimension.npus) for dimension in fabric.dimensions)
    if links > MOST_LINKS:
        raise MachineError(
            f"the network has about {links:,} links, more than {MOST_LINKS:,}",
            place="network configuration",
            remedy=f"look at one of at most {MOST_LINKS:,}, with the same dimensions but fewer NPUs",
        )
    build = GraphBuilder()
    build.npus(fabric.ranks)
    switch_of: dict[tuple[int, int], int] = {}
    for number, (dimension, stride) in enumerate(zip(fabric.dimensions, fabric.strides, strict=True)):
        _wire(build, number, dimension, stride, fabric.ranks, switch_of)

    def row_of(link: UnevenLink | LinkOfGrid) -> int:
        ends = [
            switch_of[link.dimension, link.source + link.target - AT_SWITCH] if end == AT_SWITCH else end
            for end in (link.source, link.target)
        ]
        return build.link_names[f"{build.names[ends[0]]}->{build.names[ends[1]]}"]

    for link in fabric.links:
        build.figures[row_of(link)] = LinkFigures(link.bytes_per_ns, link.latency_ns)
    failures = tuple(replace(each, links=tuple(map(row_of, each.links))) for each in network.failures)
    graph = build.built()
    fabric_of_all = GraphFabric(graph, Routing.DIMENSION_ORDER, npus_forward=True)
    return replace(network, fabric=fabric_of_all, failures=failures)


def with_single_ways(network: Network) -> Network:
    """Return the graph for models with one path per message: a hash picks it where a default spreads."""
    wired = as_graph(network)
    fabric = wired.fabric
    assert isinstance(fabric, GraphFabric)
    if fabric.routing is not Routing.SPREAD:
        return wired
    if fabric.names_routing:
        raise UsageError(
            "routing: spread is not supported by models of packets, which take one path per message",
            remedy="give routing: ecmp or destination, or take --network-model flow",
        )
    return replace(wired, fabric=replace(fabric, routing=Routing.ECMP))


def _peers(dimension: Dimension) -> int:
    return dimension.npus - 1 if dimension.shape is DimensionShape.FULLY_CONNECTED else 2


def _wire(
    build: GraphBuilder,
    number: int,
    dimension: Dimension,
    stride: int,
    ranks: int,
    switch_of: dict[tuple[int, int], int],
) -> None:
    """Add all links of one dimension; clockwise links come first, because they win ties."""
    size, figures = dimension.npus, LinkFigures(dimension.bytes_per_ns, dimension.latency_ns)
    if size == 1:
        return
    if dimension.shape is DimensionShape.SWITCH:
        for rank in range(ranks):
            first = rank - rank // stride % size * stride
            if rank == first:
                switch = build.device(f"dimension{number}.switch{len(switch_of)}", SWITCH, number + 1)
            switch_of[number, rank] = switch if rank == first else switch_of[number, first]
            build.cable(rank, switch_of[number, rank], figures)
        return
    is_ring = dimension.shape is DimensionShape.RING
    ahead = ((1,) if size == 2 else (1, size - 1)) if is_ring else range(1, size)
    for step in ahead:
        for rank in range(ranks):
            here = rank // stride % size
            build.link(rank, rank + ((here + step) % size - here) * stride, figures)
