"""Floating-point operations and computed shapes of operators, by the shapes of their inputs.

A multiplication and an addition are two operations. Attention is counted in full, masked or not, and its
backward pass as in flash attention, which computes the scores a second time; packed sequences count as if all
had the length of the longest. An optimizer's step has a fixed number of operations per parameter, with
momentum and weight decay.

The attribute `layer_shape` describes products, convolutions and attention in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from msgspec import Struct

from et_sim.basics.errors import TraceError
from et_sim.compute.operations import read_shape
from et_sim.trace import shapes


class Given(Struct, frozen=True):
    """One call as recorded; missing parts are empty."""

    shapes: Sequence[Any]
    values: Sequence[Any] = ()
    outputs: Sequence[Any] = ()  # shapes


Formula = Callable[[Given], int]


def operations(name: str, given: Given) -> int | None:
    """Return the operations of one call; None if there is no formula, or the shapes do not fit it."""
    formula = FORMULAS.get(name.removeprefix("aten::"))
    if formula is None:
        return None
    try:
        count = int(formula(given))
    except (IndexError, TypeError, ValueError):
        return None
    return count if count > 0 else None


def output_elements(name: str, given: Given) -> int | None:
    """Return the elements of the output if they follow from the operations, else None.

    A product has one element for every 2 k operations, a convolution one for every application of a filter.
    """
    short = name.removeprefix("aten::")
    count = operations(name, given)
    if count is None or short not in _OPERATIONS_EACH:
        return None
    try:
        return count // max(_OPERATIONS_EACH[short](given), 1)
    except (IndexError, TypeError, ValueError):
        return None


def is_known(name: str) -> bool:
    """Return whether there is a formula for operators of this name."""
    return name.removeprefix("aten::") in FORMULAS


def _product(first: int) -> Formula:
    """Return the formula of a product [..., m, k] x [k, n] or [..., k, n], from argument `first` on."""

    def count(given: Given) -> int:
        left, right = given.shapes[first : first + 2]
        if left[-1] != right[-2 if len(right) > 1 else -1]:
            raise ValueError
        columns = right[-1] if len(right) > 1 else 1
        return int(2 * prod(left) * int(columns))

    return count


def _linear(given: Given) -> int:
    """Count a linear layer: [..., k] x [n, k]."""
    data, weight = given.shapes[:2]
    if data[-1] != weight[-1]:
        raise ValueError
    return int(2 * prod(data) * int(weight[0]))


def _convolution(given: Given) -> int:
    """Count a convolution: each element of the output (input, if transposed) meets a filter."""
    data, weight = given.shapes[:2]
    transposed = len(given.values) > 6 and str(given.values[6]).lower() == "true"
    if transposed:
        return _filtered(0)(given)
    output = recorded_output(given) or output_of(data, weight, given.values[3:6])
    return int(2 * prod(output) * prod(weight[1:]))


def recorded_output(given: Given) -> Sequence[int]:
    """Return the shape of the only output."""
    shape: Sequence[int] = given.outputs[0] if given.outputs else ()
    return shape


def output_of(data: Sequence[int], weight: Sequence[int], values: Sequence[Any]) -> list[int]:
    """Return the shape of a convolution's output by stride, padding and dilation."""
    axes = len(data) - 2
    stride, padding, dilation = (extents(value, axes) for value in values)
    sizes = [
        (data[2 + at] + 2 * padding[at] - dilation[at] * (weight[2 + at] - 1) - 1) // stride[at] + 1
        for at in range(axes)
    ]
    return [data[0], weight[0], *sizes]


def _library_convolution(first: int, order: str = "psd") -> Formula:
    """Return the formula of cuDNN and MIOpen: padding, stride and dilation from argument `first` on, ordered
    as in `order`.
    """

    def count(given: Given) -> int:
        data, weight = given.shapes[:2]
        values = given.values[first : first + 3] if len(given.values) > first + 2 else (0, 1, 1)
        if len(given.values) <= first + 2 and not given.outputs:
            raise ValueError
        named = dict(zip(order, values, strict=True))
        output = recorded_output(given) or output_of(data, weight, [named[key] for key in "spd"])
        return int(2 * prod(output) * prod(weight[1:]))

    return count


def _filtered(first: int) -> Formula:
    """Return the formula in which each element of argument `first`, an input or a gradient, meets a filter,
    the next argument.
    """

    def count(given: Given) -> int:
        data, weight = given.shapes[first : first + 2]
        return int(2 * prod(data) * prod(weight[1:]))

    return count


def _library_backward(given: Given) -> int:
    """Count a backward pass: input, gradient of the output, weight; the last argument selects gradients."""
    return _filtered(1)(given) * _wanted_gradients(given.values[-1] if given.values else None)


def _library_backward_weight(given: Given) -> int:
    weight = extents(given.values[0], 0)
    return int(2 * prod(given.shapes[1]) * prod(weight[1:]))


