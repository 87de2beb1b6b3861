"""What a message between two ranks costs, as a number: equal numbers, equal times on an idle path.

Where links queue messages, or differ in speed, only paths that use nothing but links of their two ends are
told apart like that; with others, ranks are not folded.

Not here: the times themselves (the fabrics).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.machine.model import AT_SWITCH, Dimension, Level, Network, Shape
from et_sim.plan.mixing import mix


class Paths:
    """Paths through a network; `on_links`: messages queue for links."""

    def __init__(self, network: Network, *, on_links: bool, whole: bool) -> None:
        self._network = network
        self._on_links = on_links
        self._whole = whole  # messages pay for all dimensions they cross, not for the lowest one only
        # Whether two pairs of ranks equally far apart along one dimension can have different paths.
        self.are_directed = on_links or bool(network.links)
        # Whether two pairs equally far apart along one dimension can have paths of different lengths.
        self.differ_along_lines = self.are_directed or network.is_cut
        self._uneven = _UnevenLinks(network) if network.links else None

    def codes(self, source: Any, target: Any) -> Any:
        """A number for the path of each pair, there and (where links differ) back."""
        if self._network.levels:
            return _highest_distance(self._network, source, target)
        if not (self._whole or self.are_directed):
            return _lowest_distance(self._network, source, target)
        code = _distances(self._network, source, target, directed=self.are_directed)
        if self._uneven is None:
            return code
        there, back = self._uneven.on_path(source, target), self._uneven.on_path(target, source)
        with np.errstate(over="ignore"):
            return mix(mix(mix(code, 0) + there, 0) + back, 0)

    def can_be_folded(self, source: Any, target: Any) -> bool:
        """Whether the codes of these pairs say all about their paths."""
        if not self.are_directed:
            return True
        has_one_link = _has_one_link(self._network, source, target)
        if self._on_links:
            return bool(has_one_link.all())
        touched = np.zeros(has_one_link.shape, bool)
        for number in {link.dimension for link in self._network.links}:
            dimension, stride = self._network.dimensions[number], self._network.strides[number]
            touched |= (target // stride - source // stride) % dimension.npus != 0
        return bool((has_one_link | ~touched).all())


class _UnevenLinks:
    """Numbers for the speeds of links, found by the pairs of ranks whose messages cross them."""

    def __init__(self, network: Network) -> None:
        self._network = network
        speeds = sorted({(link.bandwidth, link.latency_ns) for link in network.links})
        pairs = []
        self._up: dict[int, Any] = {}  # per Switch dimension: by NPU; 0: like the others
        self._down: dict[int, Any] = {}
        for link in network.links:
            speed = 1 + speeds.index((link.bandwidth, link.latency_ns))
            if network.dimensions[link.dimension].shape is not Shape.SWITCH:
                pairs.append((link.source * network.ranks + link.target, speed))
                continue
            for numbers in (self._up, self._down):
                numbers.setdefault(link.dimension, np.zeros(network.ranks, np.int64))
            if link.target == AT_SWITCH:
                self._up[link.dimension][link.source] = speed
            else:
                self._down[link.dimension][link.target] = speed
        self._pair, self._speed = np.array(sorted(pairs), np.int64).reshape(-1, 2).T

    def on_path(self, source: Any, target: Any) -> Any:
        """A number for the speeds on each path that has one link, or a switch."""
        pair = source * self._network.ranks + target
        found = np.zeros(np.broadcast(source, target).shape, np.uint64)
        if len(self._pair):
            at = np.minimum(np.searchsorted(self._pair, pair), len(self._pair) - 1)
            found += mix(np.where(self._pair[at] == pair, self._speed[at], 0), 1)
        with np.errstate(over="ignore"):
            for number, up in self._up.items():
                dimension, stride = self._network.dimensions[number], self._network.strides[number]
                crosses = (target // stride - source // stride) % dimension.npus != 0
                speeds = mix(up[source], 2) + mix(self._down[number][target], 3)
                found += np.where(crosses, mix(speeds, 4 + number), np.uint64(0))
        return found


def _distances(network: Network, source: Any, target: Any, *, directed: bool) -> Any:
    """A number for the hops of each pair per dimension, or for how far it goes (`directed`).

    Behind a switch all are equally far: a message takes its source's link up and its target's link down.
    """
    code = np.zeros(np.broadcast(source, target).shape, np.int64)
    for dimension, stride in zip(network.dimensions, network.strides, strict=True):
        ahead = (target // stride - source // stride) % dimension.npus
        is_ahead = directed and dimension.shape is not Shape.SWITCH
        code = code * dimension.npus + (ahead if is_ahead else _hops(dimension, ahead))
    return code


def _lowest_distance(network: Network, source: Any, target: Any) -> Any:
    """A number for the lowest dimension in which each pair differs, and the hops there."""
    code = np.zeros(np.broadcast(source, target).shape, np.int64)
    for number, (dimension, stride) in enumerate(zip(network.dimensions, network.strides, strict=True)):
        ahead = (target // stride - source // stride) % dimension.npus
        hops = _hops(dimension, ahead)
        code = np.where((code == 0) & (hops > 0), hops * len(network.dimensions) + number, code)
    return code


def _highest_distance(network: Network, source: Any, target: Any) -> Any:
    """A number for the highest level in which each pair differs, and the hops there."""
    code = np.zeros(np.broadcast(source, target).shape, np.int64)
    stride = 1
    for number, level in enumerate(network.levels):
        hops = _hops(level, (target // stride - source // stride) % level.npus)
        code = np.where(hops > 0, hops * len(network.levels) + number, code)
        stride *= level.npus
    return code


def _hops(dimension: Dimension | Level, ahead: Any) -> Any:
    if dimension.shape is Shape.RING:
        return np.minimum(ahead, dimension.npus - ahead)
    return np.minimum(ahead, 1)


def _has_one_link(network: Network, source: Any, target: Any) -> Any:
    """Whether a message uses only links of its two ends: one dimension, and one hop or a switch."""
    dimensions = np.zeros(np.broadcast(source, target).shape, np.int64)
    longest = np.zeros(dimensions.shape, np.int64)
    for dimension, stride in zip(network.dimensions, network.strides, strict=True):
        ahead = (target // stride - source // stride) % dimension.npus
        dimensions += ahead != 0
        if dimension.shape is Shape.RING:
            longest = np.maximum(longest, np.minimum(ahead, dimension.npus - ahead))
    return (dimensions == 1) & (longest <= 1)
