"""Fits of kernels find the figures that made the rows, and keep figures that no row determines."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from et_sim.basics.errors import InputError
from et_sim.calibrate.kernel_factors import FAMILIES, factors, target_of
from et_sim.calibrate.kernels import Kernels, MeasuredKernel, fit, left_out
from et_sim.calibrate.machine_file import device_changes, device_of
from et_sim.cli import main
from et_sim.machine.roofline import RooflineDevice

MACHINE = "a100-dgx-80gb"
SIDES = (64, 512, 1536, 4096, 16384)
PRODUCTS = [f"gemm {m} {n} {k}" for m, n, k in itertools.product(SIDES, SIDES, SIDES)]
ATTENTION = [
    f"attention 1 {heads} {heads} {tokens} {tokens} 128 causal"
    for heads, tokens in itertools.product((8, 16, 64), (256, 512, 1024, 4096))
]
SOFTMAX = [f"softmax {rows} {width}" for rows, width in itertools.product((1 << 14, 1 << 16), (1024, 4096))]


@pytest.fixture(scope="module")
def other() -> RooflineDevice:
    """Return a device whose figures differ from the preset's."""
    device = device_of(MACHINE)
    changes = {"launch-overhead": 3100.0, "split-time": 1700.0, "prologue": 2.5}
    changes |= {"memory-efficiency of gemm": 0.8, "part with tiles of 32768": 0.9}
    changes |= {"part with tiles of 8192": 0.7, "efficiency of attention": 0.66, "query-prologue": 200.0}
    changes |= {"launch-overhead of attention": 4000.0, "memory-efficiency of softmax": 0.5}
    for family in FAMILIES:
        for factor in factors(device, target_of(device, family, family.kinds[0], "")):
            device = factor.change(device, changes.get(factor.name, factor.start))
    return device


def measured(device: RooflineDevice, shapes: list[str], noise: float = 0.0) -> Kernels:
    """Return rows with the times of the device, in turn multiplied and divided by `1 + noise`."""
    rows = [MeasuredKernel(shape, "bf16", 1.0, f"row {at}") for at, shape in enumerate(shapes, 1)]
    predicted = Kernels.of(rows).ratios(device, np.arange(len(rows)))
    signs = itertools.cycle((1 + noise, 1 / (1 + noise), 1 / (1 + noise), 1 + noise))
    return Kernels.of(
        [
            structs.replace(row, us=float(ratio * sign))
            for row, ratio, sign in zip(rows, predicted, signs, strict=False)
        ]
    )


def test_a_fit_finds_the_device_that_made_the_rows(other: RooflineDevice) -> None:
    kernels = measured(other, PRODUCTS + ATTENTION + SOFTMAX)
    fitted = fit(device_of(MACHINE), kernels)
    ratios = kernels.ratios(fitted.device, np.arange(len(kernels.rows)))
    assert np.abs(np.log(ratios)).mean() < 0.002
    assert fitted.fitted["launch-overhead"] == pytest.approx(3100, rel=0.03)
    assert fitted.fitted["memory-efficiency of gemm"] == pytest.approx(0.8, rel=0.03)
    assert fitted.fitted["efficiency of attention"] == pytest.approx(0.66, rel=0.03)
    assert fitted.fitted["memory-efficiency of softmax"] == pytest.approx(0.5, rel=0.03)
    assert fitted.fitted["launch-overhead of attention"] == pytest.approx(4000, rel=0.1)
    assert fitted.device.query_tile == 64


@pytest.mark.deep
def test_rows_left_out_are_predicted_without_their_sizes(other: RooflineDevice) -> None:
    kernels = measured(other, PRODUCTS, noise=0.05)
    fitted = fit(device_of(MACHINE), kernels)
    held = list(left_out(fitted.device, kernels))
    assert 0 < len(held) < len(PRODUCTS)
    assert np.exp(np.abs(np.log([ratio for _, ratio in held])).mean()) < 1.10


def test_unmeasured_figures_stay_and_are_named(other: RooflineDevice) -> None:
    before = device_of(MACHINE)
    fitted = fit(before, measured(other, SOFTMAX))
    assert fitted.device.tiles == before.tiles
    assert fitted.device.launch_ns == before.launch_ns
    assert set(fitted.fitted) == {"memory-efficiency of softmax"}
    assert "products: not measured" in fitted.unknown


