"""A list of convolutions in SCALE-Sim's columns, as the products that they are for a number of images.

    Layer name, IFMAP Height, IFMAP Width, Filter Height, Filter Width, Channels, Num Filter, Strides,
    Conv1, 230, 230, 7, 7, 3, 64, 2,

The product of a convolution has a row for each output pixel, a column for each filter, and sums up the
values of a window.

Not here: the file's rules (`et_sim.compute.systolic.topology_file`), and what the products become (`gemm`).
"""

from __future__ import annotations

from converters.layers.gemm_csv import MOST, Product
from et_sim.basics.errors import TraceError, UsageError
from et_sim.compute.systolic.topology_file import Layout, parse_topology
from et_sim.layerfile.tokens import shown


def parse_convolutions(text: str, source: str, images: int) -> list[Product]:
    """All layers of a list, in order, each of so many images."""
    if images < 1:
        raise UsageError(f"--images is {images}", remedy="give how many images all NPUs process in a step")
    found = []
    for layer in parse_topology(text, source, Layout.CONVOLUTIONS):
        if len(layer.name.split()) != 1:
            raise TraceError(
                f"{shown(layer.name)} cannot be the name of a layer",
                place=layer.place,
                remedy="give one word without blanks",
            )
        if layer.rows * images > MOST:
            raise TraceError(
                f"layer {layer.name} has {layer.rows * images:,} output pixels",
                place=layer.place,
                remedy=f"give fewer images: {MOST:,} pixels are the most",
            )
        line = int(layer.place.rpartition(" ")[2])
        found.append(Product(layer.name, layer.rows * images, layer.columns, layer.inner, "", line))
    return found
