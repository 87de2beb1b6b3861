"""What a network costs, by the price list of ASTRA-sim 1.0: dollars per GB/s of links, switches and cards.

The list has a line for each thing that a dimension can be built of; a switch is paid for by its ports.
Nothing that is simulated depends on it.
"""

from __future__ import annotations

from typing import NamedTuple

from et_sim.machine.model import Level, Network, Shape


class Prices(NamedTuple):
    """Dollars per GB/s."""

    link: float
    switch: float
    card: float


PRICES = {
    "Tile": Prices(1, 0, 0),
    "Package": Prices(4, 13, 0),
    "Node": Prices(4, 13, 0),
    "Pod": Prices(7.4, 23.7, 47.8),
}


def price_of(network: Network) -> float:
    """Dollars for all levels of a network."""
    return sum(_per_bandwidth(level, network.ranks) * level.link_bandwidth for level in network.levels)


def _per_bandwidth(level: Level, ranks: int) -> float:
    prices = PRICES.get(level.built_of, PRICES["Node"])
    if level.shape is Shape.RING:
        return ranks * (level.links // 2) * prices.link
    if level.shape is Shape.FULLY_CONNECTED:
        peers = max(level.npus - 1, 1)
        return ranks * peers // 2 * (level.links // peers) * prices.link
    return ranks * level.links * sum(prices)
