"""The sample layer files follow from published shapes by the converters."""

from __future__ import annotations

import csv
import runpy
from pathlib import Path

import pytest

from converters.cli import main
from et_sim.layerfile import layer_workload, read_layer_file

FOLDER = Path(__file__).resolve().parents[2] / "traces" / "layers"
OPTIONS = {
    "resnet50": ["--ranks", "64"],
    "vgg16": ["--ranks", "64"],
    "gpt3": ["--ranks", "1024", "--packages", "128"],
    "dlrm": ["--ranks", "64", "--last-bottom-layer", "bottom2"],
    "mlp": ["--ranks", "16", "--packages", "4"],
}


def test_lists_of_products_match_the_script(tmp_path: Path) -> None:
    runpy.run_path(str(FOLDER / "models.py"))["write_lists"](tmp_path)
    for name in OPTIONS:
        assert (tmp_path / f"{name}.csv").read_bytes() == (FOLDER / f"{name}.csv").read_bytes()


@pytest.mark.parametrize("name", OPTIONS)
def test_layer_files_match_the_converter(name: str, tmp_path: Path) -> None:
    made = tmp_path / "made.txt"
    assert main(["gemm", str(FOLDER / f"{name}.csv"), "-o", str(made), *OPTIONS[name]]) == 0
    assert made.read_bytes() == (FOLDER / f"{name}.txt").read_bytes()


@pytest.mark.parametrize(
    ("name", "weights", "products_per_sample"),
    [  # published: 25.6 M weights and 3.8 G products; 138 M and 15.5 G; 175 G; 2.4 M; 12.11 M
        ("resnet50", 25_502_912, 3_857_973_248),
        ("vgg16", 138_344_128, 15_470_264_320),
        ("gpt3", 174_563_733_504, 179_395_571_712 * 2048),
        ("dlrm", 2_365_184, 2_461_824),
        ("mlp", 11_965_000, 11_965_000),
    ],
)
def test_models_have_the_published_sizes(name: str, weights: int, products_per_sample: int) -> None:
    batch = {"resnet50": 2048, "vgg16": 2048, "gpt3": 1536, "dlrm": 65_536, "mlp": 4096}[name]
    with (FOLDER / f"{name}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sizes = [(int(row["m"]), int(row["n"]), int(row["k"]), row["strategy"]) for row in rows]
    assert sum(n * k for _, n, k, strategy in sizes if strategy not in ("LOCAL", "EMBEDDING")) == weights
    assert sum(m * n * k for m, n, k, _ in sizes) == products_per_sample * batch


@pytest.mark.parametrize("name", OPTIONS)
def test_samples_become_workloads(name: str) -> None:
    file = read_layer_file(FOLDER / f"{name}.txt")
    workload, program = layer_workload(file, int(OPTIONS[name][1]), 1)
    assert workload.ranks == int(OPTIONS[name][1])
    assert len(program.steps.layer) >= len(file.layers)
