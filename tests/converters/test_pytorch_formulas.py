"""Operations and shapes of operators, by hand; converted kernels hold them, so that machines can time
them.
"""

from __future__ import annotations

import numpy as np
import pytest
from pytorch_cases import Case, cases, content

from converters.pytorch.formulas import WRITERS, Given, is_known, operations, shape_of
from et_sim.compute.operations import read_shape
from et_sim.compute.registry import compute_model
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_system_alone
from et_sim.trace import decode

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
def test_operators_without_a_fitting_formula_have_no_operations(name: str, given: Given) -> None:
    assert operations(name, given) is None


def test_the_convolution_of_a_call_is_counted_once() -> None:
    assert is_known("aten::convolution")
    assert not is_known("aten::conv2d")


CONV = [[8, 6, 14, 15], [12, 3, 3, 5]], [None] * 3 + [[2, 1], [1, 2], [1, 1], "False", [0, 0], 2]
HEADS = [[2, 8, 100, 64], [2, 2, 120, 64], [2, 2, 120, 32]]


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("aten::mm", Given([[3, 5], [5, 7]]), "gemm 3 7 5"),
        ("aten::bmm", Given([[4, 3, 5], [4, 5, 7]]), "gemm 3 7 5 x 4"),
        ("aten::addmm", Given([[7], [3, 5], [5, 7]]), "gemm 3 7 5"),
        ("aten::linear", Given([[2, 3, 5], [7, 5]]), "gemm 6 7 5"),
        ("aten::convolution", Given(*CONV), "conv 15 19 3 5 3 6 2 1 x 16"),
        (
            "aten::_scaled_dot_product_flash_attention",
            Given(HEADS),
            "attention 2 8 2 100 120 64 32",
        ),
        (
            "aten::_scaled_dot_product_cudnn_attention_backward",
            Given([[2, 8, 100, 32], *HEADS]),
            "attention_backward 2 8 2 100 120 64 32",
        ),
    ],
)
def test_a_shape_has_the_operations_of_its_formula(name: str, given: Given, words: str) -> None:
    assert shape_of(name, given) == words
    assert read_shape(words, "").operation.operations == operations(name, given)


@pytest.mark.parametrize("name", WRITERS)
def test_shapes_that_do_not_fit_their_operator_have_no_words(name: str) -> None:
    for given in (Given([]), Given([[], []]), Given([[3, 5], [6, 7]]), Given([["x"], [1]], ["y"] * 9)):
        assert shape_of(name, given) == ""


RECORDED = [case for case in cases() if case.name in ("device_only/b200_eager", "dlrm_8r/et_0+kineto")]


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case.name)
def test_a_recording_runs_on_other_devices_by_its_shapes(case: Case) -> None:
    trace = decode(content(case))
    shaped = np.flatnonzero(trace.has("layer_shape"))
    assert len(shaped) > 10
    for row in shaped.tolist():
        words = trace.layer_shapes[int(trace.layer_shape[row])]
        assert read_shape(words, "").operation.operations == trace.num_ops[row]
        assert trace.datatypes[int(trace.datatype[row])] in ("bf16", "fp32")
    system = {**preset("h100-dgx:8").system}
    device = compute_model(read_system_alone(system)).durations(trace, shaped, 0)
    assert device.utilisation is not None
    bound = device.utilisation.bound
    words = {bound.texts[code] for code in bound.codes}
    assert words <= {"compute", "HBM", "L2", "launch", "tiles"}
    array = {"model": "systolic", "array-height": 128, "array-width": 128, "dataflow": "ws"}
    array |= dict.fromkeys(("ifmap-sram-kb", "filter-sram-kb", "ofmap-sram-kb"), 8192)
    del system["costs"]  # of a device that states its power
    systolic = compute_model(read_system_alone({**system, "compute": array}))
    assert (systolic.durations(trace, shaped, 0).ns > 0).all()


MEGATRON = [case for case in cases() if case.name == "megatron_tp8/et_0+kineto"]


@pytest.mark.deep
@pytest.mark.parametrize("case", MEGATRON, ids=lambda case: case.name)
def test_fills_beside_a_product_leave_it_its_shape(case: Case) -> None:
    trace = decode(content(case))
    assert not (trace.is_copy & (trace.num_ops > 0)).any()
    shaped = trace.has("layer_shape")
    assert shaped.sum() == 241
    assert (shaped == (trace.num_ops > 0)).all()
