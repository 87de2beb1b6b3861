"""Floating-point operations by hand, for every shape of formula."""

from __future__ import annotations

import pytest

from converters.pytorch.formulas import Given, is_known, operations

CONVOLUTION = [None, None, None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1]
BACKWARD = [None, None, None, [8], [1, 1], [1, 1], [1, 1], False, [0, 0], 1]


@pytest.mark.parametrize(
    ("name", "given", "count"),
    [
        ("aten::mm", Given([[3, 4], [4, 5]]), 2 * 3 * 4 * 5),
        ("aten::addmm", Given([[5], [3, 4], [4, 5], [], []]), 2 * 3 * 4 * 5),
        ("aten::bmm", Given([[7, 3, 4], [7, 4, 5]]), 2 * 7 * 3 * 4 * 5),
        ("aten::baddbmm", Given([[7, 3, 5], [7, 3, 4], [7, 4, 5]]), 2 * 7 * 3 * 4 * 5),
        ("aten::mv", Given([[3, 4], [4]]), 2 * 3 * 4),
        ("aten::linear", Given([[2, 3, 4], [5, 4], [5]]), 2 * 2 * 3 * 4 * 5),
        (
            "aten::convolution",
            Given([[1, 3, 8, 8], [16, 3, 3, 3], []], CONVOLUTION),
            2 * (16 * 4 * 4) * (3 * 9),
        ),
        ("aten::convolution", Given([[1, 3, 8, 8], [16, 3, 3, 3]], (), [[1, 16, 4, 4]]), 2 * (16 * 16) * 27),
        ("aten::cudnn_convolution", Given([[1, 4, 5], [2, 4, 3]], (), [[1, 2, 3]]), 2 * 6 * 12),
        (
            "aten::cudnn_convolution",
            Given([[1, 4, 5], [2, 4, 3]], ["", "", "[0]", "[1]", "[1]", "1"]),
            2 * (2 * 3) * (4 * 3),
        ),
        (
            "aten::convolution_backward",
            Given([[1, 8, 4, 4], [1, 3, 4, 4], [8, 3, 3, 3]], [*BACKWARD, [True, True, False]]),
            2 * 2 * (8 * 16) * 27,
        ),
        (
            "aten::convolution_backward",
            Given([[1, 8, 4, 4], [1, 3, 4, 4], [8, 3, 3, 3]], [*BACKWARD, "[False, True, False]"]),
            2 * (8 * 16) * 27,
        ),
        (
            "aten::_scaled_dot_product_flash_attention",
            Given([[2, 3, 10, 8], [2, 3, 12, 8], [2, 3, 12, 4]]),
            2 * 6 * 10 * 12 * 12,
        ),
        (
            "aten::_flash_attention_forward",
            Given([[2, 10, 3, 8], [2, 12, 3, 8], [2, 12, 3, 8]]),
            2 * 6 * 10 * 12 * 16,
        ),
        (
            "aten::_scaled_dot_product_efficient_attention_backward",
            Given([[], [2, 3, 10, 8], [2, 3, 12, 8], [2, 3, 12, 8]]),
            2 * 6 * 10 * 12 * 40,
        ),
        (
            "aten::miopen_convolution",  # with a bias before the padding
            Given([[1, 4, 5], [2, 4, 3], [2]], ["", "", "", "[0]", "[1]", "[1]", "1"]),
            2 * (2 * 3) * (4 * 3),
        ),
        (
            "aten::miopen_convolution_relu",
            Given([[1, 4, 5], [2, 4, 3], [2]], ["", "", "", "[2]", "[0]", "[1]", "1"]),
            2 * (2 * 2) * (4 * 3),
        ),
        ("aten::miopen_convolution_transpose", Given([[1, 4, 5], [4, 2, 3]]), 2 * (4 * 5) * (2 * 3)),
        (
            "aten::miopen_convolution_backward",
            Given([[1, 4, 5], [1, 2, 3], [2, 4, 3]], ["", "", "", "[0]", "[True, False, False]"]),
            2 * (2 * 3) * (4 * 3),
        ),
        (
            "aten::cudnn_convolution_backward_weight",
            Given([[], [1, 2, 3], [1, 4, 5]], [[2, 4, 3], "", ""]),
            2 * (2 * 3) * (4 * 3),
        ),
        (
            "aten::_efficient_attention_backward",
            Given([[2, 10, 3, 8], [2, 10, 3, 8], [2, 12, 3, 8], [2, 12, 3, 8]]),
            2 * 6 * 10 * 12 * 40,
        ),
        (
            "flash_attn::_flash_attn_varlen_forward",
            Given([[20, 3, 8], [24, 3, 8], [24, 3, 8], [3], [3], [], []], ["", "", "", "", "", 10, 12]),
            2 * 3 * 20 * 12 * 16,
        ),
        ("aten::_fused_adamw_", Given([[[10, 10], [7]], [[10, 10], [7]]]), 15 * 107),
        ("aten::_fused_sgd_", Given([[[4]], [[4]]]), 7 * 4),
        ("aten::_grouped_mm", Given([[6, 4], [3, 4, 5], [3]]), 2 * 6 * 4 * 5),
    ],
)
def test_operations_are_counted(name: str, given: Given, count: int) -> None:
    assert operations(name, given) == count


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("aten::relu", Given([[3, 4]])),
        ("aten::mm", Given([[3, 4], [5, 6]])),
        ("aten::mm", Given([])),
        ("aten::mm", Given([[0, 4], [4, 5]])),
        ("aten::convolution", Given([[1, 3, 8, 8], [16, 3, 3, 3]])),
    ],
)
def test_what_has_no_formula_or_does_not_fit_counts_nothing(name: str, given: Given) -> None:
    assert operations(name, given) is None


def test_the_convolution_of_a_call_is_counted_once() -> None:
    assert is_known("aten::convolution")
    assert not is_known("aten::conv2d")
