"""What an operator computes in the words of the attribute `layer_shape`, by the shapes of its inputs.

Products, convolutions and attention; only where one kernel does all of it (`costs`). Not here: operations
(`formulas`), and what other readers make of the words (`et_sim.compute.operations`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from converters.pytorch.formulas import Given, extents, output_of, recorded_output
from et_sim.basics.errors import TraceError
from et_sim.compute.operations import read_shape
from et_sim.trace import shapes

Writer = Callable[[Given], str | None]


def shape_of(name: str, given: Given) -> str:
    """The words for one call; empty if there are none, or its shapes do not fit."""
    writer = WRITERS.get(name.removeprefix("aten::"))
    if writer is None:
        return ""
    try:
        words = writer(given)
        if words is None:
            return ""
        read_shape(words, "")  # refuses what nobody could read
    except (IndexError, TypeError, ValueError, TraceError):
        return ""
    return words


def _product(first: int) -> Writer:
    """[m, k] x [k, n], or [b, m, k] x [b, k, n], from argument `first` on."""

    def write(given: Given) -> str | None:
        left, right = given.shapes[first : first + 2]
        if len(left) != len(right) or left[-1] != right[-2] or left[:-2] != right[:-2]:
            return None
        return shapes.gemm(left[-2], right[-1], left[-1], count=prod(left[:-2]))

    return write


def _linear(given: Given) -> str | None:
    """[…, k] x [n, k]."""
    data, weight = given.shapes[:2]
    return shapes.gemm(prod(data[:-1]), weight[0], weight[1]) if data[-1] == weight[1] else None


def _convolution(given: Given) -> str | None:
    """The image is as large as the windows on it, padding included."""
    data, weight = given.shapes[:2]
    if len(given.values) > 6 and str(given.values[6]).lower() == "true":
        return None
    stride = extents(given.values[3], 2)
    return _windows(
        data, weight, recorded_output(given) or output_of(data, weight, given.values[3:6]), stride
    )


def _library_convolution(first: int) -> Writer:
    """cuDNN: padding, stride and dilation stand from argument `first` on."""

    def write(given: Given) -> str | None:
        data, weight = given.shapes[:2]
        padding, stride, dilation = given.values[first : first + 3]
        output = recorded_output(given) or output_of(data, weight, [stride, padding, dilation])
        return _windows(data, weight, output, extents(stride, 2))

    return write


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


def _attention(first: int, *, backward: bool = False) -> Writer:
    """[batch, heads, length, width]: query, key and value from argument `first` on, masked or not."""

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
# By name, without `aten::`.
WRITERS: dict[str, Writer] = {
    **dict.fromkeys(("mm", "bmm", "_int_mm", "_scaled_mm"), _product(0)),
    **dict.fromkeys(("addmm", "baddbmm", "_addmm_activation"), _product(1)),
    "linear": _linear,
    **dict.fromkeys(("convolution", "_convolution"), _convolution),
    "cudnn_convolution": _library_convolution(2),
    **{f"_scaled_dot_product_{one}_attention": _attention(0) for one in _SDPA},
    **{f"_scaled_dot_product_{one}_attention_backward": _attention(1, backward=True) for one in _SDPA},
}
