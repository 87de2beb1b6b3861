"""Fits to recorded jobs: equal kernels are one row, few shapes give one figure, waits are not transfers."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from et_sim.calibrate.kernels import Kernels, MeasuredKernel
from et_sim.calibrate.logs import read_measured
from et_sim.calibrate.machine_file import device_of
from et_sim.calibrate.recording import read_recording
from et_sim.cli import main
from et_sim.trace import TraceBuilder, Workload, write_workload

MACHINE = "a100-dgx-80gb"
ON_DEVICE = {"stream": 7}
SHAPES = [
    f"gemm {m} {n} {k}"
    for m, n, k in zip((8192, 4096) * 4, range(1024, 9216, 1024), (4096,) * 8, strict=True)
]
LATE = (90, 30)  # us that ranks wait for the other one, by turns


def job(prefix: Path, shapes: list[str], slower: float = 1.25) -> None:
    """Write two ranks that run each shape four times, with kernels `slower` times as long as predicted."""
    kernels = Kernels.of([MeasuredKernel(shape, "bf16", 1.0, shape) for shape in shapes])
    predicted = kernels.ratios(device_of(MACHINE), np.arange(len(shapes))) * 1000
    traces = []
    for rank in range(2):
        build = TraceBuilder()
        for turn in range(4):
            for shape, ns in zip(shapes, predicted.tolist(), strict=True):
                took = round(ns * slower) + (10_000 if turn == 3 else 0)  # one is disturbed
                build.compute(shape, layer_shape=shape, dtype="bf16", nanos=took, attributes=ON_DEVICE)
            build.compute("operator", nanos=5_000, cpu=True)
            build.compute("fill", nanos=5_000, attributes={**ON_DEVICE, "copy": 1})
            build.compute("norm", tensor_bytes=1 << 24, nanos=20_000, attributes=ON_DEVICE)
            build.compute(
                "attention", layer_shape="attention 1 8 8 1024 1024 128", nanos=9_000, attributes=ON_DEVICE
            )
            took = 60_000 + (1000 * LATE[turn % 2] if rank == turn % 2 else 0)
            for name, kind in (("f16_RING_LL", "all_reduce"), ("", "all_gather")):
                name = f"ncclDevKernel_{kind}_Sum_{name}(ncclDevComm*)"
                build.collective(kind, 1 << 20, name=name, nanos=took, attributes=ON_DEVICE)
        build.collective("all_reduce", 1 << 20, name="multimem_all_reduce", nanos=900, attributes=ON_DEVICE)
        traces.append(build.build())
    write_workload(Workload.of(traces), prefix)


def test_few_shapes_give_one_figure_that_predicts_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(tmp_path / "job", SHAPES)
    words = ["calibrate", "recording", str(tmp_path / "job"), "--machine", f"{MACHINE}:2", "--json"]
    assert main([*words, "-o", str(tmp_path / "m.json")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["fitted_figures"] == {"parts of all tiles, times": pytest.approx(0.8, rel=0.02)}
    assert document["left_out"]["gemm, sides >= 1024"]["rows"] == len(SHAPES)
    assert document["left_out"]["gemm, sides >= 1024"]["e"] < 2
    assert {name: part["kernels"] for name, part in document["kernels"].items()} == {
        "with shapes": 64,
        "attention, which may be causal or not": 8,
        "with bytes only": 8,
    }
    written = json.loads((tmp_path / "m.json").read_text())
    assert written["device"]["accuracy"]["gemm"]["random"] < 0.02
    assert written["device"]["sources"]["accuracy"].startswith("see kernels: gemm; others: Standard errors")
    assert "job.0.et (sha256 " in written["sources"]["kernels"]


def test_a_collective_takes_as_long_as_on_the_member_that_came_last(tmp_path: Path) -> None:
    job(tmp_path / "job", SHAPES[:1])
    result = read_recording(str(tmp_path / "job"), 0, 8)
    assert [(row.call.kind, row.call.size, row.call.datatype, row.us) for row in result.collectives] == [
        ("all_gather", 2 << 20, "", 60.0),  # as nccl-tests counts
        ("all_reduce", 1 << 20, "fp16", 60.0),
    ]
    assert not result.waits
    assert result.left == {"of another library than NCCL": 2}
    alone = read_recording(str(tmp_path / "job.1.et"), 2, 8)
    assert alone.waits
    assert {row.us for row in alone.collectives} == {60.0}
    spread = read_recording(str(tmp_path / "job"), 2, 1)
    assert {row.call.nodes for row in spread.collectives} == {2}


def test_kernels_of_one_shape_are_a_row_for_each_datatype(tmp_path: Path) -> None:
    build = TraceBuilder()
    for datatype, nanos in (("bf16", 2000), ("fp32", 9000), ("bf16", 4000), (None, 7000)):
        build.compute(layer_shape=SHAPES[0], dtype=datatype, nanos=nanos, attributes=ON_DEVICE)
    write_workload(Workload.of([build.build()]), tmp_path / "job")
    kernels = read_recording(str(tmp_path / "job"), 0, 8).kernels
    assert {row.datatype: row.us for row in kernels} == {"": 7.0, "bf16": 3.0, "fp32": 9.0}


def test_collectives_that_fill_nodes_unevenly_are_counted_and_left_out(tmp_path: Path) -> None:
    build = TraceBuilder()
    build.compute("product", layer_shape="gemm 64 64 64", nanos=9_000, attributes=ON_DEVICE)
    name = "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*)"
    build.collective("all_reduce", 1 << 20, name=name, nanos=1000, attributes=ON_DEVICE)
    write_workload(Workload.of([build.build()] * 3), tmp_path / "odd")
    result = read_recording(str(tmp_path / "odd"), 0, 2)
    assert list(result.collectives) == []
    assert result.left == {"on groups that do not fill nodes evenly": 3}


def test_tables_of_a_recording_are_read_by_the_other_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(tmp_path / "job", SHAPES)
    kernels, collectives = tmp_path / "k.csv", tmp_path / "c.csv"
    words = ["calibrate", "recording", str(tmp_path / "job"), "--machine", MACHINE]
    assert main([*words, "--kernels", str(kernels), "--collectives", str(collectives)]) == 0
    assert {row.call.kind for row in read_measured(collectives)} == {"all_gather", "all_reduce"}
    assert len(list(csv.DictReader(kernels.open()))) == len(SHAPES)
    capsys.readouterr()
    assert main(["calibrate", "kernels", str(kernels), "--machine", MACHINE]) == 2
    assert "products: 8 rows are too few for 8 fitted figures" in capsys.readouterr().err


def test_a_fit_that_no_row_could_judge_is_not_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(tmp_path / "job", SHAPES[:4])
    words = ["calibrate", "recording", str(tmp_path / "job"), "--machine", MACHINE]
    assert main(words) == 0
    assert "products: 4 rows are too few to judge a fit" in capsys.readouterr().out
    assert main([*words, "-o", str(tmp_path / "m.json")]) == 2
    assert "nothing was fitted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing", "--machine", MACHINE), "convert the recording: et-convert pytorch FOLDER -o"),
        (("job", "--machine", f"{MACHINE}:1"), "a trace of rank 1, and the machine 1 NPUs"),
        (("job", "--machine", MACHINE, "--dtype", "fp8"), "no kernel with a shape computes in fp8"),
        (("host", "--machine", MACHINE), "no kernel has a time"),
    ],
)
def test_unusable_recordings_are_refused(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job(tmp_path / "job", SHAPES[:1])
    host = TraceBuilder()
    host.compute("operator", nanos=5_000, cpu=True)
    write_workload(Workload.of([host.build()]), tmp_path / "host")
    assert main(["calibrate", "recording", str(tmp_path / words[0]), *words[1:]]) == 2
    assert message in capsys.readouterr().err
