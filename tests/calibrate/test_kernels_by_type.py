"""Measured kernels of several types: presets predict them, and fits find the included kernels."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from msgspec import structs
from msgspec.structs import replace

from et_sim.basics.errors import InputError
from et_sim.calibrate.kernel_factors import QUERY_PROLOGUE, factors, family_of, target_of
from et_sim.calibrate.kernels import Kernels, MeasuredKernel, fit
from et_sim.calibrate.machine_file import accuracy_of, device_changes, device_of
from et_sim.compute.operations import Shape
from et_sim.machine.efficiencies import Curve
from et_sim.machine.kernel_kinds import KernelKind
from et_sim.machine.roofline import RooflineDevice
from et_sim.validation.predictions import predictions
from et_sim.validation.rows import included_kernels, read_rows

MACHINE = "h100-dgx"
SIDES = (64, 512, 1536, 4096, 16384)
# Percent that predictions of measured kernels may be off in the mean; other software than was fitted in one.
MOST = {
    ("h100_gemm_fp8", "sides >= 1024"): 6,
    ("h100_gemm_fp8", "a side < 1024"): 7,
    ("b200_gemm_fp8", "sides >= 1024"): 8,
    ("b200_gemm_fp8", "a side < 1024"): 7,
    ("b200_gemm_bf16", "sides >= 1024"): 9,
    ("b200_gemm_bf16", "a side < 1024"): 10,
    ("h100_attention", "tokens >= 2048"): 7,
    ("h100_attention", "tokens < 2048"): 10,
    ("a100_attention_trt", "tokens >= 2048"): 23,
    ("a100_attention_trt", "tokens < 2048"): 28,
}


def test_presets_predict_a_sample_of_each_table_within_its_error() -> None:
    rows = read_rows(Path(str(files("et_sim.validation") / "measurements" / "kernels_by_type.csv")))
    off = defaultdict(list)
    for one in predictions([row for row in rows if row.hardware != "V100-PCIE-32GB"]):
        assert one.ratio is not None
        off[one.row.table, one.row.size_class].append(abs(math.log(one.ratio)))
    errors = {name: 100 * (math.exp(sum(logs) / len(logs)) - 1) for name, logs in off.items()}
    assert errors.keys() == MOST.keys()
    assert {name: error for name, error in errors.items() if error > MOST[name]} == {}


@pytest.mark.parametrize(
    ("kind", "places"),
    [
        ("gemm", (1, 2)),
        ("grouped_gemm", (0, 1)),
        ("conv", (4, 5)),
        ("attention", (1,)),
        ("attention_backward", (1,)),
        ("layernorm", (0, 1)),
        ("rmsnorm", (0, 1)),
        ("softmax", (0, 1)),
        ("elementwise", (0,)),
        ("quantise", (0, 1)),
        ("embedding", (0, 1)),
    ],
)
def test_rows_are_left_out_by_the_numbers_of_their_family(kind: str, places: tuple[int, ...]) -> None:
    assert family_of(kind).sizes_of(Shape(kind, tuple(range(9)), 1)) == places


@pytest.mark.parametrize(
    ("facts", "shape", "included"),
    [
        (
            {"dtype": "fp8", "software": "X; may include quantising the activations"},
            "gemm 5 6 7",
            "quantise 5 7",
        ),
        ({"dtype": "fp8", "software": "X"}, "gemm 5 6 7", ""),
        ({"dtype": "bf16", "software": "quantizes activations"}, "gemm 5 6 7", ""),
        (
            {"how": "the framework writes the KV cache too"},
            "attention 2 8 4 9 10 64 causal",
            "embedding 20 512",
        ),
        ({"how": "writes the KV cache too"}, "attention 2 8 4 9 10 64 32", "embedding 20 384"),
        ({"how": "alone"}, "attention 2 8 4 9 10 64 causal", ""),
        ({"how": "writes the KV cache"}, "softmax 8 8", ""),
    ],
)
def test_the_words_of_a_table_give_the_included_kernels(
    facts: dict[str, str], shape: str, included: str
) -> None:
    assert included_kernels(facts, shape) == ((included,) if included else ())


def test_products_of_two_datatypes_are_fitted_apart() -> None:
    before = device_of(MACHINE)
    made = slower(before)
    kernels = made_rows(made, "bf16") + made_rows(made, "fp8")
    fitted = fit(before, Kernels.of(kernels))
    assert fitted.fitted["launch-overhead"] == pytest.approx(before.launch_ns, rel=0.05)
    assert fitted.fitted["fp8 launch-overhead of quantise"] == pytest.approx(20_000, rel=0.05)
    assert fitted.fitted["fp8 memory-efficiency of quantise"] == pytest.approx(0.5, rel=0.1)
    keys = device_changes(MACHINE, before, fitted.device, {})["compute"]["kinds"]
    assert keys["quantise"]["launch-overhead"].endswith("ns")
    held = [(row, 1.1) for row in kernels]
    assert {"small_gemm", "small_gemm fp8", "gemm", "gemm fp8"} == accuracy_of(before, held).keys()


def test_rows_are_checked_against_the_peak_and_not_against_an_earlier_fit() -> None:
    bytes_moved = 16384 * 51200  # nearly all of them weights, at more of the bandwidth than products reached
    rows = [MeasuredKernel("gemm 16 16384 51200", "fp8", bytes_moved / 3350 / 1000, "made")]
    with pytest.raises(InputError, match="products: 1 rows"):
        fit(device_of(MACHINE), Kernels.of(rows))
    with pytest.raises(InputError, match="the device's peak allows"):
        fit(device_of(MACHINE), Kernels.of([structs.replace(rows[0], us=rows[0].us * 0.9)]))


def slower(device: RooflineDevice) -> RooflineDevice:
    """Return the device with a slower quantisation."""
    slow = KernelKind(launch_ns=20_000.0)
    parts = device.memory_efficiency.with_curve("quantise", Curve(0.5))
    return replace(
        device, memory_efficiency=parts, kinds=MappingProxyType({**device.kinds, "quantise": slow})
    )


def made_rows(device: RooflineDevice, datatype: str) -> list[MeasuredKernel]:
    """Return rows of products with the times of the device, in fp8 with the quantisation of one operand."""
    rows = []
    for m, n, k in itertools.product(SIDES[1:], SIDES[:4], SIDES[:4]):
        included = (f"quantise {m} {k}",) if datatype == "fp8" else ()
        rows.append(MeasuredKernel(f"gemm {m} {n} {k}", datatype, 1.0, "made", "gemm", included))
    ratios = Kernels.of(rows).ratios(device, np.arange(len(rows)))
    return [structs.replace(row, us=float(us)) for row, us in zip(rows, ratios, strict=True)]


def test_the_prologue_of_tiles_of_queries_is_fitted_from_the_one_of_the_device_where_there_is_one() -> None:
    device = replace(device_of(MACHINE), query_tile=128)
    target = target_of(device, family_of("attention"), "attention", device.datatype)
    for given, begins in ((0.0, QUERY_PROLOGUE), (77.0, 77.0)):
        found = factors(replace(device, query_prologue=given), target)
        assert [factor.start for factor in found if factor.name == "query-prologue"] == [begins]


@pytest.mark.parametrize(("rows", "classes"), [(3, set()), (4, {"gemm"})])
def test_four_rows_outside_a_fit_are_an_error_of_their_class(rows: int, classes: set[str]) -> None:
    held = [
        (MeasuredKernel("gemm 4096 4096 4096", "bf16", 1.0, "here"), 1.0 + row / 100) for row in range(rows)
    ]
    assert accuracy_of(device_of(MACHINE), held).keys() == classes
