"""`et-convert text`, through the command line's own parser."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from expanded_workloads import expanded
from trace_oracle import assert_same_trace

from converters.cli import main
from et_sim.layerfile import layer_workload, parse_layer_file
from et_sim.trace import GroupRule, read_manifest, read_workload

ROWS = "\n".join(f"l{k} -1 10{k} ALLGATHER 1024 200 ALLREDUCE 2048 300 ALLREDUCE 4096 5" for k in range(3))
DATA, GPT = f"DATA\n3\n{ROWS}\n", f"HYBRID_TRANSFORMER group: 4\n3\n{ROWS}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.txt").write_text(DATA, encoding="utf-8")
    Path("gpt.txt").write_text(GPT, encoding="utf-8")


def test_a_manifest_holds_the_whole_workload_and_the_report_lists_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["text", "gpt.txt", "-o", "out/gpt", "--ranks", "16", "--passes", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "gpt.txt (layer file, HYBRID_TRANSFORMER) -> out/gpt.workload.json",
        "  nodes          72: 54 COMP, 18 COLL",
        "  all_reduce     36 KiB in 12 nodes",
        "  all_gather     6 KiB in 6 nodes",
        "  loop           HYBRID_TRANSFORMER, 3 layers, 2 passes",
        "  columns        times taken as nanoseconds, sizes as bytes that one rank puts in",
        "  collectives    18 KiB in 12 collectives within model groups",
        "  collectives    24 KiB in 6 collectives within data groups",
        "  updates        90 ns in 18 nodes after collectives",
        "  model groups   4 of 4 ranks",
        "  data groups    4 of 4 ranks, 4 apart",
        "  template       out/gpt.template0.et, for all 16 ranks",
        "  run with       et-sim run out/gpt.workload.json --system FILE --network FILE",
    ]
    workload = read_manifest("out/gpt.workload.json")
    assert workload.group_rules == {"model": GroupRule(4, 1), "data": GroupRule(4, 4)}
    assert_same_trace(workload.trace(5), layer_workload(parse_layer_file(GPT), 16, 2)[0].trace(5))


def test_files_of_all_ranks_are_the_manifest_expanded(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["text", "gpt.txt", "-o", "gpt", "--ranks", "8", "--expand"]) == 0
    assert "  groups file    gpt.groups.json\n" in capsys.readouterr().out
    whole = expanded(layer_workload(parse_layer_file(GPT), 8, 1)[0])
    read = read_workload("gpt")
    for rank in range(8):
        assert_same_trace(read.trace(rank), whole.workload.trace(rank))
    groups = json.loads(Path("gpt.groups.json").read_text(encoding="utf-8"))
    assert groups == {str(number): list(members) for number, members in whole.groups.items()}


def test_columns_unused_by_the_loop_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["text", "data.txt", "-o", "data", "--ranks", "4", "--json"]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert [note["text"] for note in file["notes"] if note["about"] == "not used"] == [
        "forward collective of all 3 layers: DATA does not issue it",
        "input gradient time of l0: DATA has no such step",
        "input gradient collective of all 3 layers: DATA does not issue it",
    ]


def test_collectives_without_bytes_and_on_no_dimension_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "HYBRID_CUSTOMIZED 1 l0 -1 1 ALLGATHER 64 1 NONE 0 1 ALLREDUCE 0 5 MODEL"
    Path("own.txt").write_text(text.replace("MODEL", "DATA"), encoding="utf-8")
    assert main(["text", "own.txt", "-o", "own", "--ranks", "4"]) == 0
    printed = capsys.readouterr().out
    assert "  not used       forward collective of l0: no rank takes part\n" in printed
    assert "  not used       weight gradient collective of l0: it has 0 bytes\n" in printed


def test_the_chakra_flavour_has_running_ids_in_one_file_per_rank(capsys: pytest.CaptureFixture[str]) -> None:
    Path("data.txt").write_bytes(DATA.replace("\n", "\r\n").encode())
    assert main(["text", "data.txt", "-o", "data", "--ranks", "3", "--flavour", "chakra"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "data.txt (layer file, DATA) -> data.0.et to data.2.et (3)",
        "  nodes          11 in each file: 8 COMP, 3 COLL",
        "  all_reduce     12 KiB in 3 nodes",
        "  loop           DATA as Chakra's text converter has it, 3 layers, 1 pass",
        "  columns        times stand as microseconds, a thousand times as long as the file's nanoseconds",
        "  not used       forward collective of all 3 layers: DATA does not issue it",
        "  not used       input gradient time of l0: DATA has no such step",
        "  not used       input gradient collective of all 3 layers: DATA does not issue it",
        "  not used       update time of 3 layers: this converter has none",
    ]
    read = read_workload("data")
    assert [int(read.trace(rank).node_id[0]) for rank in range(3)] == [0, 11, 22]
    assert DATA.encode() in Path("data.0.et").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gpt.txt", "--ranks", "8", "--flavour", "chakra"], "text converter does not support HYBRID"),
        (["gpt.txt", "--ranks", "10"], "gpt.txt: model-parallel groups of 4 do not divide 10 ranks"),
        (["data.txt", "--ranks", "0"], "--ranks is 0"),
        (["data.txt", "--ranks", "5000", "--expand"], "--ranks is 5,000 (give 1 to 4,096 ranks; a manifest"),
        (["data.txt", "--ranks", "2", "--passes", "0"], "--passes is 0"),
        (["missing.txt", "--ranks", "2"], "missing.txt: cannot be read"),
        (["data.txt", "--ranks", "2", "--expand", "-o", "x.workload.json"], "one file per rank cannot"),
    ],
)  # fmt: skip
def test_unsupported_input_is_refused_and_no_file_is_written(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(Path().iterdir())
    assert main(["text", "-o", "out", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert sorted(Path().iterdir()) == before


def test_no_input_is_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.0.et").write_text(DATA, encoding="utf-8")
    assert main(["text", "x.0.et", "-o", "x", "--ranks", "2", "--expand"]) == 2
    assert "would be overwritten, and it is an input" in capsys.readouterr().err


def test_a_million_ranks_are_two_small_files() -> None:
    assert main(["text", "gpt.txt", "-o", "many", "--ranks", str(1 << 20)]) == 0
    assert sum(path.stat().st_size for path in Path().glob("many.*")) < 10_000