def _wanted_gradients(mask: Any) -> int:
    """Return the number of wanted gradients of input and weight; both if the call has no mask."""
    if isinstance(mask, str):
        mask = [word.strip(" []").lower() == "true" for word in mask.split(",")]
    return sum(bool(is_wanted) for is_wanted in mask[:2]) if isinstance(mask, list) and len(mask) > 1 else 2


def _convolution_backward(given: Given) -> int:
    """Count a backward pass: as much as forward for each wanted gradient of input and weight."""
    values, shapes = given.values, given.shapes
    mask = values[10] if len(values) > 10 else None
    transposed = len(values) > 7 and str(values[7]).lower() == "true"
    spread = shapes[1] if transposed else shapes[0]
    return int(2 * prod(spread) * prod(shapes[2][1:]) * _wanted_gradients(mask))


def _attention(first: int) -> Formula:
    """Return the formula of scores and their product with the values, from argument `first` on."""

    def count(given: Given) -> int:
        scores, query, value = _scores(given, first)
        return int(2 * scores * (query + value))

    return count


def _attention_backward(given: Given) -> int:
    """Count five products: the scores again, and gradients of query, key, value and probabilities."""
    scores, query, value = _scores(given, 1)
    return int(2 * scores * (3 * query + 2 * value))


def _scores(given: Given, first: int) -> tuple[int, int, int]:
    """Return the elements of query x key, and the widths of query and value: [batch, heads, length,
    width].
    """
    query, key, value = given.shapes[first : first + 3]
    if len(query) != 4 or query[-1] != key[-1]:
        raise ValueError
    return prod(query[:-1]) * int(key[-2]), int(query[-1]), int(value[-1])


def _flash_attention(first: int, *, backward: bool = False) -> Formula:
    """Return the formula for [batch, length, heads, width], or [total length, heads, width] with the longest
    length among the values.
    """

    def count(given: Given) -> int:
        query, key, value = given.shapes[first : first + 3]
        if len(query) == 4:
            length = int(key[1])
        elif len(query) == 3:
            length = int(given.values[9 if backward else 6])
        else:
            raise ValueError
        widths = int(query[-1]), int(value[-1])
        each = 3 * widths[0] + 2 * widths[1] if backward else sum(widths)
        return int(2 * prod(query[:-1]) * length * each)

    return count


def _optimizer(operations_each: int) -> Formula:
    """Return the formula with a fixed number of operations per parameter; the first argument lists
    parameters.
    """

    def count(given: Given) -> int:
        return operations_each * sum(int(prod(shape)) for shape in given.shapes[0])

    return count


def extents(value: Any, count: int) -> list[int]:
    """Return the numbers of `[1, 1]`, `"[1, 1]"` or a single number, one per dimension."""
    if isinstance(value, int):
        return [value] * count
    numbers = (
        [int(number) for number in value.strip("[] ").split(",")] if isinstance(value, str) else list(value)
    )
    return numbers * count if len(numbers) == 1 else numbers


_LIBRARIES = ("cudnn", "miopen")
_SCALED = (
    "scaled_dot_product_attention",
    *(f"_scaled_dot_product_{kind}_attention" for kind in ("flash", "efficient", "cudnn")),
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable",
)
_ADAM = 15  # 2 for the decay of weights, 3 and 4 for the moments, 6 for the step
# by name, without `aten::`
FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(
        ("mm", "bmm", "mv", "_scaled_mm", "_int_mm", "_grouped_mm", "_scaled_grouped_mm"), _product(0)
    ),
    **dict.fromkeys(("addmm", "addmv", "baddbmm", "addbmm", "_addmm_activation"), _product(1)),
    "linear": _linear,
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), _convolution),
    "cudnn_convolution": _library_convolution(2),
    "miopen_convolution": _library_convolution(3),
    "miopen_depthwise_convolution": _library_convolution(3),
    "mkldnn_convolution": _library_convolution(3),
    "_conv_depthwise2d": _library_convolution(4, "spd"),
    **{f"{library}_convolution_relu": _library_convolution(3, "spd") for library in _LIBRARIES},
    **{f"{library}_convolution_add_relu": _library_convolution(5, "spd") for library in _LIBRARIES},
    **{f"{library}_convolution_transpose": _filtered(0) for library in _LIBRARIES},
    **dict.fromkeys(("convolution_backward", "convolution_backward_overrideable"), _convolution_backward),
    **{f"{library}_convolution_backward": _library_backward for library in _LIBRARIES},
    "miopen_depthwise_convolution_backward": _library_backward,
    **{f"{library}_convolution_backward_input": _filtered(1) for library in _LIBRARIES},
    **{f"{library}_convolution_backward_weight": _library_backward_weight for library in _LIBRARIES},
    **dict.fromkeys((*_SCALED, "_cudnn_attention_forward"), _attention(0)),
    **{f"{name}_backward": _attention_backward for name in (*_SCALED[1:], "_cudnn_attention")},
    **dict.fromkeys(
        (
            "_flash_attention_forward",
            "_efficient_attention_forward",
            "flash_attn::_flash_attn_forward",
            "flash_attn::_flash_attn_varlen_forward",
            "flash_attn_3::fwd",
            "FlashAttnFunc",
        ),
        _flash_attention(0),
    ),
    **dict.fromkeys(
        ("_flash_attention_backward", "_efficient_attention_backward", "flash_attn::_flash_attn_backward"),
        _flash_attention(1, backward=True),
    ),
    **{
        f"_fused_{name}{in_place}": _optimizer(each)
        for name, each in (("adam", _ADAM), ("adamw", _ADAM), ("sgd", 7), ("adagrad", 9))
        for in_place in ("", "_")
    },
}
_FILTERED = ("convolution", "_convolution", "cudnn_convolution", "miopen_convolution", "mkldnn_convolution")
# operations for each element of the output, for operators whose outputs are all of one kind
_OPERATIONS_EACH: dict[str, Formula] = {
    **dict.fromkeys(("mm", "bmm", "mv", "_scaled_mm", "_int_mm"), lambda given: 2 * given.shapes[0][-1]),
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), lambda given: 2 * given.shapes[1][-1]),
    "linear": lambda given: 2 * given.shapes[0][-1],
    **dict.fromkeys(_FILTERED, lambda given: 2 * prod(given.shapes[1][1:])),
}


