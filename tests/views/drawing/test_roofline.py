"""Kernels are drawn at their operations, bytes and time, and roofs are those of the machine."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from runs_to_show import BANDWIDTH, KERNELS, PEAK, kernels_on_a_roofline, pipeline

from et_sim.cli import main
from et_sim.views import open_run
from et_sim.views.drawing.memory import capacity_of, memory_picture
from et_sim.views.drawing.planes import roofline_picture
from et_sim.views.drawing.scene import NothingToDrawError
from et_sim.views.run.selection import selection
from et_sim.views.summary.memory import memory_peaks
from et_sim.views.summary.roofline import NO_KERNELS, roofline_data, roofline_of

pytestmark = pytest.mark.usefixtures("warm_engine")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kernels_on_a_roofline(tmp_path_factory.mktemp("roofline") / "run")


def test_operations_bytes_and_time_are_those_of_the_trace(kernels: Path) -> None:
    kernels_by_name = {kernel.name: kernel for kernel in roofline_of(open_run(kernels)).kernels}
    assert set(kernels_by_name) == set(KERNELS)
    for name, (operations, size) in KERNELS.items():
        kernel, seconds = kernels_by_name[name], max(operations / PEAK, size / BANDWIDTH)
        assert kernel.count == 4
        assert kernel.operations == pytest.approx(4 * operations)
        assert kernel.bytes == 4 * size
        assert kernel.intensity == pytest.approx(operations / size)
        assert kernel.total_ns == 4 * int(seconds * 1e9)
        assert kernel.operations_per_second == pytest.approx(operations / seconds, rel=1e-3)
        assert kernel.memory_bound_share == (name != "matrix") * (size / BANDWIDTH > operations / PEAK)


def test_roofs_are_those_of_the_machine(kernels: Path) -> None:
    data = roofline_data(open_run(kernels))
    assert [*data["peaks"].values()] == pytest.approx([PEAK], rel=1e-3)
    assert [*data["bandwidths"].values()] == pytest.approx([BANDWIDTH], rel=1e-3)
    assert all(kernel["share_of_roof"] == pytest.approx(1, rel=2e-3) for kernel in data["kernels"])


def test_ranks_and_windows_count_their_part(kernels: Path) -> None:
    run = open_run(kernels)
    half = run.summary["makespan_ns"] // 2
    whole, of_half = (
        sum(k.operations for k in roofline_of(run, part).kernels) for part in (selection(), selection("1"))
    )
    assert of_half == pytest.approx(whole / 2)
    parts = [
        sum(k.operations for k in roofline_of(run, selection(window=window)).kernels)
        for window in (f"0:{half}ns", f"{half}ns:")
    ]
    assert sum(parts) == pytest.approx(whole)


def test_circles_stand_where_their_figures_are(kernels: Path) -> None:
    drawn, roofline = roofline_picture(open_run(kernels)), roofline_of(open_run(kernels))
    places = [(float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', drawn)]
    figures = np.log10([(kernel.intensity, 1 / kernel.operations_per_second) for kernel in roofline.kernels])
    for place, figure in zip(np.array(places).T, figures.T, strict=True):
        np.testing.assert_allclose(
            np.diff(place) / np.ptp(place), np.diff(figure) / np.ptp(figure), atol=1e-3
        )
    assert all(kernel.name in drawn for kernel in roofline.kernels)


def test_without_operations_and_bytes_a_sentence_gives_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pipeline(tmp_path / "run")
    assert main(["inspect", str(run), "roofline"]) == 0
    assert "no kernel's operations and bytes are known" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(NothingToDrawError, match=NO_KERNELS.partition(":")[0]):
        roofline_picture(open_run(run))


def test_memory_is_drawn_up_to_its_peak_and_with_its_capacity(kernels: Path) -> None:
    run = open_run(kernels)
    peaks = memory_peaks(run)
    assert peaks
    drawn = memory_picture(run)
    assert capacity_of(run) == 160 << 10
    [peak] = re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)"', drawn)
    [limit] = re.findall(r'stroke-dasharray="6 4" d="M\d+ ([\d.]+)', drawn)
    tops = [
        float(y)
        for path in re.findall(r' d="(M[^"]+Z)"', drawn)
        for y in re.findall(r"[ML]\d+ ([\d.]+)", path)
    ]
    bottom = max(tops)
    assert min(tops) == float(peak)
    assert (bottom - float(peak)) / (bottom - float(limit)) == pytest.approx(
        peaks[0].bytes / (160 << 10), abs=0.01
    )
    assert "capacity: 160 KiB" in drawn
    assert "peak: " in drawn


def test_the_name_of_a_kernel_stands_below_its_circle(kernels: Path) -> None:
    drawn = roofline_picture(open_run(kernels))
    circles = [
        (float(y) + float(reach))
        for y, reach in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)" r="([\d.]+)"', drawn)
    ]
    names = [float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>(?:matrix|copy|both)<', drawn)]
    assert sorted(names) == pytest.approx(sorted(bottom + 12 for bottom in circles), abs=0.2)