@pytest.mark.deep
def test_figures_that_no_row_depends_on_stay(other: RooflineDevice) -> None:
    tiny = [f"gemm 64 64 {64 * step}" for step in range(1, 33)]
    fitted = fit(device_of(MACHINE), measured(other, tiny))
    assert "part with tiles of 32768" not in fitted.fitted
    assert any(text.startswith("part with tiles of 32768: no row depends") for text in fitted.unknown)


def test_rows_that_beat_the_peak_are_refused_by_name() -> None:
    rows = [MeasuredKernel("gemm 8192 8192 8192", "bf16", 1000.0, "mine.csv: table t, row 7")]
    with pytest.raises(InputError, match=r"row 7: gemm 8192 8192 8192 took 1000 us, .* allows 3455 us"):
        fit(device_of(MACHINE), Kernels.of(rows))


def test_too_few_rows_are_refused(other: RooflineDevice) -> None:
    with pytest.raises(InputError, match="products: 9 rows are too few for 8 fitted figures"):
        fit(device_of(MACHINE), measured(other, PRODUCTS[::14]))


def test_two_datatypes_at_once_are_refused(other: RooflineDevice) -> None:
    kernels = measured(other, SOFTMAX)
    rows = [structs.replace(kernels.rows[0], datatype="fp32"), *kernels.rows[1:]]
    with pytest.raises(InputError, match="softmax: rows have bf16 and fp32"):
        fit(device_of(MACHINE), Kernels.of(rows))


def test_datatypes_that_were_not_measured_are_named_where_the_device_has_several(
    other: RooflineDevice,
) -> None:
    kernels, device = measured(other, SOFTMAX), device_of(MACHINE)
    of_one = structs.replace(device, peaks={"bf16": device.peaks["bf16"]})
    for known, is_named in ((device, True), (of_one, False)):
        unknown = fit(known, kernels).unknown
        assert any(text.startswith("datatypes but bf16: not measured") for text in unknown) is is_named


def test_figures_at_their_bounds_are_refused(other: RooflineDevice) -> None:
    kernels = measured(
        other, ["elementwise 67108864 1", "elementwise 33554432 1", *2 * ["elementwise 99999999"]]
    )
    rows = [structs.replace(row, us=row.us * 0.8) for row in kernels.rows]
    with pytest.raises(InputError, match=r"memory-efficiency of elementwise would be .* above its limit"):
        fit(device_of(MACHINE), Kernels.of(rows))


def test_only_changed_figures_are_written(other: RooflineDevice) -> None:
    before = device_of(MACHINE)

    def written(after: RooflineDevice) -> list[set[str]]:
        changes = device_changes(MACHINE, before, after, {})
        return [{*changes["compute"]}, {*changes["sources"]}]

    assert written(before) == [set(), set()]
    assert written(structs.replace(before, tiles=other.tiles)) == [{"tiles"}, {"tiles"}]
    assert written(structs.replace(before, launch_ns=1.5)) == [{"launch-overhead"}, {"launch-overhead"}]


@pytest.mark.deep
def test_a_calibrated_machine_predicts_the_rows_of_its_fit(
    other: RooflineDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernels = measured(other, PRODUCTS)
    lines = [f"mine,{row.shape},{row.us:.6g}" for row in kernels.rows]
    (tmp_path / "k.csv").write_text("\n".join(["table,shape,us", *lines, "theirs,gemm 1 1 1,3"]))
    about = {"mine": {"dtype": "bf16"}, "theirs": {"gpu": "H100-SXM5-80GB", "dtype": "bf16"}}
    (tmp_path / "k.json").write_text(json.dumps(about))
    file, machine = str(tmp_path / "k.csv"), tmp_path / "m.json"
    assert main(["calibrate", "kernels", file, "--machine", MACHINE, "-o", str(machine)]) == 0
    out = capsys.readouterr().out
    assert "left out: table theirs (1 rows), measured on H100-SXM5-80GB" in out
    written = json.loads(machine.read_text())
    assert written["device"]["sources"]["tiles"].startswith("see kernels; before: Fitted to ai-dynamo")
    assert written["device"]["sources"]["prologue"] == "see kernels"
    assert written["calibrated"]["kernels"]["gemm, all"]["of"] == "rows that were left out"
    assert main(["validate", file, "--table", "mine", "--machine", str(machine), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    off = [abs(np.log(row["predicted_us"] / row["measured_us"])) for row in rows]
    assert np.mean(off) < 0.003
