"""Levels of ASTRA-sim 1.0 as wired dimensions, for models in which messages share links.

A bundle of links becomes one link of the rate that 1.0 gives a message: of all used links of an NPU on a
ring, in either direction, or to a switch, and of the links to one peer among fully connected NPUs. Cards and
routers add to the latency of the hops. The cost of the memory, and of cards on several hops of a ring,
belongs to no link, and is refused.
"""

from __future__ import annotations

from msgspec.structs import replace

from et_sim.basics.errors import UsageError
from et_sim.machine.model import Dimension, DimensionShape, GridFabric, LevelFabric, Network
from et_sim.machine.networks import Level


def without_levels(network: Network, model: str) -> Network:
    """Return the network with wired dimensions in place of levels, for a network model by its name."""
    fabric = network.fabric
    if not isinstance(fabric, LevelFabric):
        return network
    dimensions = tuple(_dimension(level, number, model) for number, level in enumerate(fabric.levels))
    return replace(network, fabric=GridFabric(dimensions), fraction_bits=0)


def _dimension(level: Level, number: int, model: str) -> Dimension:
    if level.memory_scale:
        raise _refusal("hbm-scale", number, model, "the memory bounds whole messages, which cross links")
    latency_ns = level.latency_ns
    if level.shape is DimensionShape.SWITCH:
        latency_ns += level.nic_ns + level.router_ns / 2
    elif level.nic_ns and level.shape is DimensionShape.RING and level.npus > 3:
        raise _refusal("nic-latency", number, model, "a message pays for two cards on any number of hops")
    else:
        latency_ns += 2 * level.nic_ns
    peers = max(level.npus - 1, 1) if level.shape is DimensionShape.FULLY_CONNECTED else 1
    rate = level.link_bandwidth * (level.links_used // peers)
    return Dimension(shape=level.shape, npus=level.npus, bandwidth=rate, latency_ns=latency_ns)


def _refusal(key: str, number: int, model: str, why: str) -> UsageError:
    return UsageError(
        f'key "{key}" index {number} of a network file of 1.0 is not supported by the {model} model: {why}',
        remedy="set it to 0, or take --network-model analytical",
    )
