"""Shapes of operations as layers of a systolic array: convolutions, and products of matrices.

Not here: how shapes are written (`et_sim.compute.operations`).
"""

from __future__ import annotations

from et_sim.compute.operations import read_shape
from et_sim.compute.systolic.layer import Dimensions, Layer
from et_sim.compute.systolic.topology_file import LARGEST
from et_sim.errors import TraceError

CONVOLUTION = "conv"


def layers_of(text: str, place: str) -> tuple[tuple[Layer, int], ...]:
    """The layers of which an operation consists, and how many there are of each."""
    shape = read_shape(text, place)
    operation = shape.operation
    if not operation.products:
        raise TraceError(
            f"layer_shape {text!r} is no matrix product or convolution: a systolic array does nothing else",
            place=place,
            remedy='let another rule of "compute" time it: "where": {"operation": …}',
        )
    is_convolution = shape.kind == CONVOLUTION
    sides = [side for one in operation.products for side in (one.rows, one.columns, one.inner)]
    largest = max(shape.numbers if is_convolution else sides)
    if largest > LARGEST:
        raise TraceError(
            f"layer_shape {text!r} has the size {largest:,}",
            place=place,
            remedy=f"a systolic array takes {LARGEST:,} at most: cut the operation into several kernels",
        )
    if is_convolution:
        return ((Layer(text, Dimensions(*shape.numbers), place), shape.count),)
    return tuple(
        (Layer.product(text, one.rows, one.columns, one.inner, place=place), one.count)
        for one in operation.products
    )
