"""The attribute `layer_shape`: a matrix product or a convolution, in words.

    gemm M N K
    conv HEIGHT WIDTH FILTER_HEIGHT FILTER_WIDTH CHANNELS FILTERS STRIDE_HEIGHT STRIDE_WIDTH

The order is that of the columns of SCALE-Sim's topologies. Not here: those files (`topology_file`).
"""

from __future__ import annotations

from types import MappingProxyType

from et_sim.compute.systolic.layer import Dimensions, Layer
from et_sim.compute.systolic.topology_file import LARGEST, refuse_large_filter
from et_sim.errors import TraceError, did_you_mean

_COUNTS = MappingProxyType({"gemm": 3, "conv": 8})


def parse_shape(text: str, place: str) -> Layer:
    """The layer that a node's attribute describes."""
    word, *sizes = text.split() or [""]
    if word not in _COUNTS:
        near = did_you_mean(word, tuple(_COUNTS))
        raise TraceError(
            f"layer_shape is {text!r}", place=place, remedy=f'{near} write "gemm M N K" or "conv …"'.strip()
        )
    if len(sizes) != _COUNTS[word]:
        raise TraceError(
            f"layer_shape {text!r} has {len(sizes)} numbers",
            place=place,
            remedy=f"{word} has {_COUNTS[word]}",
        )
    for size in sizes:
        if not (size.isascii() and size.isdigit() and 1 <= int(size[:30]) <= LARGEST):
            raise TraceError(
                f"layer_shape {text!r} has the size {size}",
                place=place,
                remedy=f"sizes are whole numbers from 1 to {LARGEST:,}",
            )
    numbers = [int(size) for size in sizes]
    if word == "gemm":
        return Layer.product(text, *numbers)
    dimensions = Dimensions(*numbers)
    refuse_large_filter(dimensions, place)
    return Layer(text, dimensions)
