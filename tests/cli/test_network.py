"""`et-sim network`: text, data and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from et_sim.cli import main
from et_sim.network.description import _few

DIMENSIONS = (
    "topology: [ Ring, Switch ]\nnpus_count: [ 4, 2 ]\nbandwidth: [ 50, 25 ]\nlatency: [ 500, 1000 ]\n"
)
GRAPH = "graph: { generator: fat-tree, k: 4, bandwidth: 400Gbps, latency: 1us }\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "dimensions.yml").write_text(DIMENSIONS, encoding="utf-8")
    (tmp_path / "graph.yml").write_text(GRAPH, encoding="utf-8")
    return tmp_path


def test_dimensions_are_described_like_graphs(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network", str(files / "dimensions.yml"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["npus"], document["switches"], document["links"], document["diameter"]) == (8, 4, 32, 4)
    assert document["is_graph"] is False
    assert document["paths"][-1]["devices"] == ["npu0", "npu3", "dimension1.switch3", "npu7"]
    assert document["paths"][-1]["latency_ns"] == 2500
    assert document["bisection_bytes_per_ns"] == pytest.approx(4 * 25 * 2**30 / 1e9)


def test_requested_paths_are_shown_and_the_picture_has_all_devices(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = files / "graph.svg"
    options = ["--path", "0:1", "--path", "2:15", "--svg", str(target)]
    assert main(["network", str(files / "graph.yml"), *options]) == 0
    printed = capsys.readouterr().out
    assert "0 to 1: npu0 > leaf0 > npu1: 2 µs, 50 GB/s" in printed
    assert "2 to 15: npu2 > leaf1 > agg0-1 > core0-3 > agg6-7 > leaf7 > npu15: 6 µs" in printed
    picture = target.read_text(encoding="utf-8")
    background, npus, switches, links = 1, 16, 20, 48
    assert picture.count("<circle") == npus
    assert picture.count("<rect") == background + switches
    assert picture.count("<path") == links


@pytest.mark.parametrize("wanted", ["0", "0:16", "3:3", "a:b"])
def test_a_path_that_cannot_be_is_refused(
    files: Path, wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["network", str(files / "graph.yml"), "--path", wanted]) == 2
    assert f"--path is '{wanted}'" in capsys.readouterr().err


def test_levels_of_1_0_are_refused_in_a_sentence(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    levels = {
        "topology-name": "Hierarchical",
        "topologies-per-dim": ["Ring"],
        "dimension-type": ["N"],
        "dimensions-count": 1,
        "units-count": [4],
        "links-count": [2],
        "link-latency": [500],
        "link-bandwidth": [50],
        "nic-latency": [0],
        "router-latency": [0],
        "hbm-latency": [0],
        "hbm-bandwidth": [100],
        "hbm-scale": [0],
    }
    (files / "levels.json").write_text(json.dumps(levels), encoding="utf-8")
    assert main(["network", str(files / "levels.json")]) == 2
    assert "bundles" in capsys.readouterr().err


def test_devices_of_a_graph_are_counted_by_their_sort(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["network", str(files / "graph.yml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("devices")] == [
        "16 NPUs, 20 switches"
    ]


@pytest.mark.parametrize(("count", "rest"), [(8, ""), (9, ", … (9)")])
def test_eight_names_of_devices_are_listed_at_most(count: int, rest: str) -> None:
    names = [f"s{number}" for number in range(count)]
    assert _few(names) == ", ".join(names[:8]) + rest
