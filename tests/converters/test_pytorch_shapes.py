"""Converted kernels say what they compute, as their operations say it: other machines can time them."""

from __future__ import annotations

import numpy as np
import pytest
from pytorch_cases import Case, cases, content

from converters.pytorch.formulas import WRITERS, Given, operations, shape_of
from et_sim.compute.operations import read_shape
from et_sim.compute.registry import compute_model
from et_sim.machine.presets import preset
from et_sim.machine.readers import read_system_alone
from et_sim.trace import decode

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


RECORDED = [one for one in cases() if one.name in ("device_only/b200_eager", "dlrm_8r/et_0+kineto")]


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
    systolic = compute_model(read_system_alone({**system, "compute": array}))
    assert (systolic.durations(trace, shaped, 0).ns > 0).all()


MEGATRON = [one for one in cases() if one.name == "megatron_tp8/et_0+kineto"]


@pytest.mark.parametrize("case", MEGATRON, ids=lambda case: case.name)
def test_fills_beside_a_product_leave_it_its_shape(case: Case) -> None:
    trace = decode(content(case))
    assert not (trace.is_copy & (trace.num_ops > 0)).any()
    shaped = trace.has("layer_shape")
    assert shaped.sum() == 241
    assert (shaped == (trace.num_ops > 0)).all()
