"""The workloads of the study of TPU-like arrays: the products of a step of training, and what is exchanged.

A convolution is the product of its windows with its filters. Not here: machines and results (`tpu`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from et_sim import TraceBuilder, Workload

NPUS = 64
VALUE_BYTES = 2
IMAGES = 32  # of an NPU, in a step
SHARERS, REPLICAS = 4, 16  # NPUs that share a layer of the transformer, and how many such there are
LENGTH, WIDTH, HEADS, SEQUENCES = 2048, 4096, 32, 4  # sequences of those that share a layer
ALL, SHARING, REPLICATING = [True] * 3, [True, False, False], [False, True, True]


class Product(NamedTuple):
    """M x K times K x N."""

    name: str
    rows: int
    columns: int
    inner: int

    @property
    def shape(self) -> str:
        """Return the shape of a kernel."""
        return f"gemm {self.rows} {self.columns} {self.inner}"

    @property
    def operations(self) -> int:
        """Return the number of multiplications and additions."""
        return 2 * self.rows * self.columns * self.inner

    @property
    def gradient_bytes(self) -> int:
        """Return the bytes of the second factor, whose gradients are summed."""
        return self.inner * self.columns * VALUE_BYTES

    def input_gradient(self) -> Product:
        """Return the product for the gradient of the first factor."""
        return Product(f"{self.name} input gradient", self.rows, self.inner, self.columns)

    def weight_gradient(self) -> Product:
        """Return the product for the gradient of the second factor."""
        return Product(f"{self.name} weight gradient", self.inner, self.columns, self.rows)


class Step(Struct):
    """A step of every NPU: kernels one after the other, and collectives."""

    build: TraceBuilder
    kernels: list[Product]
    last: list[int]

    @classmethod
    def empty(cls) -> Step:
        """Begin an empty program."""
        return cls(TraceBuilder(), [], [])

    def compute(self, product: Product) -> None:
        """Add a kernel after the awaited nodes."""
        self.kernels.append(product)
        self.last = [self.build.compute(product.name, layer_shape=product.shape, after=self.last)]

    def sum_up(self, name: str, size: int, dimensions: list[bool], *, is_awaited: bool) -> None:
        """Add an all-reduce of the last kernel's result."""
        node = self.build.collective(
            "all_reduce", size, name=f"{name} all-reduce", involved_dims=dimensions, after=self.last
        )
        if is_awaited:
            self.last = [node]

    def workload(self) -> Workload:
        """Return a workload with this program on every NPU."""
        return Workload.of([self.build.build()] * NPUS)


def convolutions(images: int) -> Iterator[Product]:
    """Yield ResNet-50: four stages of blocks of three layers; a stage's first block has a projection."""
    yield Product("conv1", images * 112 * 112, 64, 7 * 7 * 3)
    entering = 64
    stages = ((3, 56, 64), (4, 28, 128), (6, 14, 256), (3, 7, 512))
    for stage, (blocks, side, middle) in enumerate(stages, start=2):
        pixels, leaving = images * side * side, 4 * middle
        for block in range(1, blocks + 1):
            name = f"conv{stage}_{block}"
            if block == 1:
                yield Product(f"{name} projection", pixels, leaving, entering)
            yield Product(f"{name} a", pixels, middle, entering)
            yield Product(f"{name} b", pixels, middle, 9 * middle)
            yield Product(f"{name} c", pixels, leaving, middle)
            entering = leaving
    yield Product("fc", images, 1000, entering)


def resnet(layers: int | None = None) -> Step:
    """Return data-parallel training: gradients are summed while the layers below compute theirs."""
    step, products = Step.empty(), list(convolutions(IMAGES))[:layers]
    for product in products:
        step.compute(product)
    for product in reversed(products):
        step.compute(product.weight_gradient())
        step.sum_up(product.name, product.gradient_bytes, ALL, is_awaited=False)
        if product is not products[0]:
            step.compute(product.input_gradient())
    return step


def transformer(heads: int | None = None) -> Step:
    """Add one layer: heads and the inner width are shared along the first dimension, which sums activations
    after each half, forward and backward; replicas along the other two sum up gradients of weights."""
    step, tokens = Step.empty(), SEQUENCES * LENGTH
    activations = tokens * WIDTH * VALUE_BYTES
    part, each = WIDTH // SHARERS, WIDTH // HEADS
    qkv = Product("qkv", tokens, 3 * part, WIDTH)
    scores = [
        Product(f"scores {at}", LENGTH, LENGTH, each) for at in range(heads or SEQUENCES * HEADS // SHARERS)
    ]
    contexts = [Product(f"context {at}", LENGTH, each, LENGTH) for at in range(len(scores))]
    projection = Product("projection", tokens, WIDTH, part)
    up, down = Product("up", tokens, 4 * part, WIDTH), Product("down", tokens, WIDTH, 4 * part)
    for half in ([qkv, *scores, *contexts, projection], [up, down]):
        for product in half:
            step.compute(product)
        step.sum_up(f"{half[-1].name} forward", activations, SHARING, is_awaited=True)
    for half in ([down, up], [projection, *reversed(contexts), *reversed(scores), qkv]):
        for product in half[:-1]:
            _backward(step, product, has_weights=product in (down, projection))
        step.compute(half[-1].input_gradient())
        step.sum_up(f"{half[-1].name} backward", activations, SHARING, is_awaited=True)
        step.compute(half[-1].weight_gradient())
        step.sum_up(half[-1].name, half[-1].gradient_bytes, REPLICATING, is_awaited=False)
    return step


def _backward(step: Step, product: Product, *, has_weights: bool) -> None:
    step.compute(product.weight_gradient())
    if has_weights:
        step.sum_up(product.name, product.gradient_bytes, REPLICATING, is_awaited=False)
    step.compute(product.input_gradient())
