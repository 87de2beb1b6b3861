"""`et-sim sweep`, and the output of `inspect` and `sql` for a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_sweeps import TEXT, write

from et_sim.cli import main

CHANGING = """\
base:
  workload: {make: all_reduce, ranks: 4, bytes: 64KiB, compute-us: 5}
  system: system.json
  network: network.yml
axes:
  network.bandwidth[0]: [1, 10, 100, -1]
  latency: {field: "network.latency[0]", values: [100.0, 500.0]}
"""


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ET_SIM_COMPILE", "never")
    monkeypatch.setenv("COLUMNS", "100")


def _swept(folder: Path, text: str = TEXT, *options: str) -> int:
    return main(["sweep", str(write(folder, text)), "--out", str(folder / "out"), "--workers", "1", *options])


def test_a_sweep_prints_the_same_as_inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _swept(tmp_path, CHANGING) == 0
    printed = capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "out")]) == 0
    assert printed.startswith(capsys.readouterr().out.rstrip())
    assert "points       8: 6 complete, 2 refused" in printed
    assert "network.bandwidth[0]: 10 -> 100" in printed
    assert "point 6 and 1 other refused: " in printed


def test_its_data_are_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _swept(tmp_path, CHANGING, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == {"complete": 6, "refused": 2}
    assert [failure["point"] for failure in document["failures"]] == [6, 7]
    makespans = {point["point"]: point["makespan_ns"] for point in document["best"]}
    assert list(makespans.values()) == sorted(makespans.values())
    effect = next(row for row in document["effects"] if row["axis"] == "latency" and row["value"] == 500.0)
    of_it = [makespans[point] for point in (1, 3, 5)]
    assert (effect["least_ns"], effect["mean_ns"]) == (min(of_it), round(sum(of_it) / 3))
    assert {(turn["bottleneck"], turn["becomes"]) for turn in document["turns"]} == {
        ("communication", "compute")
    }


@pytest.mark.deep
def test_sql_reads_both_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _swept(tmp_path)
    capsys.readouterr()
    query = "SELECT count(*) AS n FROM sweep JOIN times USING (digest) WHERE splits = 2"
    assert main(["sql", str(tmp_path / "out"), query, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 3}]
    assert main(["sql", str(tmp_path / "out"), "SELECT nothing FROM sweep"]) == 2
    assert "columns of sweep: point, bandwidth, splits, status" in capsys.readouterr().err


def test_no_completed_point_is_status_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _swept(tmp_path, TEXT.replace("[25, 50, 100]", "[0, -1]")) == 1
    assert "points       6: 6 refused" in capsys.readouterr().out


def test_warnings_are_printed_once_with_a_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    system = json.loads((tmp_path / "system.json").read_text())
    (tmp_path / "system.json").write_text(json.dumps({**system, "packet-routing": "software"}))
    assert main(["sweep", str(path), "--out", str(tmp_path / "out"), "--workers", "1"]) == 0
    results = [line for line in capsys.readouterr().err.splitlines() if "packet-routing" in line]
    assert len(results) == 1
    assert results[0].endswith("(at 9 of 9 points)")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that holds a sweep."""
    folder = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ET_SIM_COMPILE", "never")
        assert _swept(folder) == 0
    return folder


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["inspect", "OUT", "ranks"], "this is a sweep, and ranks is about a run"),
        (["inspect", "OUT", "--vary"], "this is a sweep, and --vary is about a run"),
        (["inspect", "OUT", "--top", "0"], "cannot show 0 lines"),
        (["compare", "OUT", "FOLDER"], "only one of the two is a sweep"),
        (
            ["report", "OUT", "--html", "x.html", "--ranks", "0"],
            "this is a sweep, and --ranks is about a run",
        ),
        (["run", "SPEC"], "this is the description of a sweep (carry it out with: et-sim sweep"),
        (["sweep", "SPEC", "--workers", "0"], "--workers is 0"),
        (["sweep", "SPEC", "--keep", "some"], "--keep is 'some'"),
        (["sweep", "SPEC", "--dask", "x", "--workers", "2"], "cannot be combined"),
        (["sweep", "OUT"], "name the file, not its folder"),
        (["sweep", "SPEC", "--out", "SPEC"], "is a file"),
    ],
)
def test_misuse_is_one_sentence(
    words: list[str], sentence: str, swept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    places = {"OUT": str(swept / "out"), "SPEC": str(swept / "rings.yml"), "FOLDER": str(swept)}
    assert main([places.get(word, word) for word in words]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("damage", [b"", b"ARROW1", "cut", "other"])
def test_a_damaged_table_is_one_sentence(
    damage: bytes | str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow as pa

    _swept(tmp_path)
    capsys.readouterr()
    path = tmp_path / "out" / "sweep.arrow"
    if damage == "other":
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, pa.schema([("x", pa.int8())])):
            pass
    else:
        path.write_bytes(path.read_bytes()[:900] if isinstance(damage, str) else damage)
    for words in (["inspect", str(tmp_path / "out")], ["sql", str(tmp_path / "out"), "SELECT 1"]):
        assert main(words) == 2
        assert "(sweep again with et-sim sweep)" in capsys.readouterr().err
    assert _swept(tmp_path) == 0  # the journal is whole
