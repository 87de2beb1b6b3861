"""Formats of weights: the bits of a number, the scales that numbers share, and the type of products.

A product with such weights computes in a datatype of few bits where the device has it. Its inputs are then
cast, too. Elsewhere the kernel reads weights as they are stored, and computes with values.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

ATTENTION_PRODUCTS = (
    *("qkv", "query", "query down", "query up", "key-value down", "key-value up"),
    *("attention output", "index queries", "index keys"),
)
RECURRENCE_PRODUCTS = ("recurrence in", "recurrence out")
DENSE_PRODUCTS = ("feed-forward up", "feed-forward down", "shared expert up", "shared expert down")
EXPERT_PRODUCTS = ("experts up", "experts down")
PRODUCT_NAMES = (*ATTENTION_PRODUCTS, *RECURRENCE_PRODUCTS, *DENSE_PRODUCTS, *EXPERT_PRODUCTS)


class WeightFormat(Struct, frozen=True):
    """The numbers of a matrix of weights."""

    bits: int
    block: tuple[int, int] = (0, 0)  # outputs and inputs that share a scale; 0: all of that side
    scale_bits: int = 32
    computes: str = ""  # datatype of the product; empty: that of values
    requires: str = ""  # datatype that the device must have for it; empty: the same

    def bytes(self, outputs: int, inputs: int) -> int:
        """Return the bytes of a matrix, with its scales."""
        rows, columns = (size or whole for size, whole in zip(self.block, (outputs, inputs), strict=True))
        scales = -(-outputs // rows) * -(-inputs // columns)
        return -(-outputs * inputs * self.bits // 8) - (-scales * self.scale_bits // 8)

    def input_bytes(self, rows: int, inputs: int) -> int:
        """Return the bytes of cast inputs of a product, with scales for the same blocks of each row."""
        bits = {"fp4": 4}.get(self.computes, 8)
        scales = rows * -(-inputs // self.block[1]) if self.block[1] else 0
        return -(-rows * inputs * bits // 8) - (-scales * self.scale_bits // 8)

    def is_computed(self, types: tuple[str, ...]) -> bool:
        """Return whether a device with these datatypes computes in that of the format; (): any."""
        return bool(self.computes) and (not types or (self.requires or self.computes) in types)


FP8 = WeightFormat(8, computes="fp8")
FP8_BLOCK = WeightFormat(8, (128, 128), computes="fp8")
NVFP4 = WeightFormat(4, (1, 16), 8, "fp4")
MXFP4 = WeightFormat(4, (1, 32), 8, "fp8", "fp4")  # inputs have 8 bits; its scales require the same units
INT4 = WeightFormat(4, (1, 128), 16)
#: Formats by the words of options; fp4 is NVFP4.
FORMATS: Mapping[str, WeightFormat] = MappingProxyType(
    {"fp8": FP8, "fp8-block": FP8_BLOCK, "fp4": NVFP4, "mxfp4": MXFP4, "int4": INT4}
)


class LayerFormats(Struct, frozen=True):
    """The formats of a layer's products; those without one have the numbers of values."""

    products: tuple[tuple[str, WeightFormat], ...] = ()  # by name

    def of(self, name: str) -> WeightFormat | None:
        """Return the format of a product's weights; None: that of values."""
        return dict(self.products).get(name)

    def changed(self, names: tuple[str, ...], given: WeightFormat | None) -> LayerFormats:
        """Return these formats with another one for some products."""
        kept = tuple((name, form) for name, form in self.products if name not in names)
        return LayerFormats(kept + tuple((name, given) for name in names if given is not None))
