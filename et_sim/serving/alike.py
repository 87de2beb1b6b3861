"""Replicas at different places of a machine whose passes take equal times.

On a grid of rings, switches and full connections with equal links, a shift of all ranks along one dimension
changes nothing. If a replica has whole dimensions, or divides one, then such shifts move it to the place of
any other replica of its size, and keep the order of its ranks, while all other ranks are idle.
"""

from __future__ import annotations

from itertools import accumulate
from operator import mul

from et_sim.machine import Machine
from et_sim.machine.networks import GridFabric


def are_alike(machine: Machine, ranks: int) -> bool:
    """Return whether replicas of some ranks, one behind the other, are alike wherever they are."""
    network = machine.network
    fabric = network.fabric
    if not isinstance(fabric, GridFabric) or fabric.links or fabric.reducers:
        return False
    if network.failures or machine.slow or machine.groups or machine.system.stragglers:
        return False
    sizes = [
        [each.npus for each in dimensions] for dimensions in (fabric.dimensions, network.grid.dimensions)
    ]
    wholes = [size for each in sizes for size in accumulate(each, mul)]
    return all(size % ranks == 0 or ranks % size == 0 for size in wholes)
