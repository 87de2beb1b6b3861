"""Shapes of operations in words, as the attribute `layer_shape` has them.

`build.compute("scores", layer_shape=shapes.gemm(4096, 4096, 128, count=32), dtype="bf16")`.
"""

from __future__ import annotations

from collections.abc import Iterable


def gemm(rows: int, columns: int, inner: int, *, count: int = 1, kernel: str = "") -> str:
    """Return `count` products of `rows` x `inner` and `inner` x `columns`.

    `kernel` is `full-sums` if sums are kept in fp32 throughout, which is slower on some devices, or
    `block-scales` if the numbers have scales of blocks.
    """
    return _written("gemm", (rows, columns, inner), count, kernel)


def grouped_gemm(columns: int, inner: int, rows: Iterable[int], *, count: int = 1, kernel: str = "") -> str:
    """Return a product per group, each with its own number of rows: the experts of a mixture.

    There are `count` such groups. `kernel` is `full-sums`, as in `gemm`, `block-scales` if the numbers have
    scales of blocks, or `narrow-weights` if weights have fewer bits than the product computes in.
    """
    return _written("grouped_gemm", (columns, inner, *rows), count, kernel)


def convolution(
    image: tuple[int, int],
    window: tuple[int, int],
    channels: int,
    filters: int,
    stride: tuple[int, int] = (1, 1),
    *,
    count: int = 1,
) -> str:
    """Return a convolution; `image` and `window` are height and width with padding, `count` images or
    groups.
    """
    return _written("conv", (*image, *window, channels, filters, *stride), count)


def attention(
    batch: int,
    heads: int,
    queries: int,
    keys: int,
    width: int,
    *,
    key_heads: int | None = None,
    value_width: int | None = None,
    causal: bool = False,
    backward: bool = False,
    kernel: str = "",
) -> str:
    """Return scores and their product with the values in one kernel; queries may share fewer `key_heads`.

    `kernel` is one of `et_sim.basics.kernel_names`, if it is not the best of the device, or `fp8-cache` if
    keys and values have 8 bits.
    """
    sizes = (batch, heads, key_heads or heads, queries, keys, width, *([value_width] if value_width else []))
    words = _written("attention_backward" if backward else "attention", sizes)
    return " ".join([words, *(["causal"] if causal else []), *([kernel] if kernel else [])])


def layernorm(rows: int, width: int) -> str:
    """Return a normalisation by mean and variance, with scale and shift."""
    return _written("layernorm", (rows, width))


def rmsnorm(rows: int, width: int) -> str:
    """Return a normalisation by the root of the mean square, with a scale."""
    return _written("rmsnorm", (rows, width))


def softmax(rows: int, width: int) -> str:
    """Return the softmax of each row."""
    return _written("softmax", (rows, width))


def elementwise(elements: int, inputs: int = 1, operations: int = 1, *, kernel: str = "") -> str:
    """Return `operations` for each element of the output, each computed from one element of every input.

    `kernel` is `strided` if tensors are parts of wider ones, so that the place of every number is computed.
    """
    return _written("elementwise", (elements, inputs, operations), kernel=kernel)


def quantise(rows: int, width: int) -> str:
    """Return the conversion of 16-bit numbers to the kernel's datatype, scaled by the largest of them."""
    return _written("quantise", (rows, width))


def embedding(tokens: int, width: int) -> str:
    """Return rows looked up in a table."""
    return _written("embedding", (tokens, width))


def _written(kind: str, sizes: Iterable[int], count: int = 1, kernel: str = "") -> str:
    words = " ".join([kind, *(str(int(size)) for size in sizes), *([kernel] if kernel else [])])
    return f"{words} x {count}" if count != 1 else words
