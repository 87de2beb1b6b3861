"""Operations and shapes of operators, in the words of `layer_shape`, and the bytes that they read and write.

Operations are given only for operators with a formula: products, convolutions, attention, optimizers. Others
are element-wise: one operation per element, and each tensor once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from msgspec import Struct

from et_sim.compute.operations import read_shape
from et_sim.trace import shapes

DTYPES = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.bool: "uint8",
}


class Cost(Struct, frozen=True):
    """The cost of one kernel; -1: unknown."""

    shape: str
    operations: int = -1


Given = tuple[Any, ...]  # arguments
Counter = Callable[[Given, Any], Cost]  # arguments and result


def size_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return the bytes that tensors show, not those of their storages."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _gemm(rows: int, columns: int, inner: int, count: int = 1) -> Cost:
    return Cost(shapes.gemm(rows, columns, inner, count=count), 2 * rows * columns * inner * count)


def _product(first: int) -> Counter:
    def count(given: Given, _: Any) -> Cost:
        left, right = given[first].shape, given[first + 1].shape
        if given[first].is_complex():  # four multiplications and four additions in place of one each
            operations = 8 * prod(left) * (1 if len(right) == 1 else right[-1])
            return Cost("", operations)
        if len(right) == 1:
            return _gemm(left[0], 1, left[1])
        return _gemm(left[-2], right[-1], left[-1], prod(left[:-2]))

    return count


def _convolution(given: Given, result: Any) -> Cost:
    data, weight, stride, transposed = given[0].shape, given[1].shape, given[3], given[6]
    out = result.shape
    operations = 2 * prod(data if transposed else out) * prod(weight[1:])
    if len(out) != 4 or transposed:
        return Cost("", operations)
    steps = (stride[0], stride[-1])
    image = tuple((out[2 + at] - 1) * steps[at] + weight[2 + at] for at in range(2))
    groups = data[1] // weight[1]
    words = shapes.convolution(
        (image[0], image[1]),
        (weight[2], weight[3]),
        weight[1],
        weight[0] // groups,
        steps,
        count=data[0] * groups,
    )
    return Cost(words, operations)


def _convolution_backward(given: Given, _: Any) -> Cost:
    """Return the cost of a backward pass: as much as forward for each wanted gradient."""
    gradient, data, weight, transposed, mask = *(tensor.shape for tensor in given[:3]), given[7], given[10]
    spread = data if transposed else gradient
    return Cost("", 2 * prod(spread) * prod(weight[1:]) * sum(map(bool, mask[:2])))


def _attention(first: int, causal: int, *, backward: bool = False) -> Counter:
    def count(given: Given, _: Any) -> Cost:
        query, key, value = (tensor.shape for tensor in given[first : first + 3])
        is_causal = len(given) > causal and bool(given[causal])
        words = shapes.attention(
            query[0],
            query[1],
            query[2],
            key[2],
            query[3],
            key_heads=key[1],
            value_width=value[3],
            causal=is_causal,
            backward=backward,
        )
        return Cost(words, read_shape(words, "").operation.operations)

    return count


def _attention_of_lengths(first: int, longest: int, *, backward: bool = False) -> Counter:
    """Return the counter for packed sequences, each of which counts as the longest."""

    def count(given: Given, _: Any) -> Cost:
        query, key, value = (tensor.shape for tensor in given[first : first + 3])
        queries, keys = int(given[longest]), int(given[longest + 1])
        words = shapes.attention(
            -(-query[0] // max(queries, 1)),
            query[1],
            queries,
            keys,
            query[2],
            key_heads=key[1],
            value_width=value[2],
            causal=len(given) > longest + 2 and bool(given[longest + 2]),
            backward=backward,
        )
        return Cost(words, read_shape(words, "").operation.operations)

    return count


def _normalised(write: Callable[[int, int], str]) -> Counter:
    def count(given: Given, _: Any) -> Cost:
        width = prod(given[1])
        return Cost(write(given[0].numel() // width, width))

    return count


def _softmax(given: Given, _: Any) -> Cost:
    data, axis = given[0], given[1]
    width = data.shape[axis] if data.dim() else 1
    return Cost(shapes.softmax(data.numel() // max(width, 1), width))


def _optimizer(operations: int) -> Counter:
    def count(given: Given, _: Any) -> Cost:
        return Cost("", operations * sum(tensor.numel() for tensor in given[0]))

    return count


def _grouped(given: Given, result: Any) -> Cost:
    left, right = given[0].shape, given[1].shape
    return Cost("", 2 * result.numel() * left[-1] if len(right) > 1 else -1)


_ADAM, _SGD, _ADAGRAD = _optimizer(15), _optimizer(7), _optimizer(9)
_FLASH = "_scaled_dot_product_flash_attention"
COUNTERS: dict[str, Counter] = {
    **dict.fromkeys(("mm", "bmm", "mv", "_int_mm", "_scaled_mm"), _product(0)),
    **dict.fromkeys(("addmm", "baddbmm", "addmv"), _product(1)),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), _grouped),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    _FLASH: _attention(0, 4),
    f"{_FLASH}_backward": _attention(1, 11, backward=True),
    "_scaled_dot_product_efficient_attention": _attention(0, 6),
    "_scaled_dot_product_efficient_attention_backward": _attention(1, 11, backward=True),
    "_varlen_attn": _attention_of_lengths(0, 5),
    "_varlen_attn_out": _attention_of_lengths(1, 6),
    "_varlen_attn_backward": _attention_of_lengths(1, 8, backward=True),
    "native_layer_norm": _normalised(shapes.layernorm),
    "_fused_rms_norm": _normalised(shapes.rmsnorm),
    **dict.fromkeys(("_softmax", "_log_softmax"), _softmax),
    "embedding": lambda given, result: Cost(shapes.embedding(given[1].numel(), result.shape[-1])),
    **dict.fromkeys(("_fused_adam_", "_fused_adam", "_fused_adamw_", "_fused_adamw"), _ADAM),
    **dict.fromkeys(("_fused_sgd_", "_fused_sgd"), _SGD),
    **dict.fromkeys(("_fused_adagrad_", "_fused_adagrad"), _ADAGRAD),
}
# work that moves data and computes nothing
MOVING = frozenset(
    (
        *(
            "_pack_padded_sequence",
            "copy_",
            "_to_copy",
            "clone",
            "cat",
            "_foreach_copy_",
            "split_with_sizes_copy",
            "index_select",
        ),
        *(
            "zero_",
            "fill_",
            "zeros_like",
            "ones_like",
            "full_like",
            "zeros",
            "ones",
            "full",
            "slice_backward",
        ),
        *(
            "_foreach_zero_",
            "constant_pad_nd",
            "stack",
            "_chunk_cat",
            "all_gather_copy_in",
            "chunk_cat",
            "new_zeros",
            "repeat",
            "roll",
        ),
    )
)


def cost_of(operator: str, given: Given, result: Any) -> Cost | None:
    """Return the cost of one call; None for operators without a rule, which count as element-wise."""
    if operator in MOVING:
        return Cost("", 0)
    counter = COUNTERS.get(operator)
    if counter is None:
        return None
    return counter(given, result)
