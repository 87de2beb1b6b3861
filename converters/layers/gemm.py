"""Layers that are matrix products, shared between NPUs, as a layer file.

A *strategy* defines the share of each of P NPUs in a product m x k times k x n, and its communication in each
phase. G packages of L = P/G NPUs each are dimensions 1 and above and dimension 0 of the machine. Sizes that
do not divide are rounded up: the largest share of an NPU counts.

| strategy          | rows | k   | columns | forward          | input gradient       | weight gradient  |
| ----------------- | ---- | --- | ------- | ---------------- | -------------------- | ---------------- |
| DATA              | m/P  | k   | n       |                  |                      | all-reduce k n   |
| MODEL             | m    | k   | n/P     | all-gather m n/P | reduce-scatter m k   |                  |
| HYBRID_DATA_MODEL | m/G  | k   | n/L     | all-gather m n/P | reduce-scatter m k/G | all-reduce k n/L |
| HYBRID_MODEL_DATA | m/L  | k   | n/G     | all-gather m n/P | reduce-scatter m k/L | all-reduce k n/G |
| COLUMN            | m/G  | k   | n/L     |                  | all-reduce m k/G     | all-reduce k n/L |
| ROW               | m/G  | k/L | n       | all-reduce m n/G |                      | all-reduce k n/L |
| LOCAL             | m/P  | k   | n       |                  |                      |                  |
| EMBEDDING         | m    | k   | n/P     | all-to-all m n/P | all-to-all m n/P     |                  |

COLUMN and ROW are the halves of a transformer's block with tensor parallelism, LOCAL is a product without
weights. EMBEDDING is not a product: each of n columns of m rows is the sum of k looked-up values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from converters.layers.products import ProductLine
from et_sim.basics.errors import InputError, TraceError, UsageError
from et_sim.basics.units import MOST_BYTES
from et_sim.compute import Roofline
from et_sim.compute.systolic import ClockedArray
from et_sim.compute.systolic.layer import SystolicLayer
from et_sim.compute.systolic.model import LayerReport
from et_sim.layerfile.layer_file import Keyword, Layer, LayerFile, LayerPhase, PhaseWork
from et_sim.trace.columns import CollectiveKind


class LayerKernel(NamedTuple):
    """The operation of one NPU in a phase; `lookups`: sums of looked-up values instead of a product."""

    rows: int
    inner: int
    columns: int
    lookups: bool = False


class ProductSharing(Struct, frozen=True):
    """The number of NPUs, and how products are shared between them."""

    npus: int
    packages: int = 1
    value_bytes: int = 2
    update_ns: int = 100
    strategy: str = "DATA"  # of products that name none
    last_bottom_layer: str = ""  # with EMBEDDING: the layer's name

    def __post_init__(self) -> None:
        for name, value in (("npus", self.npus), ("packages", self.packages)):
            if not 1 <= value <= 1 << 24:
                raise UsageError(f"{name} is {value}", remedy=f"give a number from 1 to {1 << 24:,}")
        if not 1 <= self.value_bytes <= 64:
            raise UsageError(f"a value has {self.value_bytes} bytes", remedy="give 1 to 64 bytes")
        if self.update_ns < 0:
            raise UsageError(f"update is {self.update_ns}", remedy="give a number of nanoseconds")
        if self.npus % self.packages:
            raise UsageError(
                f"{self.packages} packages do not divide {self.npus} NPUs",
                remedy="every package has equally many NPUs",
            )

    @property
    def per_package(self) -> int:
        """Return the number of NPUs of a package."""
        return self.npus // self.packages


class _Strategy(Struct, frozen=True):
    """The divisors of m, k and n, and (collective, its values, their divisors) by phase.

    Divisors and values are letters: P, G, L of the machine; "mn" is m times n. "" is one, or nothing.
    """

    divisors: tuple[str, str, str]
    exchanges: tuple[tuple[CollectiveKind | None, str, str], ...]


_NOTHING = (None, "", "")
_REDUCE, _GATHER = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
_SCATTER, _EXCHANGE = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL
_STRATEGIES = MappingProxyType(
    {
        "DATA": _Strategy(("P", "", ""), (_NOTHING, _NOTHING, (_REDUCE, "kn", ""))),
        "MODEL": _Strategy(("", "", "P"), ((_GATHER, "mn", "P"), (_SCATTER, "mk", ""), _NOTHING)),
        "HYBRID_DATA_MODEL": _Strategy(
            ("G", "", "L"), ((_GATHER, "mn", "P"), (_SCATTER, "mk", "G"), (_REDUCE, "kn", "L"))
        ),
        "HYBRID_MODEL_DATA": _Strategy(
            ("L", "", "G"), ((_GATHER, "mn", "P"), (_SCATTER, "mk", "L"), (_REDUCE, "kn", "G"))
        ),
        "COLUMN": _Strategy(("G", "", "L"), (_NOTHING, (_REDUCE, "mk", "G"), (_REDUCE, "kn", "L"))),
        "ROW": _Strategy(("G", "L", ""), ((_REDUCE, "mn", "G"), _NOTHING, (_REDUCE, "kn", "L"))),
        "LOCAL": _Strategy(("P", "", ""), (_NOTHING, _NOTHING, _NOTHING)),
        "EMBEDDING": _Strategy(("", "", "P"), ((_EXCHANGE, "mn", "P"), (_EXCHANGE, "mn", "P"), _NOTHING)),
    }
)
STRATEGIES = tuple(_STRATEGIES)
_TENSOR, _EMBEDDING, _LOCAL = ("COLUMN", "ROW"), "EMBEDDING", "LOCAL"

Timer = Callable[[Sequence[LayerKernel], int], list[int]]  # kernels and bytes of a value -> ns


def roofline_timer(peak_tflops: float, memory_gbps: float) -> Timer:
    """Return a timer based on peak and bandwidth, in which every operand is moved once."""
    for name, value in (("peak", peak_tflops), ("bandwidth", memory_gbps)):
        if not 0 < value < float("inf"):
            raise UsageError(f"the {name} is {value}", remedy="give a number of more than 0")
    machine = Roofline(peak_tflops, memory_gbps)

    def times(kernels: Sequence[LayerKernel], value_bytes: int) -> list[int]:
        counts = [_counts(kernel) for kernel in kernels]
        worst = max(max(operations, values * value_bytes) for operations, values in counts)
        if worst > MOST_BYTES:
            raise TraceError(
                f"a product has {worst:,} operations or bytes on one NPU",
                remedy=f"stay below {MOST_BYTES:,}: give smaller products, or more NPUs",
            )
        operations = np.array([operations for operations, _ in counts], np.int64)
        values = np.array([values for _, values in counts], np.int64)
        durations: list[int] = machine.duration_ns(operations, values * value_bytes).tolist()
        return durations

    return times


def systolic_timer(clocked: ClockedArray) -> Timer:
    """Return a timer of a systolic array, whose words are values of any size."""
    known: dict[LayerKernel, int] = {}

    def times(kernels: Sequence[LayerKernel], value_bytes: int) -> list[int]:  # noqa: ARG001
        if any(kernel.lookups for kernel in kernels):
            raise UsageError(
                f"{_EMBEDDING} is no product, and systolic arrays support products only",
                remedy="time such a model with --compute roofline",
            )
        for kernel in kernels:
            if kernel not in known:
                name = f"{kernel.rows} x {kernel.inner} x {kernel.columns}"
                layer = SystolicLayer.product(name, kernel.rows, kernel.columns, kernel.inner)
                known[kernel] = clocked.duration_ns(LayerReport(layer, clocked.array).cycles)
        return [known[kernel] for kernel in kernels]

    return times


def _counts(kernel: LayerKernel) -> tuple[int, int]:
    """Return (operations, values moved) of a kernel."""
    rows, inner, columns, lookups = kernel
    if lookups:
        return rows * inner * columns, rows * columns * (inner + 1)
    return 2 * rows * inner * columns, rows * inner + inner * columns + rows * columns


def layers_of(products: Sequence[ProductLine], shape: ProductSharing, timer: Timer, source: str) -> LayerFile:
    """Return the layer file of these products, in their order."""
    named = [product.strategy or shape.strategy for product in products]
    keyword = _keyword(products, named, source)
    layers = []
    for at, product in enumerate(products):
        place = f"{source}, line {product.line}" if product.line else source
        try:
            times = timer(_kernels(product, named[at], shape), shape.value_bytes)
            works = [
                PhaseWork(times[phase], *_exchange(product, named[at], phase, shape)) for phase in LayerPhase
            ]
        except InputError as error:
            raise TraceError(error.cause, place=place, remedy=error.remedy) from None
        own_keyword = None
        if keyword == Keyword.HYBRID_CUSTOMIZED:
            own_keyword = Keyword("DATA" if named[at] == _LOCAL else named[at])
        layers.append(Layer(product.name, works[0], works[1], works[2], shape.update_ns, own_keyword))
    return LayerFile(
        keyword,
        tuple(layers),
        shape.per_package if keyword == Keyword.HYBRID_TRANSFORMER else None,
        last_bottom_layer=_bottom(products, shape, source) if keyword == Keyword.HYBRID_DLRM else None,
        source=source,
    )


def rounded_up(products: Sequence[ProductLine], shape: ProductSharing) -> int:
    """Return the number of products that are divided with a remainder."""
    rounded = 0
    for product in products:
        divisors = _STRATEGIES[product.strategy or shape.strategy].divisors
        sizes = zip((product.m, product.k, product.n), divisors, strict=True)
        rounded += any(size % _count(letter, shape) for size, letter in sizes)
    return rounded


def _keyword(products: Sequence[ProductLine], named: list[str], source: str) -> Keyword:
    """Return the training loop that fits these strategies."""
    kinds = set(named) - {_LOCAL}
    if _EMBEDDING in kinds:
        wrong = next((at for at, kind in enumerate(named) if at and kind not in ("DATA", _LOCAL)), None)
        if named[0] != _EMBEDDING or wrong is not None:
            at = wrong or 0
            raise TraceError(
                f"layer {products[at].name} is {named[at]}",
                place=f"{source}, line {products[at].line}",
                remedy="with EMBEDDING, the first layer is EMBEDDING, and all others are DATA or LOCAL",
            )
        return Keyword.HYBRID_DLRM
    if kinds & set(_TENSOR):
        wrong = next((at for at, kind in enumerate(named) if kind not in (*_TENSOR, _LOCAL)), None)
        if wrong is not None:
            raise TraceError(
                f"layer {products[wrong].name} is {named[wrong]}, and others are COLUMN or ROW",
                place=f"{source}, line {products[wrong].line}",
                remedy="COLUMN and ROW go together with LOCAL only",
            )
        return Keyword.HYBRID_TRANSFORMER
    if len(kinds) > 1:
        return Keyword.HYBRID_CUSTOMIZED
    return Keyword(kinds.pop()) if kinds else Keyword.DATA


def _bottom(products: Sequence[ProductLine], shape: ProductSharing, source: str) -> int:
    names = [product.name for product in products]
    if shape.last_bottom_layer not in names:
        raise UsageError(
            f"the last bottom layer is called {shape.last_bottom_layer!r}"
            if shape.last_bottom_layer
            else "the last layer of the bottom MLP is not given",
            place=source,
            remedy=f"name one of {', '.join(names[:8])}{', …' if len(names) > 8 else ''}",
        )
    return names.index(shape.last_bottom_layer)


def _kernels(product: ProductLine, strategy: str, shape: ProductSharing) -> list[LayerKernel]:
    """Return the kernels of an NPU: forward, input gradient, weight gradient."""
    divisors = _STRATEGIES[strategy].divisors
    m, k, n = (
        _divided(size, letter, shape)
        for size, letter in zip((product.m, product.k, product.n), divisors, strict=True)
    )
    if strategy == _EMBEDDING:
        return [LayerKernel(m, k, n, True)] * 3
    return [LayerKernel(m, k, n), LayerKernel(m, n, k), LayerKernel(k, m, n)]


def _exchange(
    product: ProductLine, strategy: str, phase: LayerPhase, shape: ProductSharing
) -> tuple[CollectiveKind | None, int]:
    kind, letters, divisor = _STRATEGIES[strategy].exchanges[phase]
    if kind is None:
        return None, 0
    values = {"mn": product.m * product.n, "mk": product.m * product.k, "kn": product.k * product.n}[letters]
    size = _divided(values * shape.value_bytes, divisor, shape)
    if size > MOST_BYTES:
        remedy = f"stay below {MOST_BYTES:,}: give smaller products"
        raise TraceError(f"layer {product.name} exchanges {size:,} bytes", remedy=remedy)
    return kind, size


def _divided(size: int, letter: str, shape: ProductSharing) -> int:
    """Divide and round up."""
    return -(-size // _count(letter, shape))


def _count(letter: str, shape: ProductSharing) -> int:
    return {"": 1, "P": shape.npus, "G": shape.packages, "L": shape.per_package}[letter]
