"""How many floating-point operations an operator takes, by the shapes of its inputs.

A multiplication and an addition are two operations. Attention is counted in full, masked or not, and its
backward pass as flash attention does it, which computes the scores a second time.

Not here: which kernel does the work (`costs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any


@dataclass(frozen=True, slots=True)
class Given:
    """One call as recorded; what is not recorded is empty."""

    shapes: Sequence[Any]
    values: Sequence[Any] = ()
    outputs: Sequence[Any] = ()  # shapes


Formula = Callable[[Given], int]


def operations(name: str, given: Given) -> int | None:
    """Operations of one call; None if there is no formula, or the shapes do not fit it."""
    formula = FORMULAS.get(name.removeprefix("aten::"))
    if formula is None:
        return None
    try:
        count = int(formula(given))
    except (IndexError, TypeError, ValueError):
        return None
    return count if count > 0 else None


def is_known(name: str) -> bool:
    """Whether there is a formula for operators of this name."""
    return name.removeprefix("aten::") in FORMULAS


def _product(first: int) -> Formula:
    """[…, m, k] x [k, n] or […, k, n], from argument `first` on."""

    def count(given: Given) -> int:
        left, right = given.shapes[first : first + 2]
        if left[-1] != right[-2 if len(right) > 1 else -1]:
            raise ValueError
        columns = right[-1] if len(right) > 1 else 1
        return int(2 * prod(left) * int(columns))

    return count


def _linear(given: Given) -> int:
    """[…, k] x [n, k]."""
    data, weight = given.shapes[:2]
    if data[-1] != weight[-1]:
        raise ValueError
    return int(2 * prod(data) * int(weight[0]))


def _convolution(given: Given) -> int:
    """Each element of the output (input, if transposed) meets a filter."""
    data, weight = given.shapes[:2]
    transposed = len(given.values) > 6 and str(given.values[6]).lower() == "true"
    if transposed:
        return int(2 * prod(data) * prod(weight[1:]))
    output = _recorded(given) or _output_of(data, weight, given.values[3:6])
    return int(2 * prod(output) * prod(weight[1:]))


def _recorded(given: Given) -> Sequence[int]:
    """The shape of the only output."""
    shape: Sequence[int] = given.outputs[0] if given.outputs else ()
    return shape


def _output_of(data: Sequence[int], weight: Sequence[int], values: Sequence[Any]) -> list[int]:
    """Shape of a convolution's output, by stride, padding and dilation."""
    extents = len(data) - 2
    stride, padding, dilation = (_extents(value, extents) for value in values)
    sizes = [
        (data[2 + at] + 2 * padding[at] - dilation[at] * (weight[2 + at] - 1) - 1) // stride[at] + 1
        for at in range(extents)
    ]
    return [data[0], weight[0], *sizes]


def _library_convolution(given: Given) -> int:
    """cuDNN and MIOpen: padding, stride and dilation come in another order."""
    data, weight = given.shapes[:2]
    padding, stride, dilation = given.values[2:5] if len(given.values) > 4 else (0, 1, 1)
    output = _recorded(given) or _output_of(data, weight, (stride, padding, dilation))
    return int(2 * prod(output) * prod(weight[1:]))


def _convolution_backward(given: Given) -> int:
    """As much as forward for each gradient that is asked for: of the input, and of the weight."""
    values, shapes = given.values, given.shapes
    mask = values[10] if len(values) > 10 else [True, True]
    mask = (
        [word.strip(" []").lower() == "true" for word in mask.split(",")] if isinstance(mask, str) else mask
    )
    transposed = len(values) > 7 and str(values[7]).lower() == "true"
    spread = shapes[1] if transposed else shapes[0]
    return int(2 * prod(spread) * prod(shapes[2][1:]) * sum(bool(one) for one in mask[:2]))


def _attention(first: int) -> Formula:
    """Scores, and their product with the values: query, key and value from argument `first` on."""

    def count(given: Given) -> int:
        scores, query, value = _scores(given, first)
        return int(2 * scores * (query + value))

    return count


def _attention_backward(given: Given) -> int:
    """Five products: the scores again, and gradients of query, key, value and probabilities."""
    scores, query, value = _scores(given, 1)
    return int(2 * scores * (3 * query + 2 * value))


def _scores(given: Given, first: int) -> tuple[int, int, int]:
    """Elements of query x key, and the widths of query and value: [batch, heads, length, width]."""
    query, key, value = given.shapes[first : first + 3]
    if len(query) != 4 or query[-1] != key[-1]:
        raise ValueError
    return prod(query[:-1]) * int(key[-2]), int(query[-1]), int(value[-1])


def _flash_attention(given: Given) -> int:
    """[batch, length, heads, width]."""
    query, key, value = given.shapes[:3]
    if len(query) != 4:
        raise ValueError
    return int(2 * prod(query[:-1]) * int(key[1]) * (int(query[-1]) + int(value[-1])))


def _flash_attention_backward(given: Given) -> int:
    query, key, value = given.shapes[1:4]
    if len(query) != 4:
        raise ValueError
    return int(2 * prod(query[:-1]) * int(key[1]) * (3 * int(query[-1]) + 2 * int(value[-1])))


def _extents(value: Any, count: int) -> list[int]:
    """`[1, 1]`, `"[1, 1]"` or a single number for all dimensions."""
    if isinstance(value, int):
        return [value] * count
    numbers = [int(one) for one in value.strip("[] ").split(",")] if isinstance(value, str) else list(value)
    return numbers * count if len(numbers) == 1 else numbers


FORMULAS: dict[str, Formula] = {
    "mm": _product(0),
    "bmm": _product(0),
    "mv": _product(0),
    "addmm": _product(1),
    "addmv": _product(1),
    "baddbmm": _product(1),
    "addbmm": _product(1),
    "_addmm_activation": _product(1),
    "linear": _linear,
    "_scaled_mm": _product(0),
    "convolution": _convolution,
    "_convolution": _convolution,
    "cudnn_convolution": _library_convolution,
    "miopen_convolution": _library_convolution,
    "convolution_backward": _convolution_backward,
    "scaled_dot_product_attention": _attention(0),
    "_scaled_dot_product_flash_attention": _attention(0),
    "_scaled_dot_product_efficient_attention": _attention(0),
    "_scaled_dot_product_cudnn_attention": _attention(0),
    "_scaled_dot_product_flash_attention_for_cpu": _attention(0),
    "_scaled_dot_product_flash_attention_backward": _attention_backward,
    "_scaled_dot_product_efficient_attention_backward": _attention_backward,
    "_scaled_dot_product_cudnn_attention_backward": _attention_backward,
    "_flash_attention_forward": _flash_attention,
    "_flash_attention_backward": _flash_attention_backward,
}