Writer = Callable[[Given], str | None]


def shape_of(name: str, given: Given) -> str:
    """Return the words for one call; empty if there are none, or its shapes do not fit."""
    writer = WRITERS.get(name.removeprefix("aten::"))
    if writer is None:
        return ""
    try:
        words = writer(given)
        if words is None:
            return ""
        read_shape(words, "")  # refuses a text that cannot be read back
    except (IndexError, TypeError, ValueError, TraceError):
        return ""
    return words


def _product_words(first: int) -> Writer:
    """Return the writer of a product [m, k] x [k, n], or [b, m, k] x [b, k, n], from argument `first` on."""

    def write(given: Given) -> str | None:
        left, right = given.shapes[first : first + 2]
        if len(left) != len(right) or left[-1] != right[-2] or left[:-2] != right[:-2]:
            return None
        return shapes.gemm(left[-2], right[-1], left[-1], count=prod(left[:-2]))

    return write


def _linear_words(given: Given) -> str | None:
    """Return the words of a linear layer: [..., k] x [n, k]."""
    data, weight = given.shapes[:2]
    return shapes.gemm(prod(data[:-1]), weight[0], weight[1]) if data[-1] == weight[1] else None


def _convolution_words(given: Given) -> str | None:
    """Return the words of a convolution; the image is as large as the windows on it, padding included."""
    data, weight = given.shapes[:2]
    if len(given.values) > 6 and str(given.values[6]).lower() == "true":
        return None
    stride = extents(given.values[3], 2)
    return _windows(
        data, weight, recorded_output(given) or output_of(data, weight, given.values[3:6]), stride
    )


def _library_convolution_words(given: Given) -> str | None:
    """Return the words of cuDNN, whose padding, stride and dilation follow data and weights."""
    data, weight = given.shapes[:2]
    padding, stride, dilation = given.values[2:5]
    output = recorded_output(given) or output_of(data, weight, [stride, padding, dilation])
    return _windows(data, weight, output, extents(stride, 2))


def _windows(
    data: Sequence[int], weight: Sequence[int], output: Sequence[int], stride: Sequence[int]
) -> str | None:
    if len(data) != 4 or data[1] % weight[1]:
        return None
    groups = data[1] // weight[1]
    image = [(output[2 + at] - 1) * stride[at] + weight[2 + at] for at in range(2)]
    count = data[0] * groups
    window, steps = (weight[2], weight[3]), (stride[0], stride[1])
    return shapes.convolution(
        (image[0], image[1]), window, weight[1], weight[0] // groups, steps, count=count
    )


def _attention_words(first: int, *, backward: bool = False) -> Writer:
    """Return the writer of attention: query, key and value [batch, heads, length, width] from argument
    `first` on.
    """

    def write(given: Given) -> str | None:
        query, key, value = given.shapes[first : first + 3]
        if len(query) != 4 or query[-1] != key[-1]:
            return None
        return shapes.attention(
            query[0],
            query[1],
            query[2],
            key[2],
            query[3],
            key_heads=key[1],
            value_width=value[3],
            backward=backward,
        )

    return write


_SDPA = ("flash", "efficient", "cudnn")
# by name, without `aten::`
WRITERS: dict[str, Writer] = {
    **dict.fromkeys(("mm", "bmm", "_int_mm", "_scaled_mm"), _product_words(0)),
    **dict.fromkeys(("addmm", "baddbmm", "_addmm_activation"), _product_words(1)),
    "linear": _linear_words,
    **dict.fromkeys(("convolution", "_convolution"), _convolution_words),
    "cudnn_convolution": _library_convolution_words,
    **{f"_scaled_dot_product_{name}_attention": _attention_words(0) for name in _SDPA},
    **{
        f"_scaled_dot_product_{name}_attention_backward": _attention_words(1, backward=True) for name in _SDPA
    },
}
