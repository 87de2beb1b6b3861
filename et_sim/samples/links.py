"""Networks whose links are slower or faster by factors of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec.structs import replace

from et_sim.basics.errors import MachineError
from et_sim.machine.networks import (
    AT_SWITCH,
    Dimension,
    DimensionShape,
    GraphFabric,
    GridFabric,
    Network,
    UnevenLink,
)


class VariedLinks:
    """The links of a network, each of which is an element by its place in the machine."""

    def __init__(self, network: Network, place: str) -> None:
        """Number the links; refuse networks without any of their own."""
        self._network, fabric = network, network.fabric
        if network.loggops is not None or not isinstance(fabric, GridFabric | GraphFabric):
            raise MachineError(
                'kind "link" has no effect: this network has no links of their own',
                place=place,
                remedy="vary kernels, or describe the network by dimensions or as a graph",
            )
        self._links = [*_links_of(fabric)] if isinstance(fabric, GridFabric) else []
        self.count = len(self._links) if isinstance(fabric, GridFabric) else len(fabric.graph.sources)

    def with_factors(self, factors: Any) -> Network:
        """Return the network in which bytes take so many times as long on each link."""
        fabric = self._network.fabric
        if isinstance(fabric, GraphFabric):
            graph = replace(fabric.graph, bytes_per_ns=fabric.graph.bytes_per_ns / factors, numbers=None)
            return replace(self._network, fabric=replace(fabric, graph=graph))
        assert isinstance(fabric, GridFabric)
        links = tuple(
            replace(link, bandwidth=link.bandwidth / factor)
            for link, factor in zip(self._links, factors.tolist(), strict=True)
        )
        return replace(self._network, fabric=replace(fabric, links=links))


def _links_of(fabric: GridFabric) -> Iterator[UnevenLink]:
    """Yield all directed links of a grid, with their figures."""
    stated = {(link.dimension, link.source, link.target): link for link in fabric.links}
    stride = 1
    for number, dimension in enumerate(fabric.dimensions):
        for source, target in _ends(dimension, stride, fabric.ranks):
            plain = UnevenLink(number, source, target, dimension.bandwidth, dimension.latency_ns)
            yield stated.get((number, source, target), plain)
        stride *= dimension.npus


def _ends(dimension: Dimension, stride: int, ranks: int) -> Iterator[tuple[int, int]]:
    """Yield the ends of the links of a dimension, by NPU."""
    for npu in range(ranks) if dimension.npus > 1 else ():
        position = npu // stride % dimension.npus
        first = npu - position * stride
        match dimension.shape:
            case DimensionShape.SWITCH:
                yield npu, AT_SWITCH
                yield AT_SWITCH, npu
            case DimensionShape.RING:
                around = {(position + 1) % dimension.npus, (position - 1) % dimension.npus}
                yield from ((npu, first + other * stride) for other in sorted(around))
            case _:
                others = np.delete(np.arange(dimension.npus), position).tolist()
                yield from ((npu, first + other * stride) for other in others)
