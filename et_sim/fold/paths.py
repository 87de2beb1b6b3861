"""What a message between two ranks costs, as a number: equal numbers, equal times on an idle path.

Not here: the times themselves (`et_sim.network`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from et_sim.machine.model import Network, Shape


def path_codes(network: Network, source: Any, target: Any, *, directed: bool) -> Any:
    """A number for the path of each pair: its hops per dimension, or how far it goes (`directed`)."""
    code = np.zeros(np.broadcast(source, target).shape, np.int64)
    for dimension, stride in zip(network.dimensions, network.strides, strict=True):
        ahead = (target // stride - source // stride) % dimension.npus
        if directed:
            far = ahead
        elif dimension.shape is Shape.RING:
            far = np.minimum(ahead, dimension.npus - ahead)
        else:
            far = np.minimum(ahead, 1)
        code = code * dimension.npus + far
    return code


def crosses_one_link(network: Network, source: Any, target: Any) -> Any:
    """Whether a message uses only links of its two ends: one dimension, and one hop or a switch."""
    dimensions = np.zeros(np.broadcast(source, target).shape, np.int64)
    longest = np.zeros(dimensions.shape, np.int64)
    for dimension, stride in zip(network.dimensions, network.strides, strict=True):
        ahead = (target // stride - source // stride) % dimension.npus
        dimensions += ahead != 0
        if dimension.shape is Shape.RING:
            longest = np.maximum(longest, np.minimum(ahead, dimension.npus - ahead))
    return (dimensions == 1) & (longest <= 1)
