"""`et-sim systolic` reads SCALE-Sim's files and writes its reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from et_sim.cli import main

CONFIG = """[general]
run_name = tiny

[architecture_presets]
ArrayHeight:    8
ArrayWidth:     8
IfmapSramSzkB:  1
FilterSramSzkB: 1
OfmapSramSzkB:  1
IfmapOffset:    0
FilterOffset:   10000000
OfmapOffset:    20000000
Dataflow : ws
Bandwidth : 10
MemoryBanks: 1

[run_presets]
InterfaceBandwidth: CALC
"""
PRODUCTS = "Layer,M,N,K,\nfirst,32,32,32,\n\nsecond,33,65,17,\n"
CONVOLUTIONS = "Layer,H,W,FH,FW,C,N,S,\nConv1,8,8,3,3,2,4,1,\nConv2_DP,6,6,3,3,2,1,1,2,\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.cfg").write_text(CONFIG)
    (tmp_path / "net.csv").write_text(PRODUCTS)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["systolic", "net.csv", "--config", "tiny.cfg", *options]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["systolic", "net.csv", "--config", "tiny.cfg", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.removeprefix("et-sim: error: ").strip()


def test_the_report_has_a_row_for_each_layer(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys).splitlines()
    assert lines[0] == "net.csv: 2 layers on 8 x 8, ws,"
    assert "without effect: IfmapOffset, FilterOffset, OfmapOffset, MemoryBanks, Bandwidth" in lines[2]
    assert [line.split()[:3] for line in lines[5:7]] == [["first", "863", "0"], ["second", "1,484", "0"]]
    assert lines[7] == "all: 2,347 cycles, 0 of them stalls"


def test_json_has_all_columns(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(printed(capsys, "--json"))
    assert (document["run_name"], document["total_cycles"], document["rules"]) == ("tiny", 2347, "scale-sim")
    first = document["layers"][0]
    assert (first["M"], first["N"], first["K"], first["macs"]) == (32, 32, 32, 32**3)
    assert first["compute"]["Total Cycles"] == 863
    assert len(first["bandwidth"]) == 6
    assert len(first["access"]) == 18


def test_csv_reports_have_scale_sims_columns(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert "wrote out/COMPUTE_REPORT.csv" in printed(capsys, "--out", "out")
    compute = (folder / "out" / "COMPUTE_REPORT.csv").read_text().splitlines()
    names = "LayerID, Total Cycles, Stall Cycles, Overall Util %, Mapping Efficiency %, Compute Util %,"
    assert compute[0] == names
    assert compute[1].startswith("0, 863, 0, 59.3")
    access = (folder / "out" / "DETAILED_ACCESS_REPORT.csv").read_text().splitlines()
    assert len(access) == 3
    assert {line.count(",") for line in access} == {19}


def test_convolutions_are_seen_and_depth_wise_ones_expanded(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "net.csv").write_text(CONVOLUTIONS)
    layers = json.loads(printed(capsys, "--json"))["layers"]
    assert [layer["name"] for layer in layers] == ["Conv1", "Conv2_DPChannel_0", "Conv2_DPChannel_1"]
    assert [(layer["M"], layer["N"], layer["K"]) for layer in layers] == [(36, 4, 18), (12, 1, 9), (12, 1, 9)]


def test_corrected_rules_count_the_last_cycle(capsys: pytest.CaptureFixture[str]) -> None:
    assert "all: 2,349 cycles" in printed(capsys, "--rules", "corrected")


BAD_CONFIGS = [
    ("ArrayHeight:    8", "ArrayHeight: 0", "tiny.cfg, line 5: ArrayHeight is '0' (give a whole number"),
    ("ArrayHeight:    8", "ArayHeight: 8", "line 5: there is no key 'ArayHeight' in [architecture_presets] "),
    ("ArrayHeight:    8", "", "tiny.cfg: there is no ArrayHeight (give it in [architecture_presets]"),
    ("Dataflow : ws", "Dataflow : wss", "line 13: Dataflow is 'wss' (did you mean 'ws'? it is one of os"),
    ("CALC", "user", "InterfaceBandwidth is 'user' (did you mean 'USER'? it is one of CALC, USER)"),
    ("[general]", "[genral]", "line 1: there is no section [genral] (did you mean 'general'?"),
    ("MemoryBanks: 1", "ArrayWidth: 9", "line 15: ArrayWidth is given twice (line 6 gives it too: keep one)"),
    ("run_name = tiny", "run_name", "line 2: 'run_name' is not a key with a value"),
    ("run_name = tiny", "Dataflow = os", "there is no key 'Dataflow' in [general] (did you mean 'Dataflow'?"),
    ("[general]", "x = 1\n[general]", "line 1: 'x = 1' is before the first section"),
]


@pytest.mark.parametrize(("old", "new", "sentence"), BAD_CONFIGS)
def test_a_bad_configuration_is_refused(
    old: str, new: str, sentence: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "tiny.cfg").write_text(CONFIG.replace(old, new, 1))
    assert sentence in refused(capsys)


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        ("-3", "line 14: Bandwidth is '-3' (give a whole number from 1"),
        ("1, 2", "line 14: Bandwidth has 2 figures (give one, or one each of ifmap, filter and ofmap)"),
        ("10, x, 3", "line 14: Bandwidth is 'x'"),
    ],
)
def test_a_bad_bandwidth_is_refused(
    figures: str, sentence: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    text = CONFIG.replace("CALC", "USER").replace("Bandwidth : 10", f"Bandwidth : {figures}")
    (folder / "tiny.cfg").write_text(text)
    assert sentence in refused(capsys)


BAD_ROWS = [
    ("a,1,2,", "net.csv, line 2: the row has 3 columns (a row has the columns name, M, N, K;"),
    (
        "c_DP,9,9,3,3,100000,1,1,",
        "line 2: c_DP is depth-wise and has 100,000 channels, each of which is a layer",
    ),
    ("a,1,-2,3,", "net.csv, line 2: N is '-2' (give a whole number from 1 to 16,777,216)"),
    ("a,1,2.5,3,", "N is '2.5'"),
    ("a,1,99999999999,3,", "N is '99999999999'"),
    (",1,2,3,", "line 2: the layer has no name"),
    ("a,5,5,7,3,1,1,1,", "line 2: the filter's height 7 is larger than the ifmap's, 5"),
    ("a,5,5,3,3,1,1,", "line 2: the row has 7 columns (a row has the columns name, IFMAP height"),
    ("a,5,5,3,3,1,1,1,2", "does not end with a comma, so that SCALE-Sim drops the stride width 2"),
    ("a,5,5,3,3,1,1,1,1,1:2,", "line 2: the row has 10 columns"),
    ("", "net.csv: there are no layers"),
]


@pytest.mark.parametrize(("row", "sentence"), BAD_ROWS)
def test_a_bad_topology_is_refused(
    row: str, sentence: str, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "net.csv").write_text(f"Layer,\n{row}\n")
    assert sentence in refused(capsys)


def test_a_layer_in_place_of_the_header_is_refused(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "net.csv").write_text("a, 8, 8, 8,\nb, 8, 8, 8,\n")
    assert "net.csv, line 1: the first line, which SCALE-Sim skips as a header, is a layer" in refused(capsys)


def test_files_that_are_not_there_and_no_text_are_refused(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "net.csv").write_bytes(b"\xff\xfe")
    assert refused(capsys) == "net.csv: byte 0 is not UTF-8 text (give a text file)"
    (folder / "net.csv").unlink()
    assert refused(capsys).startswith("net.csv: cannot be read: No such file")


def test_a_row_without_its_last_comma_is_read_where_nothing_depends_on_it(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "net.csv").write_text(PRODUCTS.replace("32,\n", "32\n"))
    assert "all: 2,347 cycles" in printed(capsys)
